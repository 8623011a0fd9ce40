"""What travels of a study, and what a site's table has to be."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from deployed_cases import NAMES, frames_of, run_local, tables_of, terms_of
from fedcohort.protocol import FedcohortError, VerbRefused
from fedcohort.protocol.step import summed
from fedcohort.protocol.views import kind_of, rebuild
from fedcohort.study.at_site.judging import Own, Said, Seen
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable, Unfit
from fedcohort.study.file.terms import Terms
from fedcohort.study.sites.sites import LocalSites

COX = "[{method: cox}]"
DICTIONARY = """\
variables:
  age: {type: integer, range: [18, 110]}
  grade: {type: category, levels: [a, b]}
  time: {type: time, unit: days}
  event: {type: event}
"""
FILE = """\
study: own
data: {data}
arms: [{{method: cox}}]
"""


def written(folder, data):
    (folder / "d.yaml").write_text(DICTIONARY)
    (folder / "s.yaml").write_text(FILE.format(data=data))
    return folder / "s.yaml"


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(30, 80, n), "grade": rng.choice(["a", "b"], n),
        "time": rng.integers(1, 900, n), "event": rng.integers(0, 2, n),
    })  # fmt: skip


def test_terms_are_one_canonical_text_without_where_data_are(tmp_path):
    path = written(tmp_path, "{source: secret/place.csv, dictionary: d.yaml, sites: {column: h}}")
    terms = Terms.of(path)
    text = terms.to_json()
    assert "secret" not in text
    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    again = Terms.from_json(text)
    assert list(again.dictionary.variables) == ["age", "grade", "time", "event"]
    assert (again.hash, again.outcome) == (terms.hash, fc.Survival("time", "event"))
    other = Terms.of(written(tmp_path, "{source: network, dictionary: d.yaml}"))
    assert other.hash == terms.hash
    assert Terms.of(path, seed=3).hash != terms.hash
    assert Terms.of(path, ["quorum=0.5"]).plan.quorum == 0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t[:-1], "no JSON"),
        (lambda t: " " + t, "canonical"),
        (lambda t: t.replace('"format":1', '"format":2'), "another format"),
        (lambda t: t.replace('"format":1', '"format":1,"more":0'), "exactly"),
        (lambda t: t.replace('"method":"cox"', '"method":"coxx"'), "coxx"),
        (lambda t: t.replace('"seed"', '"sead"').replace('"study"', '"stady"'), "stady|study"),
        (lambda t: t.replace("18,110", "NaN,110"), "no JSON"),
    ],
)
def test_a_text_that_is_no_study_is_refused_on_one_line(tmp_path, change, said):
    text = Terms.of(written(tmp_path, "{dictionary: d.yaml}")).to_json()
    with pytest.raises(FedcohortError, match=said) as error:
        Terms.from_json(change(text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        ("{source: network}", "", "'outcome' is missing|'dictionary' is missing"),
        ("{outcome: {time: time, event: event}}", "", "'dictionary' is missing"),
        ("{dictionary: none.yaml}", "", "no dictionary file"),
        (
            "{dictionary: d.yaml}",
            "privacy: {secure_aggregation: maybe}",
            "expected auto, true or false",
        ),
        ("{dictionary: d.yaml, surce: x}", "", "unknown key 'surce'"),
    ],
)
def test_a_file_that_a_network_cannot_run_is_refused_before_anything(tmp_path, data, more, said):
    path = written(tmp_path, data)
    path.write_text(path.read_text() + more)
    with pytest.raises(FedcohortError, match=said) as error:
        Terms.of(path)
    assert "\n" not in str(error.value)
    assert "s.yaml" in str(error.value) or "none.yaml" in str(error.value)


def test_a_private_study_needs_limits_in_the_dictionary_before_it_is_sent(tmp_path):
    path = written(tmp_path, "{dictionary: d.yaml}")
    arm = "{method: deepcox, strategy: exact}"
    path.write_text(
        path.read_text().replace("{method: cox}", arm) + "privacy: {dp: {epsilon: 3}}\n"
    )
    sent = Terms.of(path).to_json()
    (tmp_path / "d.yaml").write_text(DICTIONARY.replace(", range: [18, 110]", ""))
    with pytest.raises(
        FedcohortError, match="column 'age' has no range in the dictionary"
    ) as error:
        Terms.of(path)
    assert "\n" not in str(error.value)
    with pytest.raises(FedcohortError, match="arm 'exact': column 'age' has no range"):
        Terms.from_json(sent.replace('"range":[18,110],', "").replace(',"range":[18,110]', ""))


def test_a_study_of_a_network_says_where_it_can_be_run(tmp_path):
    path = written(tmp_path, "{source: network, dictionary: d.yaml}")
    with pytest.raises(fc.StudyError, match="--network"):
        fc.Study.from_file(path)


# a site's table -----------------------------------------------------------------------


def spoilt(column, value, rows=1):
    frame = table().astype(object)
    frame.loc[frame.index[:rows], column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (table().drop(columns="age"), ("age", "missing column")),
        (spoilt("grade", "PLANTED"), ("grade", "levels")),
        (spoilt("age", "PLANTED"), ("age", "number")),
        (spoilt("age", 7), ("age", "range")),
        (spoilt("time", -7), ("time", "time")),
        (spoilt("event", 7), ("event", "event")),
        (spoilt("event", None), ("event", "missing")),
        (spoilt("age", [["PLANTED"]]), ("age", "number")),
        (table(12), ("", "rows")),
        (table().iloc[:0], ("", "rows")),
    ],
)
def test_what_does_not_fit_is_named_by_column_and_rule_alone(tmp_path, frame, fault):
    terms = Terms.of(written(tmp_path, "{dictionary: d.yaml}"))
    with pytest.raises(Unfit) as error:
        SiteTable.of(terms, "oslo", frame)
    assert fault in error.value.faults
    text = str(error.value)
    assert "oslo" in text and "\n" not in text
    assert not any(word in text for word in ("PLANTED", "7", "80", "12"))


@pytest.mark.parametrize(
    ("needs", "rows", "fault"),
    [("min_rows: 200", 120, "rows"), ("min_events: 5", 120, "min_events")],
)
def test_a_site_says_itself_that_it_is_below_the_study_s_limits_and_no_count(
    tmp_path, needs, rows, fault
):
    text = f"{{dictionary: d.yaml, sites: {{column: centre, {needs}}}}}"
    terms = Terms.from_json(Terms.of(written(tmp_path, text)).to_json())
    frame = table(rows).assign(event=lambda f: 1.0 * (f.index < 3))
    with pytest.raises(Unfit) as error:
        SiteTable.of(terms, "oslo", frame)
    assert error.value.faults == [("", fault)]
    assert "3" not in str(error.value)


def test_over_a_network_no_rows_are_joined_and_no_site_is_left_out_by_name(tmp_path):
    with pytest.raises(fc.StudyError, match="no rows can be joined"):
        Terms.of(written(tmp_path, "{dictionary: d.yaml, sites: {small: join}}"))
    with pytest.raises(fc.StudyError, match="natural sites of a table"):
        Terms.of(written(tmp_path, "{dictionary: d.yaml, exclude: [{centre: oslo}]}"))


def test_columns_that_the_study_does_not_know_are_neither_kept_nor_named(tmp_path):
    terms = Terms.of(written(tmp_path, "{dictionary: d.yaml}"))
    frame = table().assign(**{"Kari Nordmann": 1})
    assert "Kari Nordmann" not in SiteTable.of(terms, "oslo", frame).frame.columns
    with pytest.raises(Unfit) as error:
        SiteTable.of(terms, "oslo", frame.drop(columns="age"))
    assert "Kari" not in str(error.value)


def test_a_site_without_events_may_take_part(tmp_path):
    terms = Terms.of(written(tmp_path, "{dictionary: d.yaml}"))
    without = SiteTable.of(terms, "b", table(seed=1).assign(event=0))
    tables = [SiteTable.of(terms, "a", table()), without]
    found = run_local(terms, tables, tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    own = next(a for a in found["arms"] if a["site"] == "b")
    assert own["metrics"]["c_index_own"] is None


def test_blind_rows_are_drawn_at_the_site_and_do_not_depend_on_the_order(tmp_path):
    terms = Terms.of(written(tmp_path, "{dictionary: d.yaml}"))
    frame = table(103)
    one = SiteTable.of(terms, "a", frame)
    two = SiteTable.of(terms, "a", frame.sample(frac=1, random_state=1))
    for repeat in (0, 1):
        for ours, theirs in zip(one.halves(repeat), two.halves(repeat), strict=True):
            pd.testing.assert_frame_equal(ours, theirs)
    train, blind = one.halves(0)
    assert abs(len(blind) - 0.25 * 103) < 1 and len(train) + len(blind) == 103
    assert (one.blind(0) != one.blind(1)).any()
    assert (one.blind(0) != SiteTable.of(terms, "b", frame).blind(0)).any()


# sessions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session",
    ["", "fit", "fit-r0000-a09", "fit-r0009-a01", "fit-r0000-a00", "alone-r0000-a01",
     "judge-r0000-a00", "fit-r0000-a01x", "../fit-r0000-a01", "tune-r0000-a01"],
)  # fmt: skip
def test_a_session_that_the_study_does_not_have_is_refused(tmp_path, session):
    terms = terms_of(tmp_path, "gbsg2", COX)
    (one, *_) = tables_of(terms, frames_of("gbsg2"))
    with pytest.raises(VerbRefused, match="no session"):
        open_session(terms, one, session, 5)


def test_a_session_knows_no_steps_but_its_own(tmp_path):
    from fedcohort.metrics.sums.predictions import count_leavers
    from fedcohort.protocol.ledger import Ledger

    terms = terms_of(tmp_path, "gbsg2", COX)
    sites = LocalSites(terms, tables_of(terms, frames_of("gbsg2")))

    def fed(session):
        return sites.federation(session, quorum=1, ledger=Ledger(), journal=None, observer=None)

    with pytest.raises(VerbRefused, match="count_leavers"):
        fed("fit-r0000-a01").sum(count_leavers, grid=np.ones(1))
    from fedcohort.data.timegrid import death_times

    with pytest.raises(VerbRefused, match="death_times"):
        fed("judge-r0000-a01").through(Seen("blind")).gather(death_times)
    assert sites.names == tuple(sorted(NAMES)) and summed


def test_views_of_a_judge_are_rebuilt_from_their_text():
    for view in (Seen("train"), Seen("all"), Own((1.0, 2.5)), Said("QUJD", (0.1,), "risk")):
        assert rebuild(kind_of(view), view.spec) == view


def test_a_text_that_holds_no_model_is_an_error_of_one_line(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", COX)
    (one, *_) = tables_of(terms, frames_of("gbsg2"))
    host = open_session(terms, one, "judge-r0000-a01", 5)
    with pytest.raises(FedcohortError):
        host.data_through(Said("QUJD"))
