"""The page says which protections were on, from what the ledger tells, and what privacy cost."""

import json
import xml.etree.ElementTree as ET

import pytest

from fedcohort.protocol import DataError
from fedcohort.report import plain_ledger, write
from report import depth, synthetic


def page_of(folder):
    return ET.fromstring(write(folder).read_text("utf-8").removeprefix("<!DOCTYPE html>\n"))


def section(root, name):
    return next((s for s in root.iter("section") if s.get("id") == name), None)


def text_of(node):
    return " ".join(" ".join(node.itertext()).split())


def changed(folder, change, **results):
    """Change each line of the ledger, and keys of the results."""
    path = folder / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line |= change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = folder / "results.json"
    content = json.loads(path.read_text()) | results
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture
def run(tmp_path):
    arms = ["isolated", "fedavg", "cox"]
    return synthetic.make(
        tmp_path, scenarios=["iid"], arms=arms, repeats=2, n_sites=3, change=depth.NONE
    )


def row(root, name):
    rows = section(root, "protections").iter("tr")
    return next(text_of(tr) for tr in rows if text_of(tr).startswith(name))


def masked(line):
    return {"masked": line["verb"] == "sum"}


def test_a_simulation_says_that_its_sums_were_not_masked_and_why(run):
    root = page_of(run)
    assert "Masked sums off" in row(root, "Masked sums")
    assert "not masked by cryptography" in text_of(section(root, "left"))


def test_masked_sums_are_said_to_be_masked_only_if_every_reply_was(run):
    root = page_of(changed(run, masked))
    assert "Masked sums on 100 % of the replies to sums" in row(root, "Masked sums")
    assert "Every total was formed under masks" in text_of(section(root, "left"))
    words = " ".join(" ".join(plain_ledger(run)).split())
    assert "only the sum over sites" not in words
    assert "masked, so that nobody can see more than the sum over sites" in words

    def last_call_bare(line):
        return {"masked": line["verb"] == "sum" and line["repeat"] == 0}

    root = page_of(changed(run, last_call_bare))
    assert "Masked sums in part 50 %" in row(root, "Masked sums")
    assert "Every total" not in text_of(section(root, "left"))


def test_there_is_no_page_of_a_budget_where_no_noise_was_added(run):
    root = page_of(run)
    assert section(root, "budget") is None
    assert "Differential privacy off" in row(root, "Differential privacy")


def test_the_budget_is_what_all_fits_spent_together(run):
    results = json.loads((run / "results.json").read_text())
    rows = [r | {"epsilon": 1.5 if r["arm"] == "cox" else None} for r in results["arms"]]
    n = sum(r["epsilon"] is not None for r in rows)
    assert n > 1

    def noisy(line):
        return {"mechanism": "discrete_gaussian"} if line["arm"] == "cox" else {}

    dp = {"epsilon": 1.5, "delta": 1e-5, "unit": "record", "clip": 1.0}
    release = {"step": "pull", "mechanism": "gaussian", "noise": 4.25, "count": 12, "sampling": 1.0}
    changed(
        run,
        noisy,
        arms=rows,
        privacy={"secure_aggregation": "auto", "min_cell": 5, "dp": dp},
        releases={"cox": [release]},
        claims={"cox": "ε 3, by eq. 7"},
    )
    root = page_of(run)
    told = text_of(section(root, "budget"))
    assert f"1.50 {n} {1.5 * n:.3g}" in told or f"1.5 {n} {1.5 * n:.3g}" in told
    assert "ε 3, by eq. 7" in told
    assert "4.25" in told and "12" in told
    assert "Do not publish this run" in told
    assert f"All fits with noise together are within ε {1.5 * n:.3g}" in told
    bare = told.partition("Without noise, and not within this ε: ")[2].partition(".")[0]
    assert bare == "Each hospital alone, Model averaging"
    assert "Differential privacy in part" in row(root, "Differential privacy")
    assert "with discrete gaussian noise" in text_of(section(root, "left"))
    assert "with discrete_gaussian noise" in " ".join(" ".join(plain_ledger(run)).split())


def found(audit, arm, verdict, alarm):
    return {"audit": audit, "arm": arm, "question": "?", "lines": [], "verdict": verdict,
            "alarm": alarm, "settings": {}}  # fmt: skip


def test_what_the_audits_of_this_run_found_is_told_with_its_alarm(run):
    audits = {
        "schema": 1,
        "membership": found("membership", "fedavg", "It finds <12> patients & more.", True),
        "linkage": found("linkage", "", "No interval is of few.", False),
    }
    (run / "audit.json").write_text(json.dumps(audits))
    root = page_of(run)
    assert "Tested on this run" in text_of(section(root, "protections"))
    told = row(root, "Who was trained on")
    assert told.endswith("It finds <12> patients & more. yes")
    assert row(root, "Patients from curves").endswith("the run No interval is of few. no")
    assert "ε from below" not in text_of(section(root, "protections"))


def test_a_run_that_nobody_attacked_says_so(run):
    told = text_of(section(page_of(run), "protections"))
    assert "No attack was tried on this run" in told
    assert "Tested on this run" not in told


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_file_of_audits_is_named_on_one_line(run, text):
    (run / "audit.json").write_text(text)
    with pytest.raises(DataError, match=r"audit\.json: this .*; move it away\.$"):
        write(run)


def test_what_the_study_says_of_its_purpose_and_legal_basis_stands_in_the_report(run):
    assert "In the study's words" not in text_of(section(page_of(run), "protections"))
    said = {"purpose": "A <b>score</b>", "ethics": "EK 2026-114", "legal_basis": "Art. 9(2)(j)"}
    root = page_of(changed(run, lambda line: {}, governance=said))
    text = text_of(section(root, "protections"))
    assert "Purpose A <b>score</b>" in text
    assert "Ethics number EK 2026-114" in text
    methods = text_of(section(root, "paper"))
    assert "Ethics number: EK 2026-114. Legal basis: Art. 9(2)(j)." in methods
    assert "Ethics number: EK 2026-114; legal basis: Art. 9(2)(j)" in text_of(
        section(root, "tripod")
    )
