"""The functions for a notebook: simulate sites, fit a method, look at the result.

    fed = fc.simulate(df, sites="hospital", outcome=fc.Survival("time", "event"))
    fit = fc.fit("cox", fed, ties="efron")
    fit.summary, fit.predict(df), fit.ledger

`simulate` makes a `Cohort`, `fit` and `load` give a `Fit`.
"""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import EVERY, Sheet, check_sheets, with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.imputing.values import completed, values_of
from fedcohort.data.outcome import Ordered, Outcome
from fedcohort.data.prepare import checked
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import canonical, site_names
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.drafting import draft
from fedcohort.data.read.frames import as_pandas, by_column, without
from fedcohort.protocol import (
    DataError,
    Dp,
    Method,
    NotSupported,
    SettingError,
    SiteUnavailable,
    registry,
)
from fedcohort.study.file.arms import BOUNDS, PREPROCESS
from fedcohort.study.file.privacy import FEWEST, checked_secure
from fedcohort.study.file.yamlfile import nearest
from fedcohort.study.kinds import ASIDE, KINDS
from fedcohort.study.results import effects, fit_lines, saved
from fedcohort.study.results.filled import intervals
from fedcohort.study.run.engine import Problem, Run, fit_once, noise_notes
from fedcohort.study.run.showing import Observer, line, of_calls
from fedcohort.study.run.warnings import crowded, drowned, filled_note, free_parameters
from fedcohort.study.sites import own_rows
from fedcohort.study.sites.own_rows import OwnFrames
from fedcohort.study.sites.site_rule import Fate, fates_text

if TYPE_CHECKING:
    from fedcohort.report.plots import Picture

#: Name in errors of one table with several sites.
TABLE = "the table"


@dataclass(frozen=True)
class Cohort:
    """Sites in this process, made by `simulate`.

    Attributes
    ----------
    frames : one pandas table a site.
    dictionary : types and levels of the columns; drafted from the tables if none was given.
    outcome : outcome to predict, or None.
    seed : seed of every draw.
    drafted : whether the dictionary was drafted.
    """

    frames: Mapping[str, pd.DataFrame]
    dictionary: Dictionary
    outcome: Outcome | None
    seed: int
    drafted: bool = False

    def __repr__(self) -> str:
        n = len(self.frames)
        of = f", outcome {', '.join(self.outcome.columns)}" if self.outcome else ""
        return f"<Cohort of {n} site{'s' * (n != 1)}{of}>"

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(sorted(self.frames))


def simulate(
    frames: Any,
    *,
    outcome: Outcome | None = None,
    sites: str | None = None,
    views: Mapping[str, Iterable[str]] | None = None,
    dictionary: str | Path | Mapping[str, Any] | Dictionary | None = None,
    seed: int = 0,
) -> Cohort:
    """Return sites in this process, from tables in memory.

    Parameters
    ----------
    frames : a mapping from site names to pandas or Polars frames or pyarrow tables, or one of these
        with a column that names each row's site. A site without an event may take part; a site with
        one row is left out, with a warning.
    outcome : outcome to predict; None: the one that the dictionary marks, or none.
    sites : the site column, if `frames` is one table.
    views : columns by view (modality); a site may lack all columns of a view, which are then
        missing there; at least one site has them.
    dictionary : a data dictionary, as a path or a mapping; default: drafted from the tables.

    Raises
    ------
    DataError : no sites, a missing column, an impossible time or event; rows are named by number,
        never by value.
    SettingError : the outcome is not an `fc.Survival`, `fc.Binary`, `fc.Category`, `fc.Ordered`,
        `fc.Continuous` or `fc.Count`.
    """
    _check_outcome(outcome)
    known = _dictionary(dictionary)
    found = _found(frames, sites, known)
    if known is not None:
        outcome = outcome or known.outcome()
    described = known or draft(found, outcome, () if sites is None else (sites,))
    if known is None:
        found = {name: canonical(frame, described) for name, frame in found.items()}
    if known is None and isinstance(outcome, Ordered):
        outcome.check_drafted(described)
    described = without(described, sites).with_views(views or {})
    about = with_outcome(described if known is not None else None, outcome)
    found = _large_enough(found, sites)
    sheets = _sheets(found, sites, about)
    for text in check_sheets(sheets, outcome, about, eventless=True, accepted=EVERY):
        warnings.warn(f"{text}. Convert it if it is so.", stacklevel=2)
    tables = found if sites is None else by_column(found[TABLE], sites, TABLE)
    return Cohort(tables, described, outcome, seed, drafted=known is None)


