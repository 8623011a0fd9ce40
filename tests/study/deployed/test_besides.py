"""How sites differ, and feedback to each, over sites that hold their own rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from deployed_cases import results_of, run_local
from fedcohort.network.state.policy import Asked, Policy
from fedcohort.network.steward import details as messages
from fedcohort.protocol import Refused, SiteUnavailable, VerbRefused
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.report import page
from fedcohort.report import run as report_run
from fedcohort.study.at_site.sessions import Session, open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.study import Study

NAMES = ("s0", "s1", "s2", "s3")
DICTIONARY = {
    "variables": {
        "u": {"type": "number"}, "v": {"type": "number"}, "w": {"type": "number"},
        "c": {"type": "category", "levels": ["a", "b", "d"]}, "y": {"type": "binary"},
    },
}  # fmt: skip


def table(*, rare: tuple[str, ...] = (), names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    parts: list[pd.DataFrame] = []
    for i, name in enumerate(names):
        n = 120 + 12 * i
        x = rng.normal(0.1 * i, 1, (n, 3))
        turned = -1.0 if name == "s2" else 1.0
        y = (rng.random(n) < 1 / (1 + np.exp(-turned * x @ [1.0, 0.5, 0.2]))).astype(int)
        y = (np.arange(n) < 2).astype(int) if name in rare else y
        frame = pd.DataFrame(x.round(2), columns=list("uvw")).assign(y=y, site=name)
        parts.append(frame.assign(c=rng.choice(["a", "b", "d"], n, p=[0.5, 0.3, 0.2])))
    frame = pd.concat(parts, ignore_index=True)
    frame["u"] += 20.0 * (frame.site == "s1")
    return frame


def content(**more: Any) -> dict[str, Any]:
    return {
        "study": "apart", "task": "classification",
        "data": {
            "source": "t.csv", "dictionary": "d.yaml", "outcome": {"y": "y"},
            "sites": {"column": "site"},
        },
        "arms": [{"method": "logistic"}], "bounds": [],
        "evaluate": {"repeats": 1, "draws": 20}, **more,
    }  # fmt: skip


def files(folder: Any, frame: pd.DataFrame, **more: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "t.csv", index=False)
    numeric = more.get("task") == "regression"
    known = {**DICTIONARY["variables"], **({"y": {"type": "number"}} if numeric else {})}
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": known}, sort_keys=False))
    (folder / "study.yaml").write_text(yaml.safe_dump(content(**more), sort_keys=False))
    return folder / "study.yaml"


def deployed(folder: Any, frame: pd.DataFrame | None = None, **more: Any) -> tuple[Any, Any]:
    """Return the terms, and the tables of sites, of a study whose rows are at their sites."""
    frame = table() if frame is None else frame
    terms = Terms.of(files(folder, frame, **more))
    parts = frame.groupby("site")
    tables = [SiteTable.of(terms, str(s), f.drop(columns="site")) for s, f in parts]
    return terms, tables


def run(folder: Any, frame: pd.DataFrame | None = None, **more: Any) -> dict[str, Any]:
    options = {k: more.pop(k) for k in ("absent", "heard") if k in more}
    terms, tables = deployed(folder, frame, **more)
    run_local(terms, tables, folder / "net", **options)
    return results_of(folder / "net")


def laptop(folder: Any, frame: pd.DataFrame, **more: Any) -> dict[str, Any]:
    Study.from_file(str(files(folder, frame, **more))).run(folder / "laptop")
    return results_of(folder / "laptop")


def ledger(folder: Any, phase: str) -> list[dict[str, Any]]:
    lines = (folder / "net" / "ledger.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["phase"] == phase]


# how sites differ -----------------------------------------------------------------------


def test_differences_over_a_network_are_those_of_the_same_rows_on_a_laptop(tmp_path):
    net = run(tmp_path, shift=True)["shift"]
    here = laptop(tmp_path, table(), shift=True)["shift"]
    assert net == here
    assert here["n_clear"] > 0
    assert [k["kind"] for k in here["kinds"]] == ["feature", "label", "conditional", "gradient"]
    html = page.render(report_run.read(tmp_path / "net"))
    assert "How different are the hospitals?" in html
    assert f"{here['n_clear']} of {here['compared']} comparisons show a clear difference" in html
    assert {(x["step"], x["verb"]) for x in ledger(tmp_path, "shift")} == {
        ("describe_columns", "gather"), ("count_cells", "gather"), ("pull_here", "gather"),
    }  # fmt: skip


def test_where_a_site_hides_its_events_no_difference_of_outcomes_is_told(tmp_path):
    found = run(tmp_path, table(rare=("s3",)), shift=True)["shift"]
    assert [k["kind"] for k in found["kinds"]] == ["feature"]
    assert found["outcome_hidden"] == list(NAMES)


def test_of_a_number_nothing_is_hidden_as_counts_are(tmp_path):
    frame = table()
    frame["y"] = (frame["u"] + frame["v"]).round(2)
    more = {
        "task": "regression", "arms": [{"method": "ridge"}],
        "data": {**content()["data"], "outcome": {"y": "y", "type": "continuous"}},
    }  # fmt: skip
    net = run(tmp_path, frame, shift=True, **more)["shift"]
    here = laptop(tmp_path, frame, shift=True, **more)["shift"]
    assert net == here
    assert "label" in [k["kind"] for k in net["kinds"]]


def test_one_site_alone_is_compared_with_none_and_the_study_goes_on(tmp_path):
    frame = table()
    found = run(tmp_path, frame[frame.site == "s1"], shift=True, feedback=True)
    assert "a shift needs two" in found["shift"]["note"]
    assert "compares each site with at least two others" in found["feedback"]["note"]
    assert found["arms"][0]["status"] == "done"
    html = page.render(report_run.read(tmp_path / "net"))
    assert "Nothing was compared: 1 sites" in html
    assert "There is no feedback: method" in html


def test_a_site_that_is_away_is_named_as_away(tmp_path):
    def absent(session: str, call: int, site: str) -> bool:
        return site == "s3" and session in ("shift", "feedback")

    found = run(tmp_path, shift=True, feedback=True, quorum=0.5, absent=absent)
    assert found["shift"]["sites"] == ["s0", "s1", "s2"]
    assert found["shift"]["left_out"] == {"s3": "it did not answer"}
    assert found["feedback"]["left_out"] == {"s3": "it did not answer"}
    html = page.render(report_run.read(tmp_path / "net"))
    assert "Not compared, as they were away: s3." in html
    assert "Given to s0, s1 and s2." in html


# feedback -------------------------------------------------------------------------------


def test_what_is_found_of_a_site_reaches_that_site_alone_and_is_what_a_laptop_says(tmp_path):
    heard: dict[str, list[str]] = {}

    def hear(site: str, lines: Any) -> None:
        heard[site] = list(lines)

    net = run(tmp_path, feedback=True, heard=hear)
    here = laptop(tmp_path, table(), feedback=True)["feedback"]
    assert {(r["site"], r["rule"], r["column"]) for r in here["remarks"]} >= {("s1", "shift", "u")}
    for site in NAMES:
        own = [r["line"].removeprefix(f"{site}: ") for r in here["remarks"] if r["site"] == site]
        assert heard[site] == (own or ["No anomaly compared with the other sites."])
    found = net["feedback"]
    assert found == {
        "sites": list(NAMES), "few": [], "remarks": [], "kept": True, "left_out": {}, "note": "",
    }  # fmt: skip
    for path in (tmp_path / "net").rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert b"lies about" not in text, path
            assert b"flipped?" not in text, path
    html = page.render(report_run.read(tmp_path / "net"))
    assert "Given to s0, s1, s2 and s3." in html
    assert "state/feedback" in html


def test_the_lead_is_sent_of_a_site_whether_it_had_rows_enough_and_no_more(tmp_path):
    run(tmp_path, feedback=True)
    lines = ledger(tmp_path, "feedback")
    assert {(x["step"], x["verb"]) for x in lines} == {
        ("vote_scale", "sum"), ("vote_place", "sum"), ("vote", "sum"),
        ("keep_findings", "gather"),
    }  # fmt: skip
    for one in (x for x in lines if x["step"] == "keep_findings"):
        assert list(one["fields"]) == ["few"]
        assert one["fields"]["few"]["shape"] == []


@pytest.mark.parametrize("gone", [2, 4])
def test_where_a_site_leaves_between_two_calls_no_votes_of_the_others_are_told(tmp_path, gone):
    """With those of all, which the run is told when it goes on, they would tell that site's own."""
    terms, tables = deployed(tmp_path, feedback=True, quorum=0.5)
    told: list[int] = []

    def absent(session: str, call: int, site: str) -> bool:
        return site == "s3" and session == "feedback" and call == gone

    def tell(event: Any) -> None:
        if event.call is not None and event.session == "feedback" and event.call.up:
            told.append(event.call.call)

    with pytest.raises(SiteUnavailable, match="s3 left during the fit"):
        run_local(terms, tables, tmp_path / "net", absent=absent, tell=tell)
    assert told == list(range(gone))
    run_local(terms, tables, tmp_path / "net", resume=True)
    assert results_of(tmp_path / "net")["feedback"]["sites"] == list(NAMES)


