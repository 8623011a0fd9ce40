"""Choosing an arm's settings on its training sites only.

D6.2, section 8.2.5: centre-based K-fold. Each fold leaves one site out, the arm is fitted on the
others, and the left-out rows are predicted; the C-index (of classes the AUC, of values R²) is
computed once over the predictions of all folds. Where sites differ in their outcome, a site that
is left out is unlike all that train, and its choice can be poor; row-based K-fold leaves out some
rows of every site instead. The bounds have no centres to leave out and use it: pooled data as one
table, an isolated site on its own, averaged over sites; the upper bound is so tuned as carefully as
any arm.

`rounds` costs nothing: one fit with the largest number keeps the model at each smaller one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.canonical import canonical
from fedcohort.protocol import (
    FedcohortError,
    Fitted,
    Method,
    ReplyRejected,
    SettingError,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.errors import WorkerLost
from fedcohort.protocol.ledger import Ledger
from fedcohort.study import evaluate
from fedcohort.study.arms import Arm
from fedcohort.study.engine import Problem, Run, Trail, fit_once
from fedcohort.study.missing import stretches
from fedcohort.study.plan import Plan
from fedcohort.study.space import Choice, space_of

ROW_FOLDS = 5

Settings = dict[str, Any]
Fold = tuple[Problem, pd.DataFrame]
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Tuned:
    """What tuning chose, its score, and everything it tried.

    Attributes
    ----------
    chosen : settings that replace the arm's.
    score : C-index, AUC or R² over the predictions of all folds.
    tried : (settings, score) in the order tried; score None where the fit failed.
    ledger : the ledger's lines of every fit, since tuning makes data leave sites as well.
    """

    chosen: Settings
    score: float
    tried: list[tuple[Settings, float | None]]
    ledger: list[str]


def keeps_rounds(method: Method) -> bool:
    """Return whether one fit of a method gives every smaller number of rounds."""
    known = method.settings.__dataclass_fields__
    return "keep_rounds" in known and "rounds" in known


def candidate(arm: Arm, settings: Settings, rounds: tuple[int, ...]) -> Settings:
    """Return the settings of the one fit that tries some settings at each of `rounds`."""
    given = arm.configured(settings)
    return given | {"rounds": max(rounds), "keep_rounds": rounds} if rounds else given


class Tuner:
    """Scores candidate settings of one arm on one problem.

    Parameters
    ----------
    work : folder for journals, so that a killed tuning goes on where it was.
    tell : called with (fits done, fits in all).

    Attributes
    ----------
    ledger, missing : what left the sites so far, and which replies were missing (`study.missing`).
    waited : for how many rounds calls waited for sites so far.
    """

    def __init__(self, problem: Problem, arm: Arm, seed: int, work: Path, tell: Tell):
        self._arm = arm
        self._method: Method = registry.find(arm.method)
        self._seed = seed
        self._work = work
        self._tell = tell
        self._fits = 0
        self._groups = list(_groups(problem, arm, seed))
        self.ledger: list[str] = []
        self.missing: list[dict[str, Any]] = []
        self.waited = 0
        if not any(self._groups):
            raise FedcohortError("no site has the rows and events that choosing settings takes.")

    @property
    def keeps_rounds(self) -> bool:
        """Whether one fit of the method gives every smaller number of rounds."""
        return keeps_rounds(self._method)

    def scores(self, settings: Settings, rounds: tuple[int, ...]) -> list[float | None]:
        """Return the score of `settings` at each of `rounds` (once, if there are none).

        A score is None where the method could not be fitted with these settings.
        """
        given = candidate(self._arm, settings, rounds)
        totals = np.zeros(max(1, len(rounds)))
        weights = 0
        for group in self._groups:
            risks: list[list[Array]] = []
            held: list[pd.DataFrame] = []
            for problem, rows in group:
                try:
                    run = self._fit(problem, given)
                except (SettingError, WorkerLost):
                    raise
                except SiteUnavailable as error:
                    if problem.runtime != "local" and not isinstance(error, ReplyRejected):
                        raise  # no fault of these settings: the tuning can go on later
                    return [None] * len(totals)
                except FedcohortError:
                    return [None] * len(totals)
                x = run.design.matrix(rows)
                risks.append([m.predict(x) for m in _at(run.model, rounds)])
                held.append(rows)
            truth = pd.concat(held, ignore_index=True)
            for i in range(len(totals)):
                said = np.concatenate([r[i] for r in risks])
                totals[i] += evaluate.score(group[0][0], truth, said)
            weights += 1
        return [float(t / weights) if np.isfinite(t) else None for t in totals]

    def _fit(self, problem: Problem, given: Settings) -> Run:
        path = self._work / f"tune-{self._fits:05d}.journal"
        self._fits += 1
        self._tell(self._fits, 0)
        trail = Trail(Ledger(problem.min_cell))
        try:
            return fit_once(
                problem, self._method, given, self._arm.preprocess, self._seed,
                journal=path, trail=trail,
            )  # fmt: skip
        finally:
            self.ledger += trail.ledger.lines
            self.missing += stretches(trail.missing, trail.rejected, "tune")
            self.waited += trail.waited


def _at(model: Fitted, rounds: tuple[int, ...]) -> Iterable[Fitted]:
    """Return the model after each number of rounds, or the model itself."""
    return [model.at_round(r) for r in rounds] if rounds else [model]


def _groups(problem: Problem, arm: Arm, seed: int) -> Iterator[list[Fold]]:
    """Yield groups of folds; predictions are pooled within a group, scores averaged over groups."""
    if arm.folds == "centre-kfold" and len(problem.frames) > 1:
        yield [
            (problem.on({n: f for n, f in problem.frames.items() if n != left}), rows)
            for left, rows in sorted(problem.frames.items())
        ]
        return
    if arm.scope == "isolated":
        for name in sorted(problem.frames):
            if made := _row_folds(problem.on({name: problem.frames[name]}), seed):
                yield made
        return
    yield _row_folds(problem.pooled() if arm.scope == "centralised" else problem, seed)


def _row_folds(problem: Problem, seed: int) -> list[Fold]:
    """Return folds of rows, at every site at once; those with no event to learn from are left out.

    A row's fold is a hash of its values, which each site can compute: it is the same for every
    arm, scenario and bound, so that their choices differ by what they do and not by luck, and
    equal rows are never on both sides. A view that a site lacks counts as missing, as it is among
    pooled rows.
    """
    frames = problem.frames
    fold = {n: _hashed(_whole(f, problem), seed) % ROW_FOLDS for n, f in frames.items()}

    def part(i: int) -> Fold:
        kept = {n: f[fold[n] != i].reset_index(drop=True) for n, f in frames.items()}
        held = [frames[n][fold[n] == i] for n in sorted(frames)]
        rows = pd.concat(held).reset_index(drop=True)
        return problem.on({n: f for n, f in kept.items() if len(f)}), rows

    made = [part(i) for i in range(ROW_FOLDS)]
    return [(kept, held) for kept, held in made if len(held) and kept.can_teach]


def _whole(frame: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """Return a table with all columns of the dictionary, where that has views; else as it is."""
    known = problem.dictionary.variables
    if not any(v.view for v in known.values()):
        return frame
    others = [c for c in frame.columns if c not in known]
    return canonical(frame.reindex(columns=[*known, *others]), problem.dictionary)


def _hashed(frame: pd.DataFrame, seed: int) -> Array:
    """Return a number for each row that depends on its values and the seed alone."""
    key = f"{seed:016x}"[-16:]
    return pd.util.hash_pandas_object(frame, index=False, hash_key=key).to_numpy()


class Scores(Protocol):
    """What a search asks: a `Tuner`, or that of a network."""

    ledger: list[str]

    @property
    def keeps_rounds(self) -> bool:
        """Whether one fit of the method gives every smaller number of rounds."""
        ...

    def scores(self, settings: Settings, rounds: tuple[int, ...]) -> list[float | None]:
        """Return the score of `settings` at each of `rounds` (once, if there are none)."""
        ...


def search(tuner: Scores, arm: Arm, plan: Plan) -> Tuned:
    """Try what a study asks to try for an arm: its grid, or what Optuna proposes."""
    if arm.grid:
        return grid_search(tuner, arm.grid)
    return optuna_search(tuner, plan.space(arm), plan.tune["trials"], plan.seed)


def grid_search(tuner: Scores, grid: Mapping[str, list[Any]]) -> Tuned:
    """Try every combination of a grid; the first of equals wins."""
    grid = dict(grid)
    rounds = tuple(sorted(grid.pop("rounds"))) if tuner.keeps_rounds and "rounds" in grid else ()
    names = sorted(grid)
    tried: list[tuple[Settings, float | None]] = []
    for values in itertools.product(*(grid[n] for n in names)):
        settings = dict(zip(names, values, strict=True))
        scores = tuner.scores(settings, rounds)
        for i, score in enumerate(scores):
            tried.append((settings | ({"rounds": rounds[i]} if rounds else {}), score))
    return _best(tried, tuner.ledger)


def optuna_search(tuner: Scores, space: Mapping[str, Any], trials: int, seed: int) -> Tuned:
    """Let Optuna's seeded tree-structured Parzen estimator propose settings.

    Parameters
    ----------
    space : by setting, what `space_of` reads.

    Raises
    ------
    SettingError : a space of another shape, or Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise SettingError("tune.trials needs Optuna: pip install 'fedcohort[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tried: list[tuple[Settings, float | None]] = []

    def objective(trial: optuna.Trial) -> float:
        settings = {name: _draw(trial, name, spec) for name, spec in sorted(space.items())}
        (score,) = tuner.scores(settings, ())
        tried.append((settings, score))
        return min([-1.0, *(s for _, s in tried if s is not None)]) if score is None else score

    sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective, n_trials=trials)
    return _best(tried, tuner.ledger)


def _draw(trial: Any, name: str, spec: Any) -> Any:
    """Return one setting's value as Optuna proposes it."""
    found = space_of(name, spec)
    if isinstance(found, Choice):
        return found.values[trial.suggest_categorical(name, range(len(found.values)))]
    if isinstance(found.low, int) and isinstance(found.high, int):
        return trial.suggest_int(name, found.low, found.high, log=found.log)
    return trial.suggest_float(name, found.low, found.high, log=found.log)


def _best(tried: list[tuple[Settings, float | None]], ledger: list[str]) -> Tuned:
    """Return the best of what was tried."""
    able = [(s, c) for s, c in tried if c is not None]
    if not able:
        raise FedcohortError(
            f"none of {len(tried)} candidate settings could be fitted; widen the grid, or look at "
            f"one of them as an arm of its own."
        )
    chosen, score = max(able, key=lambda pair: pair[1])
    return Tuned(chosen, score, tried, ledger)
