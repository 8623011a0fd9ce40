"""The page on which a steward decides: one page, in plain words, with what could harm patients."""

import re
import unicodedata
from dataclasses import replace
from decimal import Decimal

import pytest

from fedcohort.network.state import cohorts, decisions
from fedcohort.network.state.budget import Account, Amount
from fedcohort.network.state.policy import Allowance
from fedcohort.network.state.study_store import WAITING, Entry
from fedcohort.network.steward import approval
from fedcohort.network.steward import details as messages
from fedcohort.network.steward.approval import Facts
from fedcohort.network.steward.earlier import Earlier
from fedcohort.protocol import registry
from fedcohort.study.at_site import asking
from fedcohort.study.at_site.table import SiteTable
from hospital import DICTIONARY, OTHERS, STUDY, Hospital, other_task, patients

#: Lines of a page: what one A4 sheet holds.
LINES = 66
NET = "- {method: deepcox, title: Net, strategy: fedavg, rounds: 7, hidden: [24]}"
ARMS = STUDY.replace("- {method: cox, title: Cox regression}", f"- {{method: cox}}\n{NET}")
GOVERNED = """
governance:
  purpose: A score for women with node-positive breast cancer
  legal_basis: Art. 9(2)(j) GDPR
  ethics: EK 2026-114
  recipients: [Bern, Basel]
  retention: ten years
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    made = Hospital(tmp_path_factory.mktemp("hospital"))
    yield made
    made.node.close()


def facts(hospital, study=STUDY, dictionary=DICTIONARY, *, table=False, **more):
    terms = hospital.terms(study, dictionary)
    nothing = Amount(Decimal(0), Decimal(0))
    account = Account(None, nothing, nothing, None, ())
    entry = Entry(terms.hash, "small", "lead", "Charite", "", WAITING, None, (), False)
    return replace(
        Facts(
            terms, "lead", "Charite", "north", hospital.node.config.policy, "patients", account,
            entry, table=SiteTable.of(terms, "north", patients()) if table else None,
        ),
        **more,
    )  # fmt: skip


def rows(*args, **more):
    """Return each heading's text, on a page of which every line is short enough."""
    page = approval.page(facts(*args, **more))
    lines = approval.in_lines(page)
    assert max(map(len, lines)) <= 96
    assert len(lines) <= LINES
    return {row.head: " ".join(row.lines) for row in page}


def budget(epsilon, left):
    zero = Amount(Decimal(0), Decimal(0))
    allowed = Allowance(Decimal(epsilon), Decimal("0.001"))
    return Account(allowed, zero, zero, Amount(Decimal(left), Decimal("0.001")), ())


def test_it_says_who_asks_for_what_purpose_on_what_basis_and_until_when(hospital):
    said = rows(hospital, STUDY + GOVERNED)
    assert said["Asked by"] == "lead, Charite; the signature is verified."
    assert said["Question"] == "Does the marker tell who relapses?"
    assert said["Purpose"] == "A score for women with node-positive breast cancer"
    assert said["Legal basis"] == "Art. 9(2)(j) GDPR"
    assert said["Ethics number"] == "EK 2026-114"
    assert said["Recipients"] == "lead, Charite (through the coordinator); Bern, Basel."
    assert said["Kept for"] == "ten years"
    assert f"{decisions.until(90)}, for 1 run" in said["Until"]
    assert "Not stated" not in said
    none = rows(hospital)["Not stated"]
    for what in ("purpose", "legal basis", "ethics number", "further recipients", "how long"):
        assert what in none


def test_a_model_of_the_site_alone_is_not_said_to_be_that_of_the_pooled_table(hospital):
    said = rows(hospital, STUDY + "bounds: [isolated]\n")["Methods"]
    assert "isolated: Cox proportional hazards (your rows alone, at your site)." in said
    assert "Cox proportional hazards, exactly as on the pooled table (all sites)." in said


def test_it_names_the_columns_and_those_that_identify_a_person(hospital):
    said = rows(hospital, STUDY.replace("{method: cox,", "{method: cox, strata: grade,"))["Columns"]
    assert "Predict the time until an event: 'time' in days" in said
    assert "Predict from 2 columns: age, marker." in said
    assert "grade is used as the strata." in said
    assert "from: pid (IDENTIFIES A PERSON), seen, note." in said
    wide = DICTIONARY + "".join(f"  c{i}: {{type: number}}\n" for i in range(60))
    said = rows(hospital, STUDY, wide)["Columns"]
    assert "Predict from 63 columns" in said
    assert "33 more, which the details name" in said


