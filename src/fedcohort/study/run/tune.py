"""Choosing an arm's settings on its training sites only.

D6.2, section 8.2.5: centre-based K-fold. Each fold leaves one site out, the arm is fitted on the
others, and the left-out rows are predicted. The C-index (classification: AUC; regression: R²) is
computed once over the predictions of all folds. If sites differ in their outcome, the choice can be
poor; row-based K-fold leaves out some rows of every site instead. At natural sites only pairs of
rows of one site and fold count, as over a network (`leading`); likewise of models for each site
(`user: all`), each of which predicts its own site's left-out rows. The bounds use row folds: pooled
data as one table, an isolated site alone, averaged over sites.

`rounds` costs nothing: one fit with the largest number keeps the model at each smaller one.

Clusters and latent variables have no outcome: a plan's `score` of the left-out rows
(`at_site.unlabelled`) takes the place of the C-index. A method of two phases (`Settings.later`) is
tuned in their order, as the thesis (003, chapter 5) tunes the autoencoder before the clusters: the
first phase alone by its reconstruction error, then the later settings by the score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read.canonical import canonical
from fedcohort.protocol import (
    FedcohortError,
    Fitted,
    Method,
    NothingToLearn,
    ReplyRejected,
    SettingError,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.at_site import unlabelled
from fedcohort.study.at_site.coding import Coding
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.placing import Placed
from fedcohort.study.at_site.table import Halves
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.privacy import FEWEST
from fedcohort.study.file.space import Choice, space_of
from fedcohort.study.judge.leading import LEADING, Outcomes
from fedcohort.study.kinds import CLUSTERING
from fedcohort.study.results.missing import stretches
from fedcohort.study.run.engine import Problem, Run, Trail, fit_once
from fedcohort.study.sites.splits import hashed

ROW_FOLDS = 5

Settings = dict[str, Any]
#: Problem to fit, and the left-out rows by site.
Fold = tuple[Problem, Mapping[str, pd.DataFrame]]
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Tuned:
    """Chosen settings, their score, and everything tried.

    Attributes
    ----------
    chosen : settings that replace the arm's.
    score : C-index, AUC or R² over the predictions of all folds.
    tried : (settings, score) in the order tried; score None if the fit failed.
    ledger : ledger lines of every fit, since tuning makes data leave sites too.
    """

    chosen: Settings
    score: float
    tried: list[tuple[Settings, float | None]]
    ledger: list[str]


def keeps_rounds(arm: Arm) -> bool:
    """Return whether one fit of an arm gives every smaller number of rounds.

    Sites that keep a model of their own keep the last one alone.
    """
    known = registry.find(arm.method).settings.__dataclass_fields__
    return "keep_rounds" in known and "rounds" in known and not arm.every


def candidate(arm: Arm, settings: Settings, rounds: tuple[int, ...]) -> Settings:
    """Return the settings of one fit that tries `settings` at each of `rounds`."""
    given = arm.configured(settings)
    return given | {"rounds": max(rounds), "keep_rounds": rounds} if rounds else given


class Tuner:
    """Scores candidate settings of one arm on one problem.

    Parameters
    ----------
    work : folder for journals, so that a killed tuning can resume.
    tell : called with (fits done, fits in all).
    natural : whether sites have their own rows; then only pairs within a site count.

    Attributes
    ----------
    ledger, missing, waited : what left the sites, missing replies, rounds of waiting for sites.
    """

    def __init__(
        self,
        problem: Problem,
        arm: Arm,
        seed: int,
        work: Path,
        tell: Tell,
        *,
        natural: bool = False,
    ):
        self._arm = arm
        self._method: Method = registry.find(arm.method)
        self._seed = seed
        self._work = work
        self._tell = tell
        self._fits = 0
        self._every = arm.every
        self._natural = (natural or self._every) and arm.scope == "sites"
        self._groups = list(_groups(problem, arm, seed))
        self.ledger: list[str] = []
        self.missing: list[dict[str, Any]] = []
        self.waited = 0
        if not any(self._groups):
            raise FedcohortError("no site has enough rows and events to tune settings. Set them.")

    @property
    def keeps_rounds(self) -> bool:
        """See `Scores`."""
        return keeps_rounds(self._arm)

    def scores(
        self, settings: Settings, rounds: tuple[int, ...], by: str = ""
    ) -> list[float | None]:
        """See `Scores`."""
        given = candidate(self._arm, settings, rounds)
        totals: list[Array] = []
        for group in self._groups:
            try:
                if by:
                    totals.append(self._unlabelled(group, given, by))
                    continue
                score = self._within if self._natural else self._pooled
                totals.append(score(group, given, rounds))
            except SettingError:
                raise
            except SiteUnavailable as error:
                if group[0][0].runtime != "local" and not isinstance(error, ReplyRejected):
                    raise  # the settings are not the cause: the tuning can be resumed
                return [None] * max(1, len(rounds))
            except FedcohortError:
                return [None] * max(1, len(rounds))
        mean = np.sum(totals, axis=0) / len(totals)
        return [float(t) if np.isfinite(t) else None for t in mean]

    def _pooled(self, group: list[Fold], given: Settings, rounds: tuple[int, ...]) -> Array:
        """Return the score of each model (r,) over the predictions of all folds together."""
        said: list[list[Array]] = []
        held: list[pd.DataFrame] = []
        for problem, left in group:
            run = self._fit(problem, given)
            rows = pd.concat(list(left.values()), ignore_index=True)
            x = run.design.matrix(rows)
            said.append([np.asarray(m.predict(x)) for m in models_at(run.model, rounds)])
            held.append(rows)
        truth = pd.concat(held, ignore_index=True)
        models = (np.concatenate(parts) for parts in zip(*said, strict=True))
        seen = Outcomes.of(truth, group[0][0].outcome, group[0][0].dictionary)
        return np.array([LEADING[group[0][0].kind].score_of(risk, seen) for risk in models])

    def _within(self, group: list[Fold], given: Settings, rounds: tuple[int, ...]) -> Array:
        """Return the score of each model (r,), from pairs within one site and fold."""
        sites, leading = {site for _, left in group for site in left}, LEADING[group[0][0].kind]
        parts: dict[str, Array] = {}
        about: dict[str, Array] = {}
        lost = np.zeros(max(1, len(rounds)), bool)
        for problem, left in group:
            try:
                run = self._fit(problem, given)
            except NothingToLearn:
                continue
            for site, rows in left.items():
                seen = Outcomes.of(rows, problem.outcome, problem.dictionary)
                y = np.asarray(seen.y, float)
                x, model = run.design.matrix(rows), run.model
                if self._every:
                    if site not in run.own:  # all its rows are of this fold
                        continue
                    model = run.own[site]
                said = [np.asarray(m.predict(x), float) for m in models_at(model, rounds)]
                lost |= [not np.isfinite(risk).all() for risk in said]
                found = np.array([leading.sums(np.nan_to_num(risk), seen) for risk in said])
                parts[site] = parts.get(site, 0.0) + found
                about[site] = about.get(site, 0.0) + np.array([len(y), y.sum(), y @ y])
        if len(parts) < min(FEWEST, len(sites)):  # a network hides sums over so few sites
            return np.full(len(lost), np.nan)
        rows_of = [math.fsum(column) for column in np.array(list(about.values())).T]
        sums = np.array(list(parts.values()))
        scores = [
            leading.score(np.array([math.fsum(c) for c in sums[:, i].T]), *rows_of)
            for i in range(len(lost))
        ]
        return np.where(lost, -np.inf, scores)

    def _unlabelled(self, group: list[Fold], given: Settings, by: str) -> Array:
        """Return the score of a model without an outcome (1,), over sites and folds."""
        parts: dict[str, Array] = {}
        before: Run | None = None
        for problem, left in group:
            try:
                run = self._fit(problem, given)
            except NothingToLearn:
                continue
            dictionary = problem.learnt().dictionary
            for site, frame in left.items():
                rows = Rows(Halves(frame, frame), None, dictionary, self._method.name, 1)
                clusters = problem.kind == CLUSTERING.name
                d = Placed(rows, frame, run, before, ()) if clusters else Coding(rows, frame, run)
                found = unlabelled.sums_of(d, np.arange(len(frame)))
                parts[site] = parts.get(site, 0.0) + found
            before = run
        sites = {site for _, left in group for site in left}
        if len(parts) < (min(FEWEST, len(sites)) if self._natural else 1):
            return np.array([math.nan])
        sums = np.array([math.fsum(column) for column in np.array(list(parts.values())).T])
        return np.array([unlabelled.score(by, sums, float(not np.isfinite(sums).all()))])

    def _fit(self, problem: Problem, given: Settings) -> Run:
        path = self._work / f"tune-{self._fits:05d}.journal"
        self._fits += 1
        self._tell(self._fits, 0)
        trail = Trail(Ledger(problem.min_cell))
        try:
            return fit_once(
                problem, self._method, given, self._arm.preprocess, self._seed,
                journal=path, trail=trail, explained=False,
            )  # fmt: skip
        finally:
            self.ledger += trail.ledger.lines
            self.missing += stretches(trail.missing, trail.rejected, "tune")
            self.waited += trail.waited


def models_at(model: Fitted, rounds: tuple[int, ...]) -> Iterable[Fitted]:
    """Return the model after each number of rounds, or the model itself."""
    return [model.at_round(r) for r in rounds] if rounds else [model]


def _groups(problem: Problem, arm: Arm, seed: int) -> Iterator[list[Fold]]:
    """Yield groups of folds; predictions are pooled within a group, scores averaged over groups."""
    if arm.folds == "centre-kfold" and len(problem.frames) > 1:
        yield [
            (problem.on({n: f for n, f in problem.frames.items() if n != left}), {left: rows})
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
    """Return folds of rows, at every site at once; folds with no event to learn from are dropped.

    They are the same for every arm, scenario and bound, so that choices do not differ by chance.
    """
    frames = problem.frames
    fold = {n: folds_of(f, problem.dictionary, seed) for n, f in frames.items()}

    def part(i: int) -> Fold:
        kept = {n: f[fold[n] != i].reset_index(drop=True) for n, f in frames.items()}
        held = {n: frames[n][fold[n] == i].reset_index(drop=True) for n in sorted(frames)}
        left = {n: f for n, f in held.items() if len(f)}
        return problem.on({n: f for n, f in kept.items() if len(f)}), left

    made = [part(i) for i in range(ROW_FOLDS)]
    return [(kept, held) for kept, held in made if held and kept.can_teach]


def folds_of(frame: pd.DataFrame, dictionary: Dictionary, seed: int) -> Array:
    """Return the fold (n,) of each row: a hash of its values, which each site can compute.

    Equal rows are in the same fold. A view that a site lacks counts as missing, as in pooled rows.
    """
    known = dictionary.variables
    if any(v.view for v in known.values()):
        others = [c for c in frame.columns if c not in known]
        frame = canonical(frame.reindex(columns=[*known, *others]), dictionary)
    return (hashed(frame, seed) % ROW_FOLDS).astype(np.int64)


class Scores(Protocol):
    """What a search needs: a `Tuner`, or a `NetworkTuner`."""

    ledger: list[str]

    @property
    def keeps_rounds(self) -> bool:
        """Whether one fit of the method gives every smaller number of rounds."""
        ...

    def scores(
        self, settings: Settings, rounds: tuple[int, ...], by: str = ""
    ) -> list[float | None]:
        """Return the score of `settings` at each of `rounds` (one score, if there are none).

        A score is None if the method could not be fitted with these settings.

        Parameters
        ----------
        by : score without an outcome, of `at_site.unlabelled`; "" for that of the outcome.
        """
        ...


def search(tuner: Scores, arm: Arm, plan: Plan) -> Tuned:
    """Try an arm's candidates: its grid, or Optuna's proposals."""
    if plan.kind.scores:
        return phase_search(tuner, arm, plan)
    if arm.grid:
        return grid_search(tuner, arm.grid)
    return optuna_search(tuner, plan.space(arm), plan.tune["trials"], plan.seed)


def phase_search(tuner: Scores, arm: Arm, plan: Plan) -> Tuned:
    """Try an arm's candidates by a score without an outcome, phase by phase.

    They are the combinations of its grid, or in each phase as many of Optuna's proposals as the
    study has trials.
    """
    config, by, space = registry.find(arm.method).settings, plan.score, plan.space(arm)
    base = {name: values[0] for name, values in sorted(arm.grid.items())}
    if not base:
        base = {name: space_of(name, spec).values[0] for name, spec in sorted(space.items())}
    open_ = {n: len(values) > 1 for n, values in arm.grid.items()} or dict.fromkeys(space, True)
    phases: list[tuple[str, Mapping[str, Any], list[str]]] = [
        ("reconstruction", config.first or {}, [n for n in sorted(open_) if n not in config.later]),
        (by, {}, [n for n in sorted(open_) if n in config.later]),
    ]
    if not config.later:
        phases = [(by, {}, sorted(open_))]
    phases = [p for p in phases if any(open_[n] for n in p[2])] or phases[:1]
    tried: list[tuple[Settings, float | None]] = []
    found: Tuned | None = None
    for score, alone, names in phases:
        given = partial(_scored, tuner, {**base}, alone, score)
        if arm.grid:
            part = [(own, given(own)) for own in _combined({n: arm.grid[n] for n in names})]
        else:
            part = _proposed(given, {n: space[n] for n in names}, plan.tune["trials"], plan.seed)
        tried += part
        found = _best(part, tuner.ledger)
        base |= found.chosen
    assert found is not None
    return Tuned(base, found.score, tried, tuner.ledger)


def _scored(
    tuner: Scores, base: Settings, alone: Mapping[str, Any], score: str, own: Settings
) -> float | None:
    """Return the score of one candidate of a phase."""
    return tuner.scores({**base, **own, **alone}, (), score)[0]


def _combined(grid: Mapping[str, list[Any]]) -> Iterator[Settings]:
    """Yield every combination of a grid."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


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
    space : the space of each setting, as `space_of` reads it.

    Raises
    ------
    SettingError : a space of another shape, or Optuna is not installed.
    """
    tried = _proposed(lambda settings: tuner.scores(settings, ())[0], space, trials, seed)
    return _best(tried, tuner.ledger)


def _proposed(
    score_of: Callable[[Settings], float | None], space: Mapping[str, Any], trials: int, seed: int
) -> list[tuple[Settings, float | None]]:
    """Return Optuna's proposals with their scores; parameters and errors as `optuna_search`."""
    try:
        import optuna
    except ImportError:
        raise SettingError("tune.trials needs Optuna: pip install 'fedcohort[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tried: list[tuple[Settings, float | None]] = []

    def objective(trial: optuna.Trial) -> float:
        settings = {name: _draw(trial, name, spec) for name, spec in sorted(space.items())}
        score = score_of(settings)
        tried.append((settings, score))
        return min([-1.0, *(s for _, s in tried if s is not None)]) if score is None else score

    sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective, n_trials=trials)
    return tried


def _draw(trial: Any, name: str, spec: Any) -> Any:
    """Return one setting's value as Optuna proposes it."""
    found = space_of(name, spec)
    if isinstance(found, Choice):
        return found.values[trial.suggest_categorical(name, range(len(found.values)))]
    if isinstance(found.low, int) and isinstance(found.high, int):
        return trial.suggest_int(name, found.low, found.high, log=found.log)
    return trial.suggest_float(name, found.low, found.high, log=found.log)


def _best(tried: list[tuple[Settings, float | None]], ledger: list[str]) -> Tuned:
    """Return the candidate with the best score."""
    able = [(s, c) for s, c in tried if c is not None]
    if not able:
        raise FedcohortError(
            f"none of {len(tried)} candidate settings could be fitted; widen the grid, or run "
            f"one of them as an arm to see its error."
        )
    chosen, score = max(able, key=lambda pair: pair[1])
    return Tuned(chosen, score, tried, ledger)