# what a site agrees to ------------------------------------------------------------------


def host(folder: Any, session: str, **more: Any) -> Any:
    terms, tables = deployed(folder, **more)
    return open_session(terms, tables[0], session, 5)


@pytest.mark.parametrize("kind", ["feedback", "shift"])
def test_a_study_that_does_not_ask_has_no_such_session(tmp_path, kind):
    terms, _ = deployed(tmp_path)
    with pytest.raises(VerbRefused, match="no session of that name"):
        Session.parse(kind, terms)


def test_a_site_of_a_network_does_not_tell_its_findings(tmp_path):
    made = host(tmp_path, "feedback", feedback=True)
    assert {"vote", "keep_findings"} <= set(made._steps)
    with pytest.raises(VerbRefused, match="does not know the step 'compare'"):
        made.step("compare")


@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("count_cells", {"label": 1}),
        ("count_cells", {"min_cell": 1}),
        ("pull_here", {"other": 3}),
        ("pull_here", {"law": "number"}),
    ],
)
def test_the_outcome_that_is_compared_is_the_studys(tmp_path, step, change):
    made = host(tmp_path, "shift", shift=True)
    asked = made.step(step)
    call = Call(0, asked, asked.verb, None, Arguments({}, ()))
    with pytest.raises(Refused, match="more than the approved study"):
        made._consent(call, change)