def test_a_column_that_identifies_a_person_is_not_among_those_that_the_page_leaves_out(hospital):
    texts = "".join(f"  note{i}: {{type: text}}\n" for i in range(40))
    dictionary = DICTIONARY.replace("  note: {type: text}\n", texts)
    said = rows(hospital, STUDY, dictionary)["Columns"]
    assert "more, which the details name" in said
    assert "from: pid (IDENTIFIES A PERSON), seen, note0" in said


def test_a_model_that_may_hold_single_rows_is_said_where_the_steward_decides(hospital):
    """A perceptron 4-24-1: (4 + 1)·24 + (24 + 1)·1 = 145; 75 % of 160 rows are 120."""
    said = rows(hospital, ARMS)["Risks"]
    assert "may memorise single patients" in said
    assert "Net about 145" in said
    assert "The largest needs 1,450 training rows at your site; --check counts yours" in said
    said = rows(hospital, ARMS, table=True)["Risks"]
    assert said.startswith(
        "- MAY HOLD SINGLE ROWS: Net about 145 free parameters; here there are 120 t"
    )
    assert "Your node lets it pass" in said
    strict = replace(hospital.node.config.policy, parameters_per_row="refuse")
    assert "Your node refuses such" in rows(hospital, ARMS, table=True, policy=strict)["Risks"]
    tuned = ARMS + "tune: {by: centre-kfold, grid: {learning_rate: [0.01, 0.1]}}\n"
    assert "chosen by trying may give larger models" in rows(hospital, tuned)["Risks"]
    assert "chosen by trying" not in rows(hospital, ARMS)["Risks"]
    said = rows(hospital, table=True)["Risks"]
    assert "MAY HOLD" not in said
    assert "120 training rows, enough for each model" in said


def test_the_fewest_rows_of_a_leaf_are_said_of_trees_alone(hospital):
    trees = ARMS.replace(
        "- {method: cox}\n", "- {method: forest, leaf: 25}\n- {method: boosting}\n"
    )
    said = rows(hospital, trees)["Risks"]
    assert "Fewest rows of a leaf: forest 25 and boosting 10." in said
    assert "leaf" not in rows(hospital, ARMS)["Risks"]


def test_it_says_epsilon_of_all_fits_and_what_is_left(hospital):
    private = ARMS.replace("min_cell: 5", "min_cell: 5, dp: {epsilon: 0.5, delta: 1e-5}").replace(
        "repeats: 1", "repeats: 3"
    )
    ranges = DICTIONARY.replace("ng/ml}", "ng/ml, range: [0, 5]}").replace(
        "{type: time, unit: days}", "{type: time, unit: days, range: [0, 9000]}"
    )
    private = private.replace("- {method: cox}\n", "")
    said = rows(hospital, private, ranges, account=budget("3", "2.5"))
    assert "ε 0.5, δ 1e-05 of each patient in each fit; 3 fits, so ε 1.5" in said["Privacy"]
    assert "ε 2.5 and δ 0.001 left of ε 3 and δ 0.001" in said["Privacy"]
    assert "LESS" not in said["Privacy"]
    assert "The noise bounds what it holds of one" in said["Risks"]
    assert "Without noise" not in said["Risks"]
    said = rows(hospital, private, ranges, account=budget("3", "1.4"))["Privacy"]
    assert "THE BUDGET THAT IS LEFT IS LESS" in said
    said = rows(hospital, private, ranges)["Privacy"]
    assert "your site has set none, so every fit with noise is refused" in said
    assert "none. No noise is added" in rows(hospital)["Privacy"]


@pytest.mark.parametrize("strategy", ["fedavg", "sequential", "exact"])
def test_all_that_is_readable_as_the_sites_own_stands_on_the_page(hospital, strategy):
    study = ARMS.replace("strategy: fedavg", f"strategy: {strategy}")
    terms = hospital.terms(study)
    known = {"tell cells", "describe columns", "tell counts", "tell own"}
    own = {
        s.name.replace("_", " ")
        for s in asking.of_study(terms.plan, terms.outcome)
        if s.verb == "gather"
    }
    said = rows(hospital, study)["What leaves"]
    assert "Readable as your site's own: Table 1" in said
    assert said.count("READABLE AS YOUR SITE'S OWN") == len(own - known)
    assert (strategy == "sequential") == bool(own - known)