def _check_outcome(given: Any) -> None:
    if given is None or isinstance(given, Outcome):
        return
    names = [given] if isinstance(given, str) else given if isinstance(given, (tuple, list)) else []
    named = [name for name in names if isinstance(name, str)]
    if len(named) == 2:
        said = f"fc.Survival({named[0]!r}, {named[1]!r})"
    else:
        y = repr(named[0]) if len(named) == 1 else "y"
        kinds = ", ".join(f"fc.{kind}({y})" for kind in ("Binary", "Category", "Continuous"))
        said = f"fc.Survival(time, event), {kinds} or fc.Count({y})"
    raise SettingError(f"outcome is a {type(given).__name__}. Give {said}.")


def _dictionary(given: str | Path | Mapping[str, Any] | Dictionary | None) -> Dictionary | None:
    """Return a dictionary from any of its forms."""
    if given is None or isinstance(given, Dictionary):
        return given
    if isinstance(given, Mapping):
        return Dictionary.from_dict(given)
    return read_dictionary(given)


def _found(frames: Any, column: str | None, known: Dictionary | None) -> dict[str, pd.DataFrame]:
    """Return pandas frames by site, or the one with a site column as `TABLE`."""
    found = sources.in_memory(frames, known).frames
    if isinstance(found, pd.DataFrame):
        if column is None:
            raise DataError("one table was given; name the column of its sites with sites=...")
        return {TABLE: found}
    if column is not None:
        raise DataError("the tables are named by site already; leave out sites=...")
    if not found:
        raise DataError("there are no sites. Give at least one table, or a column of sites.")
    return found


def _large_enough(found: dict[str, pd.DataFrame], column: str | None) -> dict[str, pd.DataFrame]:
    """Return the tables without sites of one row, and warn about these; all, if most are so."""
    site = None if column is None else site_names(found[TABLE], column, TABLE)
    rows = {name: len(frame) for name, frame in found.items()}
    if site is not None:
        names, n = np.unique(site, return_counts=True)
        rows = dict(zip(map(str, names), n.tolist(), strict=True))
    few = {name: Fate(None, "1 row") for name, n in rows.items() if n == 1}
    if not few or 2 * len(few) > len(rows):  # the column may hold patients instead of sites
        return found
    warnings.warn(f"sites left out: {fates_text(few)}; a site needs 2 rows.", stacklevel=3)
    if site is None:
        return {name: frame for name, frame in found.items() if name not in few}
    return {TABLE: found[TABLE][~np.isin(site, list(few))].reset_index(drop=True)}


def _sheets(
    found: Mapping[str, pd.DataFrame], column: str | None, known: Dictionary
) -> list[Sheet]:
    """Return the tables in the form of the checks."""
    if column is None:
        return [Sheet(frame, f"site {site!r}", site) for site, frame in found.items()]
    return [Sheet.by_column(found[TABLE], TABLE, column, known.variables)]