def test_a_steward_reads_what_is_asked_and_may_refuse_it_by_name(tmp_path):
    terms, _ = deployed(tmp_path, shift=True, feedback=True)
    text = " ".join(" ".join(messages.as_lines(terms)).split())
    assert "How different sites are" in text
    assert "(feedback). What leaves: As sums over all sites: location" in text
    assert "Each site keeps its findings" in text
    assert "keep findings (few): Compare the site's rows" in text
    assert "is told to nobody else" in text
    asked = Asked.of(terms.plan, terms.dictionary, terms.outcome)
    allowed = Policy(("logistic", "shift"), None, submitters=None)
    with pytest.raises(Refused, match="asks for method 'feedback'"):
        allowed.check(asked, "lead")
    Policy(("logistic", "shift", "feedback"), None, submitters=None).check(asked, "lead")


def test_cells_between_other_edges_of_the_same_rows_are_refused(tmp_path):
    made = host(tmp_path, "shift", shift=True)
    step = made.step("count_cells")
    call = Call(0, step, step.verb, None, Arguments({}, ()))
    asked = {"edges": np.array([[0.0, 1.0]]), "min_cell": 5}
    made._consent(call, asked)
    made._consent(call, {k: np.copy(v) if k == "edges" else v for k, v in asked.items()})
    with pytest.raises(Refused, match="was asked before with other arguments"):
        made._consent(call, {**asked, "edges": np.array([[0.0, 2.0]])})
