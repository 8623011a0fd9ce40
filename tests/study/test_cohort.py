"""The cohort in a study's results: the flow adds up, and small counts are in no part of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort import report
from fedcohort.report import plain_ledger
from fedcohort.study.sites.cohort import TEST, TRAINING, shown_flow
from fedcohort.study.sites.counts import hidden_rows

STUDY = """\
study: own
data: {source: t.csv, outcome: {time: time, event: event}, sites: SITES, exclude: EXCLUDE}
arms: [{method: cox}]
bounds: [centralised]
evaluate: {repeats: 1, draws: 5, metrics: [c_index]}
"""
REASONS = "[missing outcome, time not above 0]"


def table(n=240):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n).round(),
            "grade": rng.choice(list("abc"), n, p=[0.5, 0.4, 0.1]),
            "time": rng.integers(1, 500, n).astype(float),
            "event": (np.arange(n) // 3 % 2).astype(float),
            "site": np.array(["east", "north", "west"])[np.arange(n) % 3],
        }
    )
    frame.loc[[0, 3], "event"] = np.nan  # two of east
    frame.loc[1:40:3, "time"] = 0.0  # 14 of north
    return frame


def run(folder: Path, frame, sites="{column: site}", exclude=REASONS):
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "t.csv", index=False)
    (folder / "s.yaml").write_text(STUDY.replace("SITES", sites).replace("EXCLUDE", exclude))
    fc.Study.from_file(folder / "s.yaml").run(folder / "out")
    return json.loads((folder / "out" / "results.json").read_text())


@pytest.fixture(scope="module")
def natural(tmp_path_factory):
    folder = tmp_path_factory.mktemp("natural")
    return folder / "out", run(folder, table())


def test_the_flow_leads_from_rows_read_to_rows_tested_and_hides_two_that_were_left_out(natural):
    flow = natural[1]["cohort"]["flow"]
    by_stage = {}
    for row in flow:
        by_stage.setdefault(row["stage"], {})[row["site"]] = row["rows"]
    everywhere = {None, "east", "north", "west"}
    assert list(by_stage) == [
        "read",
        "excluded: missing outcome",
        "excluded: time not above 0",
        "analysed",
        TRAINING,
        TEST,
    ]
    assert all(set(rows) == everywhere for rows in by_stage.values())
    assert by_stage["read"] == {None: None, "east": None, "north": 80, "west": 80}
    assert by_stage["excluded: missing outcome"] == {
        None: None,
        "east": None,
        "north": 0,
        "west": 0,
    }
    assert by_stage["excluded: time not above 0"] == {None: 14, "east": 0, "north": 14, "west": 0}
    assert by_stage["analysed"] == {None: 224, "east": 78, "north": 66, "west": 80}
    for site in everywhere:
        assert by_stage[TRAINING][site] + by_stage[TEST][site] == by_stage["analysed"][site]


def test_natural_sites_are_described_by_all_their_rows(natural):
    cohort = natural[1]["cohort"]
    variables = {(v["name"], v["site"]): v for v in cohort["variables"]}
    assert {name for name, _ in variables} == {"time", "event", "age", "grade"}
    assert {site for _, site in variables} == {None, "east", "north", "west"}
    frame = table()
    frame = frame[frame.event.notna() & (frame.time > 0)]
    for site, rows in frame.groupby("site"):
        grade = variables["grade", site]
        assert grade["n"] == len(rows)
        assert all(n in (None, (rows.grade == g).sum()) for g, n in grade["counts"].items())
        assert abs(variables["age", site]["mean"] - rows.age.mean()) < rows.age.sem() / 3
    assert cohort["min_cell"] == 5
    hidden = [v for v in variables.values() for v in [v["n"], v["missing"], *v["counts"].values()]]
    assert cohort["suppressed"] == hidden.count(None) + 4  # two each of the flow's first stages


def test_what_left_for_the_description_stands_in_the_ledger_before_all_else(natural):
    out, results = natural
    lines = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    first = [line for line in lines if line["phase"] == "describe"]
    assert lines[:9] == first
    assert [line["site"] for line in first] == 3 * ["east", "north", "west"]
    assert [(line["step"], line["verb"]) for line in first[::3]] == [
        ("tell_cells", "gather"), ("describe_columns", "gather"), ("sum_hidden", "sum"),
    ]  # fmt: skip
    text = " ".join(" ".join(plain_ledger(out)).split())
    assert "Description of the patients, from each site: 3 replies" in text
    assert "describing the patients: Describe the site's rows" in text
    assert "Description of the patients" in report.write(out).read_text()
    assert {"time", "event"} <= {v["name"] for v in results["cohort"]["variables"]}


def test_the_check_of_proportional_hazards_stands_in_the_results(natural):
    rows = natural[1]["proportional_hazards"]
    for arm in ("cox", "centralised"):
        mine = [r for r in rows if r["arm"] == arm]
        assert [r["covariate"] for r in mine] == ["age", "grade=b", "grade=c", "global"]
        assert [r["df"] for r in mine] == [1, 1, 1, 3]
        assert all(0 <= r["p"] <= 1 and r["repeat"] == 0 for r in mine)


def test_two_runs_give_the_same_cohort_ledger_and_check(natural, tmp_path):
    out, first = natural
    second = run(tmp_path, table())
    for key in ("cohort", "proportional_hazards", "data", "scenarios", "importance", "by_centre"):
        assert first[key] == second[key]
    ledger = (tmp_path / "out" / "ledger.jsonl").read_bytes()
    assert ledger == (out / "ledger.jsonl").read_bytes()


def test_simulated_sites_are_described_by_their_training_rows(tmp_path):
    found = run(tmp_path, table().drop(columns="site"), "{split: iid, n: 3}")
    cohort = found["cohort"]
    assert {r["site"] for r in cohort["flow"]} == {None}
    rows = {s["site"]: s["rows"] for s in found["scenarios"][0]["sites"]}
    described = {v["site"]: v["n"] for v in cohort["variables"] if v["name"] == "age"}
    assert described == {None: sum(rows.values()), **rows}
    assert "simulated" in cohort["note"]


def test_events_of_all_are_shown_and_those_of_two_sites_hidden_so_that_none_follows(tmp_path):
    frame = table()
    east = frame.site == "east"
    frame.loc[east & frame.event.notna(), "event"] = 0.0
    frame.loc[[6, 9, 12], "event"] = 1.0
    found = run(tmp_path, frame)
    event = {v["site"]: v["counts"] for v in found["cohort"]["variables"] if v["name"] == "event"}
    for site in ("east", "north"):  # north, of fewest rows, so that east is not the rest
        assert event[site] == {"0": None, "1": None}
    assert None not in event["west"].values()
    assert None not in event[None].values()
    assert found["data"]["events"] == event[None]["1"]
    (sites,) = (s["sites"] for s in found["scenarios"])
    for rows in (sites, found["by_centre"][:3]):
        assert [r["events"] is None for r in rows] == [True, True, False]


def test_a_site_of_few_rows_is_hidden_at_every_stage_with_another_and_not_their_sum():
    stages = [("read", None, 160, ""), ("read", "a", 106, ""), ("read", "b", 4, "")]
    stages += [("read", "c", 50, ""), ("excluded: x", None, 6, ""), ("excluded: x", "a", 6, "")]
    stages += [("excluded: x", "b", 0, ""), ("excluded: x", "c", 0, "")]
    rows = {"a": 100, "b": 4, "c": 50}
    for stage, share in (("analysed", 1), (TRAINING, 0.75), (TEST, 0.25)):
        stages.append((stage, None, int(154 * share), ""))
        stages += [(stage, s, int(n * share), "") for s, n in rows.items()]
    few = hidden_rows(rows, 5)
    assert few == {"b", "c"}
    shown = {(r["stage"], r["site"]): r["rows"] for r in shown_flow(stages, 5, few)}
    assert {k for k, v in shown.items() if v is None} == {
        ("read", "b"), ("read", "c"), ("analysed", "b"), ("analysed", "c"),
        *((half, s) for half in (TRAINING, TEST) for s in rows),
    }  # fmt: skip


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5))
@example(counts=[1, 3, 4, 6])  # three hospitals of few patients, one without events
def test_a_sum_of_rows_left_out_leaves_each_hidden_count_all_its_possible_values(counts):
    """Whoever knows which hidden counts are of 1 to 4 tries all that fit what is shown."""
    stage = "excluded: small sites"
    stages = [(stage, None, sum(counts), "")]
    stages += [(stage, f"s{i}", n, "") for i, n in enumerate(counts)]
    shown = {r["site"]: r["rows"] for r in shown_flow(stages, 5, ())}
    at = [i for i in range(len(counts)) if shown[f"s{i}"] is None]
    if shown[None] is None or not at:
        assert at or not any(0 < n < 5 for n in counts)
        return
    left = shown[None] - sum(n for s, n in shown.items() if s and n)
    ranges = [range(1, 5) if counts[i] < 5 else range(5, left + 1) for i in at]
    fits = [x for x in itertools.product(*ranges) if sum(x) == left]
    for k, i in enumerate(at):
        assert counts[i] >= 5 or {x[k] for x in fits} == {1, 2, 3, 4}
    assert sum(counts[i] >= 5 for i in at) <= 1


def test_of_three_small_hospitals_and_one_without_events_how_many_rows_were_left_out_is_shown():
    stages = [("read", None, 114, ""), ("excluded: small sites", None, 14, "")]
    stages += [("excluded: small sites", f"s{i}", n, "") for i, n in enumerate((1, 3, 4, 6))]
    shown = {(r["stage"], r["site"]): r["rows"] for r in shown_flow(stages, 5, ())}
    assert list(shown.values()) == [114, 14, None, None, None, 6]


@given(
    sites=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 40), st.integers(0, 12)),
        min_size=2,
        max_size=4,
    )
)
def test_nothing_that_the_flow_hides_can_be_worked_out_from_it(sites):
    """Stages and sites are sums of each other: what an attacker can solve for is enumerated."""
    names = ["excluded: a", "excluded: b", TRAINING, TEST]
    stages = []

    def add(stage, counts):
        stages.append((stage, None, sum(counts), ""))
        stages.extend((stage, f"s{i}", n, "") for i, n in enumerate(counts))

    add("read", [sum(s) for s in sites])
    for j, name in enumerate(names[:2]):
        add(name, [s[j] for s in sites])
    add("analysed", [s[2] + s[3] for s in sites])
    add(TRAINING, [s[2] for s in sites])
    add(TEST, [s[3] for s in sites])
    few = hidden_rows({f"s{i}": s[2] + s[3] for i, s in enumerate(sites)}, 5)
    shown = {(r["stage"], r["site"]): r["rows"] for r in shown_flow(stages, 5, few)}
    # unknowns: the four counts of each site; every shown number is a linear equation of them
    parts = {"read": names, "analysed": names[2:]} | {name: [name] for name in names}
    unknowns = [(name, f"s{i}") for i in range(len(sites)) for name in names]

    def row(stage, where):
        names = parts.get(stage, [stage])
        return [float(name in names and where in (None, site)) for name, site in unknowns]

    told = [row(*cell) for cell, value in shown.items() if value is not None]
    known = np.array(told).reshape(-1, len(unknowns))
    rank = np.linalg.matrix_rank(known) if len(known) else 0
    public = set() if few else {TRAINING, TEST}  # which follow from the seed and the rows
    for (stage, where), value in shown.items():
        if value is None or (0 < value < 5 and stage not in public and where):
            more = np.linalg.matrix_rank(np.r_[known, [row(stage, where)]])
            assert more > rank, (stage, where, shown)