def test_masks_that_are_off_and_studies_that_may_be_subtracted_are_risks(hospital):
    off = STUDY.replace("min_cell: 5", "min_cell: 5, secure_aggregation: false")
    said = rows(hospital, off)
    assert "SWITCHES MASKS OFF" in said["What leaves"]
    assert "can read your part of every sum" in said["Risks"]
    lenient = replace(hospital.node.config.policy, differencing="allow")
    assert "the few in which they differ" in rows(hospital, policy=lenient)["Risks"]
    assert "the few in which they differ" not in rows(hospital)["Risks"]


def test_no_name_of_a_step_or_a_field_is_on_the_page(hospital):
    study = ARMS + GOVERNED + "bounds: [isolated]\nshift: true\nfeedback: true\n"
    terms = hospital.terms(study)
    text = " ".join(rows(hospital, study).values()).lower()
    for word in ("isolation", "own gap", "fourth", "gather", "theta", "tally", "moments"):
        assert word not in text, word
    for step in asking.of_study(terms.plan, terms.outcome):
        if "_" in step.name:
            assert step.name not in text
            assert step.name.replace("_", " ") + " (" not in text


def test_the_largest_page_is_one_page_still(hospital):
    arms = "\n".join(
        f"- {{method: deepcox, name: net{i}, title: Network number {i}, strategy: {s}, rounds: 7}}"
        for i, s in enumerate(["fedavg", "exact", "fedprox", "sequential"] * 3)
    )
    study = STUDY.replace("- {method: cox, title: Cox regression}", arms)
    wide = DICTIONARY + "".join(f"  a_column_{i}: {{type: number}}\n" for i in range(80))
    found = [
        Earlier(f"{i:x}" * 64, f"study {i}", "lead", ("age", "grade"), ("Cox",), 1, 9, 2, "", 160)
        for i in range(9)
    ]
    page = approval.page(facts(hospital, study + GOVERNED, wide, earlier=found))
    assert len(approval.in_lines(page)) <= 1.2 * LINES
    text = re.sub(r"\s+", " ", " ".join(approval.in_lines(page)))
    assert "Network number 0, Network number 1, Network number 2 and 9 more: Cox regression" in text
    assert "6 more; `fedcohort node ledger`" in text


@pytest.mark.parametrize("name", OTHERS)
def test_studies_of_other_tasks_have_a_page_too(hospital, name):
    study, dictionary, outcome = other_task(name)
    said = rows(hospital, study, dictionary)
    assert outcome in said["Columns"]
    assert registry.find(name).title in said["Methods"]


def test_no_word_of_a_study_moves_the_cursor_of_whoever_reads_it(hospital):
    """A lead could else write over the lines that warn, or turn the order of letters."""
    study = ARMS.replace("Does the marker", '"Does\\e[2J the\\u202e\\x07 marker').replace(
        "relapses?", 'relapses?"'
    )
    study = study.replace("title: Net", 'title: "Net\\e[9A"')
    dictionary = DICTIONARY.replace("age at surgery", '"age\\e[2J at surgery"')
    terms = hospital.terms(study, dictionary)
    assert not terms.plan.question.isprintable()
    said = rows(hospital, study, dictionary)
    assert said["Question"] == "Does?[2J the?? marker tell who relapses?"
    assert "Net?[9A" in said["Risks"]
    for line in (*said.values(), *messages.as_lines(terms)):
        assert line.isprintable(), line


# earlier studies -----------------------------------------------------------------------------


@pytest.fixture
def ran(tmp_path):
    """A hospital at which one study ran, with three replies, and one was only asked for."""
    made = Hospital(tmp_path)
    run = made.approved()
    for call in range(3):
        assert made.call(run, call=call)["kind"] == "reply"
    made.approved(made.signed(made.terms(STUDY + "seed: 9\n")))
    yield made, run
    made.node.close()


