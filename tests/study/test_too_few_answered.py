"""What a study does where too few sites answered: it goes on later, or says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from deployed_cases import files_of, frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import SiteUnavailable
from fedcohort.protocol.errors import QuorumLost
from fedcohort.study.run import local_fits, tune
from fedcohort.study.study import Study
from turned import frames

ONLY_TWO = (
    "only bergen, oslo answered; the sum over them and the user's model could tell another site's"
)


def study(folder: Any, **more: Any) -> Study:
    for name, frame in frames({"a": 80, "b": 90, "c": 100, "d": 90}, ()).items():
        frame[["a", "b", "yes"]].to_csv(folder / f"{name}.csv", index=False)
    (folder / "study.yaml").write_text(yaml.safe_dump({
        "study": "away", "task": "classification", "seed": 1,
        "data": {"source": "{site}.csv", "outcome": {"y": "yes"}},
        "arms": [{"method": "personal", "user": "a", "rounds": 6}],
        "evaluate": {"repeats": 2, "draws": 2}, **more,
    }))  # fmt: skip
    return Study.from_file(str(folder / "study.yaml"))


def statuses(folder: Any) -> list[str]:
    return [a["status"] for a in results_of(folder)["arms"] if a["site"] is None]


# sites that hold their own rows ---------------------------------------------------------


@pytest.mark.parametrize("way", ["finetune", "ditto", "fedper"])
@pytest.mark.parametrize("last", [0, 1])
def test_a_round_that_only_two_answered_ends_a_run_which_resumes_as_if_it_had_not(
    tmp_path, way, last
):
    """The fit begins anew, and its states at the sites with it; what is done is not done again."""
    arm = f"[{{method: personal, user: oslo, way: {way}, rounds: 3, own_features: [age]}}]"
    arm = arm if way == "fedper" else arm.replace(", own_features: [age]", "")
    terms = terms_of(tmp_path, "gbsg2", arm, bounds="[]", quorum=0.6, repeats=2)
    tables = tables_of(terms, frames_of("gbsg2"))
    asked: list[tuple[str, str]] = []
    run_local(
        terms, tables, tmp_path / "whole",
        tell=lambda e: asked.append((e.session, e.call.step)) if e.call else None,
    )  # fmt: skip
    steps = [step for session, step in asked if session == "fit-r0001-a00"]
    rounds = [i for i, step in enumerate(steps) if step.startswith("train_")]
    gone = rounds[-1 if last else 0]

    def absent(session: str, call: int, site: str) -> bool:
        return session == "fit-r0001-a00" and call == gone and site == "tromsø"

    with pytest.raises(SiteUnavailable, match=ONLY_TWO):
        run_local(terms, tables, tmp_path / "out", absent=absent)
    again: list[str] = []
    run_local(terms, tables, tmp_path / "out", resume=True, tell=lambda e: again.append(e.session))
    assert not [s for s in again if s.startswith("fit-r0000")]
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


# sites of one computer ------------------------------------------------------------------


def test_sites_that_are_drawn_away_are_not_to_be_brought_back(tmp_path):
    """They are away in every run: a study that says `--resume` where nothing can be misleads."""
    study(tmp_path, quorum=0.5, availability={"away": 0.4, "wait": 0}).run(tmp_path / "out")
    failed = [s for s in statuses(tmp_path / "out") if s != "done"]
    assert failed
    for status in failed:
        assert "answered; the sum over them and the user's model" in status
        assert "--resume" not in status
        assert "lower 'away', list sites in 'always', or raise 'quorum'" in status


def test_where_a_sum_waited_in_vain_longer_waiting_is_named_as_a_cure(tmp_path):
    absences = {"away": 0.4, "wait": 1}
    study(tmp_path, arms=[{"method": "logistic"}], quorum=0.5, availability=absences).run(
        tmp_path / "out"
    )
    failed = [s for s in statuses(tmp_path / "out") if s != "done"]
    assert failed
    for status in failed:
        assert "left during the fit" in status
        assert "in every run alike: raise 'wait', lower 'away'" in status


@pytest.mark.parametrize(("kind", "anew"), [(QuorumLost, False), (SiteUnavailable, True)])
def test_sites_of_other_processes_that_did_not_answer_end_a_run_which_goes_on(
    tmp_path, monkeypatch, kind, anew
):
    fit, journals, seen = local_fits.fit_once, [], []

    def lost(problem: Any, *given: Any, journal: Any, **more: Any) -> Any:
        journals.append(journal)
        seen.append(journal.exists())
        if len(journals) == 2:
            journal.write_bytes(b"")
            raise kind("2 of 4 sites answered train_here. Bring them back and --resume.")
        return fit(replace(problem, runtime="local"), *given, journal=journal, **more)

    monkeypatch.setattr(local_fits, "fit_once", lost)
    made = study(tmp_path)
    with pytest.raises(SiteUnavailable, match="Bring them back"):
        made.run(tmp_path / "out", runtime="flower-sim", workers=1)
    made.run(tmp_path / "out", runtime="flower-sim", workers=1, resume=True)
    assert statuses(tmp_path / "out") == ["done", "done"]
    assert len(journals) == 4  # the first piece is not done again; the last is the final fit
    assert seen[2] != anew  # a fit whose program could not go on has no journal left to replay


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("more", [{}, {"quorum": 0.5, "availability": {"away": 0.1}}], ids=str)
def test_a_rate_that_is_too_high_is_a_result_on_each_runtime_and_no_fault_of_absences(
    tmp_path, monkeypatch, more
):
    """Replies beyond numbers are refused, and would be in each run: none could ever end."""
    runtime = "local" if more else "flower-sim"
    for module in (local_fits, tune):
        fit = module.fit_once
        monkeypatch.setattr(
            module, "fit_once", lambda p, *a, f=fit, **k: f(replace(p, runtime="local"), *a, **k)
        )
    arm = {"method": "personal", "user": "a", "rounds": 6}
    grid = {"grid": {"learning_rate": [0.1, 1e300]}}
    tuned = {} if more else {"tune": {**grid, "by": "row-kfold"}}
    study(tmp_path, arms=[{**arm, "learning_rate": 1e300}], **more).run(
        tmp_path / "out", runtime=runtime, workers=1
    )
    for status in statuses(tmp_path / "out"):
        assert "numbers that are not finite in field 'theta'" in status
        assert "Sites are away by the study's 'availability'" not in status
    if tuned:
        study(tmp_path, arms=[arm], **tuned).run(tmp_path / "tuned", runtime=runtime, workers=1)
        found = results_of(tmp_path / "tuned")
        assert statuses(tmp_path / "tuned") == ["done", "done"]
        assert all(t["chosen"] == {"learning_rate": 0.1} for t in found["tuning"])


def test_in_tuning_too(tmp_path, monkeypatch):
    fit, asked = tune.fit_once, []

    def lost(problem: Any, *given: Any, **more: Any) -> Any:
        asked.append(problem.runtime)
        if len(asked) == 3:
            raise QuorumLost("2 of 4 sites answered train_here. Bring them back and --resume.")
        return fit(replace(problem, runtime="local"), *given, **more)

    monkeypatch.setattr(tune, "fit_once", lost)
    monkeypatch.setattr(
        local_fits, "fit_once", lambda p, *a, **k: fit(replace(p, runtime="local"), *a, **k)
    )
    made = study(tmp_path, tune={"grid": {"l2": [0.001, 0.1]}})
    with pytest.raises(SiteUnavailable, match="Bring them back"):
        made.run(tmp_path / "out", runtime="flower-sim", workers=1)
    made.run(tmp_path / "out", runtime="flower-sim", workers=1, resume=True)
    found = results_of(tmp_path / "out")
    assert all(t["score"] is not None for t in found["tuning"][0]["tried"])
