"""Studies by sites that answer masked sums alone: their own folds differ, and nothing else may."""

from __future__ import annotations

import contextlib
import json

import pytest

from deployed_cases import (
    MaskedSites,
    files_of,
    frames_of,
    results_of,
    run_local,
    tables_of,
    terms_of,
)
from fedcohort.network.state.replay_guard import OnDisk
from fedcohort.protocol import SiteUnavailable
from fedcohort.study.run.runner import run_over as run
from loopback import Fault
from wired import Killed, meta_of


@pytest.mark.parametrize(
    ("sample", "task", "arms", "folded"),
    [
        ("diabetes", "regression", "[{method: lasso, folds: centre}]", "fold_products"),
        ("gbsg2", "survival", "[{method: cox, penalty: auto}]", "fold_likelihood"),
    ],
)
def test_every_sum_is_masked_where_sites_have_folds_of_their_own(
    tmp_path, sample, task, arms, folded
):
    terms = terms_of(tmp_path, sample, arms, task=task)
    tables = tables_of(terms, frames_of(sample))
    run(terms, MaskedSites(terms, tables, tmp_path), tmp_path / "out", debug=True)
    lines = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    sums = [line for line in map(json.loads, lines) if line.get("verb") == "sum"]
    assert all(line["masked"] for line in sums)
    assert folded in {line["step"] for line in sums}


#: Who is killed: a site before it answers, one after, and the coordinator while it asks.
PARTIES = ("vardø", "oslo", "coordinator")


@pytest.mark.parametrize("all_of_them", [False, True])
def test_whoever_is_killed_at_any_question_the_run_is_resumed_to_the_files_of_one_without_it(
    tmp_path, all_of_them
):
    """Questions: of every kind of session, each step and each stage of a masked sum."""
    names = ("bergen", "oslo", "tromsø", "vardø")
    tune = "{by: row-kfold, grid: {l2: [0.01]}}"
    more = {"bounds": "[]", "task": "classification", "final": "false", "tune": tune}
    terms = terms_of(tmp_path, "breast_cancer", "[{method: logistic, scale: standard}]", **more)
    tables = tables_of(terms, frames_of("breast_cancer", names=names))
    run_local(terms, tables, tmp_path / "want")
    due: dict[str, list[str]] = {}
    away: list[str] = []
    killed = 0

    def fault(site, request):
        nonlocal killed
        asked = meta_of(request)
        session = str(asked["session"]).partition("-")[0]
        question = f"{session} {asked.get('step') or asked['kind']}"
        one = PARTIES[len(due) % 3]
        waiting = due.setdefault(question, list(PARTIES) if all_of_them else [one])
        if not away and waiting and waiting[0] in (site, "coordinator"):
            who = waiting.pop(0)
            killed += 1
            if who == "coordinator":
                raise Killed
            away.append(site)
            return Fault.DOWN if site == PARTIES[0] else Fault.REPLY_LOST
        return Fault.DOWN if site in away else None

    def once(site):
        return lambda name: OnDisk(tmp_path / site, terms.hash, "table", name)

    sites = MaskedSites(terms, tables, tmp_path, once, fault, timeout=0.02)
    out = tmp_path / "out"
    attempts = 0
    while not (out / "results.json").exists():
        for site in away:  # what it held in memory is gone
            sites.restart(site)
        away.clear()
        with contextlib.suppress(SiteUnavailable, Killed):
            run(terms, sites, out, resume=attempts > 0, debug=True)
        attempts += 1
        assert attempts <= killed + 1
    assert {q.split()[0] for q in due} == {"count", "describe", "tune", "score", "fit", "judge"}
    assert killed > 40
    assert results_of(out)["missing"] == []
    found, want = files_of(out), files_of(tmp_path / "want")
    found["ledger.jsonl"] = found["ledger.jsonl"].replace(b'"masked":true', b'"masked":false')
    assert found == want