def test_the_page_says_which_earlier_studies_had_these_columns_and_rows_and_what_left(ran):
    hospital, run = ran
    found = approval_earlier(hospital, "f" * 64, ("age", "marker", "never"))
    (one,) = found
    assert (one.study, one.columns) == (run, ("age", "marker"))
    assert (one.runs, one.replies, one.own, one.rows, one.shared) == (1, 3, 3, 160, None)
    assert approval_earlier(hospital, "f" * 64, ("never",)) == []
    other = STUDY + "seed: 4\n"
    said = rows(hospital, other, earlier=found)["Earlier"]
    assert "1 study with columns or patients of this one ran here; 3 replies left." in said
    assert f"small ({run[:12]}), of lead: 2 of the 8 columns (age and marker), 160 patients" in said
    assert "1 run; 3 replies left, the last on 20" in said
    assert "3 of them readable as your site's own" in said
    assert "exactly as on the pooled table" in said
    assert "- This same study: " in rows(hospital, STUDY, earlier=found)["Earlier"]


def approval_earlier(hospital, study, columns, marks=()):
    from fedcohort.network.steward.earlier import earlier

    store = hospital.node.store
    return earlier(store, hospital.state, "patients", study, columns, marks)


def test_the_patients_of_two_studies_are_counted_by_the_cohort_ledger(tmp_path):
    import numpy as np

    ledger = cohorts.Cohorts(tmp_path, "patients", 5)
    marks = [bytes([i]) * 16 for i in range(200)]
    ledger.note("a" * 64, "a", marks[:100], {"analysed": np.arange(100)})
    ledger.note("b" * 64, "b", marks[40:160], {"analysed": np.arange(120)})
    new = [*marks[90:130], b"x" * 16]
    known = {"a" * 64: set(marks[:100]), "b" * 64: set(marks[40:160])}
    expected = {study: (len(who), len(who & set(new))) for study, who in known.items()}
    assert cohorts.seen(tmp_path, "patients", new) == expected
    assert {k: v[0] for k, v in cohorts.seen(tmp_path, "patients").items()} == {
        "a" * 64: 100, "b" * 64: 120,
    }  # fmt: skip
    assert cohorts.seen(tmp_path, "another") == {}
    assert cohorts.seen(tmp_path / "none", "patients") == {}


def test_accepted_units_are_a_risk_so_that_a_steward_looks(hospital):
    assert "another unit" not in rows(hospital)["Risks"]
    for units, which in (("accepted", "any column"), ("[time]", "'time'")):
        text = rows(hospital, f"{STUDY}\nunits: {units}\n")["Risks"]
        assert f"The study goes on where {which} looks like another unit at one" in text


@pytest.mark.parametrize("width", [60, 80, 96])
@pytest.mark.parametrize("letter", ["x", "\u2800", "\u3164", "\u6f22", "a\u0301\u0323\u0302\u0330"])
def test_no_word_of_a_study_stands_where_a_heading_does(hospital, width, letter):
    """A terminal goes on at its left edge; a long word could else write a heading of its own."""
    fake = f"{letter * 66}Risks{letter * 9}-{letter}None."
    study = ARMS.replace("Does the marker", f"Does the {fake} marker")
    terms = hospital.terms(study)
    assert fake in terms.plan.question
    page = approval.page(facts(hospital, study))
    lines = [*approval.in_lines(page, width), *messages.as_lines(terms, width=width)]
    for line in lines:
        places = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
        assert places <= width, line
    text = "\n".join(lines)
    assert "Risks" in text
    assert not re.search("[\u2800\u3164]|[\u0300-\u036f]{3}", text)
    assert sum(line.startswith("Risks") for line in lines) == 1


def test_a_table_that_was_checked_and_does_not_fit_is_not_told_to_be_checked(hospital):
    """A lead reads "its table"; the steward of that table reads "your table"."""
    fault = "its table does not fit the study: column 'hb' breaks the rule 'missing column'."
    said = rows(hospital, ARMS, checked=True, fit=fault)
    assert said["Your table"] == f"Your{fault[3:]}"
    assert said["Patients"].endswith("fit the study: not counted, as your table was not taken.")
    assert said["Risks"].count("yours were not counted") == 1
    assert "--check" not in said["Patients"] + said["Risks"]
    assert "--check counts them" in rows(hospital, ARMS, fit=fault)["Patients"]