@dataclass(frozen=True)
class Fit:
    """A fitted method.

    Attributes
    ----------
    method : its name.
    settings : the user's settings.
    run : the model, its preprocessing, its history and ledger; None for a loaded model.
    sites : each site's own fit, for ``strategy="isolated"`` and for ``user="all"``.
    """

    method: str
    settings: Mapping[str, Any]
    parts: saved.Saved
    run: Run | None = None
    sites: Mapping[str, Fit] = field(default_factory=dict[str, "Fit"])

    def __repr__(self) -> str:
        if self.run is None and self.sites:
            return f"<Fit of {self.method} at each of {len(self.sites)} sites alone>"
        sites = 0 if self.run is None else len(self.run.ledger.bytes_up)
        rounds = 0 if self.run is None else self.run.rounds
        design = self.parts.design
        names = design.features[:-1] if design.offset else design.features
        private = self.parts.notes.get("privacy") or {}
        return fit_lines.about(self.method, sites, rounds, names, design.offset, private)

    def of(self, site: str) -> Fit:
        """Return one site's own fit, of ``user="all"`` or ``strategy="isolated"``.

        Raises
        ------
        SettingError : there is no such site, or the fit has one model for all.
        """
        if not self.sites:
            raise SettingError("this fit has one model for all sites; fit it with user='all'.")
        if site not in self.sites:
            raise SettingError(f"no site is called {site!r}; {nearest(site, self.sites)}")
        return self.sites[site]

    @property
    def model(self) -> Any:
        """The fitted model itself, with the further members of its method."""
        return self.parts.model

    @property
    def dropped(self) -> Mapping[str, str]:
        """Columns of the dictionary that are not covariates, each with the reason."""
        fits = (self.run is None and self.sites.values()) or (self,)
        return {k: why for fit in fits for k, why in fit.parts.design.dropped.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes of the outcome, in the order of their numbers; () without."""
        return self.parts.design.classes

    @property
    def summary(self) -> pd.DataFrame:
        """Coefficients with standard errors, intervals and p-values, if the method has them.

        Of a number, coefficients are for one ``unit`` of the covariate, which preprocessing may
        have scaled. If the dictionary has another step, it is ``per``, and the ratio for it has a
        name that ends in ``_per``. ``shrunken`` is the penalty of the fit, if any: it shrinks
        coefficients towards 0, and ``low`` and ``high`` are then no interval of the effect.
        """
        rows = [dict(row) for row in self._give("summary")]
        if any("coefficient" in row for row in rows):
            design, dictionary = self.parts.design, self.parts.dictionary
            rows = effects.summarised(rows, design, dictionary, self.parts.notes.get("shrunken"))
        return pd.DataFrame(rows)

    @property
    def history(self) -> pd.DataFrame:
        """Values that the method recorded, a row a round."""
        return pd.DataFrame(self._finished("history").history)

    @property
    def ledger(self) -> pd.DataFrame:
        """What left each site: a row for every call and site."""
        lines = self._finished("ledger").ledger.lines
        return pd.DataFrame([json.loads(line) for line in lines])

    def predict(self, table: Any) -> Array:
        """Return the risk score, probability, value or label of each row: (n,).

        Of several classes, return the probability of each: (n, K), in the order of `classes`.
        """
        return self._give("predict", self._x(table))

    def predict_survival(self, table: Any, times: Any, *, warn: bool = True) -> Array:
        """Return P(T > t) for each row and each of `times`, one or (m,): (n, m).

        It is NaN after the last time that the sites' sums cover; if `warn`, a `UserWarning` names
        that time.
        """
        x, at = self._x(table), np.atleast_1d(times).astype(float)
        found = self._give("predict_survival", x, at)
        known = self.model.known_until(x)
        late = at > known[:, None]
        if warn and late.any():
            warnings.warn(
                f"survival is NaN after {known[late.any(axis=1)].max():g}, the last time that the "
                f"sites' sums cover.",
                UserWarning,
                stacklevel=2,
            )
        return np.where(late, np.nan, found)

    def transform(self, table: Any) -> Array:
        """Return latent variables: (n, q)."""
        return self._give("transform", self._x(table))

    def memberships(self, table: Any) -> Array:
        """Return the membership of each row in each cluster: (n, k), rows add to 1."""
        return self._give("memberships", self._x(table))

    def reconstruct(self, table: Any) -> pd.DataFrame:
        """Return each row's features reconstructed by the model, in the model's scale."""
        rows = self._give("reconstruct", self._x(table))
        return pd.DataFrame(rows, columns=list(self.parts.design.features))

    def sample(self, n: int, seed: int = 0) -> pd.DataFrame:
        """Return n synthetic rows, with the table's columns and units, and the most likely levels.

        Raises
        ------
        SettingError : n is not a whole number of at least 1.
        """
        try:
            fine = operator.index(n) >= 1
        except TypeError:
            fine = False
        if not fine:
            raise SettingError(f"n is {n!r}; give a whole number of rows, from 1 up.")
        return self.parts.design.table(self._give("sample", n, np.random.default_rng(seed)))

    def impute(self, table: Any) -> pd.DataFrame:
        """Return the table with missing cells imputed, in its units; known cells are unchanged.

        Columns of a view that the table lacks are added.
        """
        return self._completed(table, "impute")

    def impute_drawn(self, table: Any, seed: int = 0) -> pd.DataFrame:
        """Return the table with one draw of its missing cells given the known ones, as `impute`.

        Several seeds give several tables; analyse each, and pool the results by Rubin's rules.
        """
        return self._completed(table, "impute_drawn", np.random.default_rng(seed))

    def _completed(self, table: Any, how: str, *more: Any) -> pd.DataFrame:
        frame, design = self.canonical(table), self.parts.design
        whole = completed(frame, values_of(design, self._give(how, design.matrix(frame), *more)))
        return whole.set_axis(table.index) if isinstance(table, pd.DataFrame) else whole

    def intervals(self, table: Any, level: float = 0.95) -> pd.DataFrame:
        """Return intervals of predictions, or of imputed numbers, with a probability `level`.

        Of a model with a posterior: a row for each of the table's, with ``low`` and ``high`` of the
        probability, the expected count, the log risk, or a new patient's value. Of a model that
        imputes: a row for each missing number that `impute` fills, with row (from 0), column,
        value, low and high; these need a linear scale of the features.

        Raises
        ------
        NotSupported : the method has no posterior of this outcome, and gives no standard deviation
            of imputed numbers; or the fit's scale is quantile.
        SettingError : the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise SettingError(f"level is {level!r}; give a number between 0 and 1.")
        x = self._x(table)
        if registry.find(self.method).overrides("intervals"):
            return pd.DataFrame(self._give("intervals", x, level), columns=["low", "high"])
        return intervals(
            self.parts.design, x, self._give("impute", x), self._give("imputed_sd", x), level
        )

    def uncertainty(self, table: Any) -> pd.DataFrame:
        """Return the variance of each row's outcome in two parts: epistemic and aleatoric.

        The first is due to the model's parameters, and falls with more training rows. The second
        is not known from the covariates.

        Raises
        ------
        NotSupported : the method has no posterior of this outcome.
        """
        parts = self._give("uncertainty", self._x(table))
        return pd.DataFrame(dict(zip(("epistemic", "aleatoric"), parts, strict=True)))

    def unlike_training(self, table: Any) -> Array:
        """Return how unlike the training rows each row is, from 0 to 1: (n,).

        Raises
        ------
        NotSupported : the model does not know the covariance of its covariates.
        """
        return self._give("unlike_training", self._x(table))

    def plot(self, *others: Fit, names: Sequence[str] = (), covariate: str = "") -> Picture:
        """Return a figure of this fit, together with others: ``svg``, and ``save(path)``.

        Survival curves with numbers at risk, if the method has curves; for one fit a path of
        penalties, a forest plot or the effects of sites, if it has one; otherwise the convergence
        by round.

        Parameters
        ----------
        names : of all fits, this one first; default: their methods'.
        covariate : covariate of a forest plot; default: each.

        Raises
        ------
        NotSupported : the fits have no common figure.
        SettingError : wrong number of names, equal names, or an unknown covariate.
        """
        from fedcohort.study.results import plotting

        return plotting.picture((self, *others), names, covariate)

    def save(self, folder: str | Path) -> None:
        """Write the model as safetensors and JSON, with its `Fitted.files`; see `load`."""
        self._own("save")
        saved.write(Path(folder), self.parts)

    def canonical(self, table: Any) -> pd.DataFrame:
        """Return a table in the form that the model's dictionary gives it."""
        self._own("predictions")
        return canonical(as_pandas(table), self.parts.dictionary)

    def _x(self, table: Any) -> Array:
        return self.parts.design.matrix(self.canonical(table))

    def _own(self, what: str) -> None:
        if self.run is None and self.sites:
            raise NotSupported(
                f"isolated sites have no common {what}; take one, fit.of(site): "
                f"{', '.join(sorted(self.sites))}."
            )

    def _finished(self, what: str) -> Run:
        self._own(what)
        if self.run is None:
            raise NotSupported(f"a loaded model has no {what}; it stays with the run that made it.")
        return self.run

    def _give(self, what: str, *arguments: Any) -> Any:
        self._own(what)
        try:
            return getattr(self.parts.model, what)(*arguments)
        except NotSupported as error:
            if str(error) != what:
                raise
            raise registry.not_supported(what, self.method) from None


def fit(
    method: str,
    fed: Cohort,
    *,
    seed: int | None = None,
    quorum: float = 1.0,
    min_cell: int = 5,
    secure_aggregation: str | bool = "auto",
    dp: Mapping[str, Any] | Literal[False] | None = None,
    workers: int = 1,
    coordinator_data: Sequence[Any] | None = None,
    task: str = "",
    progress: bool | None = None,
    **settings: Any,
) -> Fit:
    """Fit a registered method over the sites.

    Parameters
    ----------
    method : a registered name (`fedcohort methods`).
    seed : seed of every draw; default: the cohort's.
    quorum : fraction of the sites that must answer each call.
    min_cell : smallest count in a cell of anything revealed.
    secure_aggregation : how sums over three or more sites are formed: "auto" (exactly), "true"
        (masked by the real protocol between the sites of this process), or "false" (as floats).
    dp : differential privacy of the fit: {"epsilon": 3, "delta": 1e-5}, with "unit" "record" or
        "site" and a "clip"; None without. Without `seed`, noise comes from the system's generator.
        With `seed`, noise follows from it, so that two runs agree: do not release such a model as
        private. The fit states which of the two holds.
    workers : largest number of sites that compute at once, on threads of this process. The fit is
        the same, to the last bit, as with one thread.
    coordinator_data : rows of the coordinator itself, which no site has, for methods that train a
        network: (table of the first model, table of the validation loss), of which one may be None.
    task : kind of task, if the method serves several: ``"synthesis"`` makes the outcome's columns
        features, so that `Fit.sample` draws them, too. Default: the outcome's, else the method's
        first.
    progress : whether the rounds done and the time left are shown, from 2 s on. Default: on a
        terminal and in a notebook, not in a log.
    settings : the method's, plus ``scale``, ``impute``, ``winsorise`` and ``pool_levels`` for the
        preprocessing.
        ``strategy="isolated"`` fits each site alone, ``"centralised"`` all rows as one table; both
        at exact times, and without other protections from a coordinator, unless set otherwise.

    Raises
    ------
    SettingError : an unknown method or setting (the nearest known one is named); or masked sums
        with fewer than three sites.
    FedcohortError : any error that the method raises on purpose.
    """
    entry = registry.find(str(method))
    _check_call(fed, seed, quorum, min_cell, workers)
    noise = "system" if seed is None else "seed"
    seed = fed.seed if seed is None else seed
    table = dict(entry.preprocess)
    for key, known in PREPROCESS.items():
        if key not in settings:
            continue
        if entry.raw:
            raise SettingError(f"method {method!r} reads tables as they are; leave out {key!r}.")
        value = settings.pop(key)
        if known and value not in known:
            raise SettingError(f"{key} is {value!r}; {nearest(value, known)}")
        try:
            table[key] = checked(key, value)
        except SettingError as error:
            raise SettingError(f"{key} is {value!r}; {error}") from None
    entry.check_gaps(table)
    bound = settings.get("strategy") in BOUNDS
    asked = _private(dp, fed, settings["strategy"] if bound else "")
    secure = checked_secure(secure_aggregation, FEWEST if bound else len(fed.frames))
    problem = Problem(
        fed.frames,
        fed.dictionary,
        fed.outcome,
        min_cell,
        quorum,
        secure="auto" if bound and secure == "true" else secure,
        dp=asked,
        noise=noise,
        workers=workers,
    )
    if task:
        problem = _asked(problem, entry, task)
    elif problem.kind not in entry.tasks:
        problem = next((problem.aside_of(t) for t in entry.tasks if t in ASIDE), problem)
    if problem.kind not in entry.tasks:
        raise SettingError(fit_lines.serves(entry, fed.outcome))
    problem = replace(problem, own=_coordinators(coordinator_data, fed, asked))

    known = problem.dictionary

    def once(part: Problem, given: Mapping[str, Any], observer: Observer) -> Fit:
        run = fit_once(part, entry, given, table, seed, observer=observer)
        notes: dict[str, Any] = {**noise_notes(entry, given, part)}
        if penalty := effects.penalty_of(entry, given):
            notes["shrunken"] = penalty
        notes |= saved.outcome_note(KINDS[part.kind], part.aside)
        own = {
            site: Fit(method, dict(given), saved.Saved.of(method, m, run.design, known, notes))
            for site, m in sorted(run.own.items())
        }
        parts = saved.Saved.of(method, run.model, run.design, known, notes)
        return Fit(method, dict(given), parts, run, own)

    if not bound:
        rows = [len(frame) for frame in fed.frames.values()]
        if note := drowned(entry, entry.configure(settings), asked, _units(asked, rows)):
            warnings.warn(f"{method}: {note}.", UserWarning, stacklevel=2)
        with line(method, "rounds", progress) as shown:
            made = once(problem, settings, of_calls(shown))
        features = len(made.parts.design.features) - bool(made.parts.design.offset)
        classes = len(made.parts.design.classes)
        if note := crowded(free_parameters(entry.name, settings, features, classes), rows):
            warnings.warn(f"{method}: {note}.", UserWarning, stacklevel=2)
        return _warned(made, fed)
    scope = settings.pop("strategy")
    given = {**entry.settings.alone, **settings}
    with line(method, "rounds", progress) as shown:
        if scope == "centralised":
            return _warned(once(problem.pooled(), given, of_calls(shown)), fed)
        own = {
            s: once(problem.on({s: frame}), given, of_calls(shown, i, len(fed.frames)))
            for i, (s, frame) in enumerate(sorted(fed.frames.items()))
        }
    if not own:
        raise SiteUnavailable("there are no sites to fit alone.")
    fits = Fit(method, dict(given), next(iter(own.values())).parts, None, own)
    return _warned(fits, fed)


def _asked(problem: Problem, entry: Method, task: str) -> Problem:
    """Return the problem of a named kind of task.

    Raises
    ------
    SettingError : there is no such kind, or the method does not serve it.
    """
    if task not in KINDS:
        raise SettingError(f"task is {task!r}; {nearest(task, KINDS)}")
    if task not in entry.tasks:
        raise SettingError(
            f"method {entry.name!r} serves {', '.join(entry.tasks)}, not {task}."
            + (entry.why_not(task) or " Name one of these tasks, or take another method.")
        )
    return problem.of(KINDS[task])


def _coordinators(given: Any, fed: Cohort, dp: Dp | None) -> OwnFrames | None:
    """Return the coordinator's rows; None without any.

    Raises
    ------
    SettingError : no pair of tables, or a private fit.
    DataError : rows that do not fit the sites' dictionary, or teach nothing.
    """
    if given is None:
        return None
    pair = list(given) if isinstance(given, (tuple, list)) else []
    if len(pair) != 2 or all(one is None for one in pair):
        raise SettingError(
            "coordinator_data is no pair of tables. Give (rows of the first model, rows of the "
            "validation loss), one of them None if there are none."
        )
    if dp is not None:
        raise SettingError(
            "coordinator_data gives a first model and a stop of rows without noise, and this fit "
            "is private. Leave one of them out."
        )
    first, validation = (None if one is None else as_pandas(one) for one in pair)
    return own_rows.given(first, validation, fed.dictionary, fed.outcome)


def _private(dp: Mapping[str, Any] | Literal[False] | None, fed: Cohort, bound: str) -> Dp | None:
    """Return the privacy of a private fit; None for any other.

    Raises
    ------
    SettingError : an impossible value; a bound, which has no noise; or a drafted dictionary.
    """
    if dp is None or dp is False:
        return None
    if bound:
        raise SettingError(
            f"strategy {bound!r} is a bound, and bounds are fitted without noise. Leave out dp."
        )
    if fed.drafted:
        raise SettingError(
            "a private fit scales by the dictionary's ranges and levels, and this one was drafted "
            "from the records. Give simulate(...) a dictionary."
        )
    return Dp.of(dp)


def _units(dp: Dp | None, rows: Sequence[int]) -> int:
    """Return the number of protected units: records or sites."""
    return len(rows) if dp is not None and dp.unit == "site" else sum(rows)


def _warned(fit: Fit, fed: Cohort) -> Fit:
    """Return a fit, with warnings about missing covariates and the model's cautions."""
    said = fit_lines.left_out(fit.method, fit.dropped, fed.dictionary, drafted=fed.drafted)
    fits = (fit.run is None and fit.sites.values()) or (fit,)
    told = [note for one in fits for note in one.parts.model.cautions()]
    told += [filled_note(one.parts.design) for one in fits]
    for note in (said, *(f"{fit.method}: {note}." for note in dict.fromkeys(told) if note)):
        if note:
            warnings.warn(note, UserWarning, stacklevel=3)
    return fit


def _check_call(fed: Any, seed: Any, quorum: Any, min_cell: Any, workers: Any) -> None:
    """Check the arguments of `fit`.

    Raises
    ------
    SettingError : one is not possible.
    """
    if not isinstance(fed, Cohort):
        kind = type(fed).__name__
        raise SettingError(f"fit needs a Cohort from simulate(...), not {kind}.")
    seed = fed.seed if seed is None else seed
    whole = (("seed", seed, 0), ("min_cell", min_cell, 1), ("workers", workers, 1))
    for name, value, low in whole:
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise SettingError(f"{name} is {value!r}; give a whole number of at least {low}.")
    if not isinstance(quorum, (int, float)) or isinstance(quorum, bool) or not 0 < quorum <= 1:
        raise SettingError(f"quorum is {quorum!r}; give a fraction of the sites, above 0 up to 1.")


def load(folder: str | Path) -> Fit:
    """Read a model from `Fit.save` or a study, or an XGBoost model file in JSON.

    Raises
    ------
    DataError : a file is missing, damaged, or of another format.
    NotSupported : an XGBoost model of a kind that is not read.
    """
    path = Path(folder)
    if path.is_file() and not (path.parent / "model.safetensors").exists():
        from fedcohort.study.results import xgboost_model  # boosting is slow to import

        parts = xgboost_model.read(path)
    else:
        parts = saved.read(path)
    return Fit(parts.method, {}, parts)
