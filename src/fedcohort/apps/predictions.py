"""A saved model applied to a table, once that is checked against the model's dictionary.

A row that cannot be taken holds a level, a text or a date that the dictionary does not know. Such
rows are named and nothing is predicted, or, with `skip`, they are left empty. A value outside the
dictionary's range is named and predicted all the same: that is the clinician's to judge. So is a
missing value, which is filled in as in the fit, or left missing where the fit left them so. A table
may lack a view as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import OTHER_LEVEL, level_remedies, number_remedies
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.encode import Unfit, column_of, read_numbers
from fedcohort.data.outcome import Binary, Category, Survival
from fedcohort.data.prepare import Design
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import texts
from fedcohort.data.read.csvcells import harmless
from fedcohort.data.read.sql import is_url
from fedcohort.data.words import rows
from fedcohort.metrics import classes
from fedcohort.metrics.uncertainty import epistemic_share
from fedcohort.protocol import DataError, NotSupported, StudyError, registry
from fedcohort.report.clock import said
from fedcohort.study.api import Fit, load

#: Survival curves are computed for so many numbers at a time.
CURVES = 1 << 22
#: A model that knows survival at fewer times says so.
COARSE = 20
#: So many columns that are filled in are named, those with most missing values first.
FILLED_NAMED = 3
#: A prediction is written with so many digits that matter.
DIGITS = 6


@dataclass(frozen=True)
class Predictions:
    """One row for each of a table's, and what a reader of them should know.

    Attributes
    ----------
    table : `row` (from 1), the column to join by if one is asked for, the prediction (of several
        classes the likeliest and the probability of each), what a posterior tells of it
        (`_posterior`), and for survival the median time and the survival at given times; empty
        where a row was skipped, or where the curve does not fall to 1/2.
    warnings : one line each, without any value.
    """

    table: pd.DataFrame
    warnings: tuple[str, ...]

    @property
    def csv(self) -> str:
        """The table as CSV text, with `DIGITS` digits that matter."""
        shown = self.table.rename(columns=harmless)
        for name in shown.select_dtypes(exclude=["number", "bool"]).columns:
            shown[name] = shown[name].map(harmless)
        return shown.to_csv(index=False, lineterminator="\n", float_format=_shown)


def _shown(number: Any) -> str:
    return f"{number:.0f}" if number.is_integer() else f"{number:.{DIGITS}g}"


def predict(
    model: Path,
    table: str,
    *,
    times: str | None = None,
    query: str = "",
    skip: bool = False,
    join: str | None = None,
    details: bool = False,
) -> Predictions:
    """Apply a saved model to a table.

    Parameters
    ----------
    table : a CSV or Parquet file, or the URL of a database.
    times : at which to give survival, separated by commas; by default the model's own.
    query : what to ask the database.
    skip : whether rows that cannot be taken are left empty.
    join : a column to repeat, as text, by which the predictions can be joined to the table.
    details : whether each column that is filled in is named with its rows.

    Raises
    ------
    DataError : no such model or table, a missing column, a row that cannot be taken.
    StudyError : `times` are no positive numbers, the model has no survival curve, a query is
        given for a file, or `join` is called as a column of predictions is.
    """
    fit = load(model)
    grid = _times(times, fit)
    if query and not is_url(table):
        raise StudyError("--query: it is for a database; give its URL in place of a file.")
    source = sources.load(
        table, Path(), query=query, dictionary=fit.parts.dictionary, texts=[join] if join else ()
    )
    where = "the query's table" if is_url(table) else table
    if not isinstance(source.frames, pd.DataFrame):
        raise DataError(f"{where}: expected one table.")
    frame = source.frames
    try:
        unfit = _unfit(fit.parts.design, frame)
        keys = {} if join is None else {join: texts(column_of(frame, join))}
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if unfit and not skip:
        first, *others = dict.fromkeys(u.column for u in unfit)
        lines = " ".join(u.line for u in unfit if u.column == first)
        more = f" So it is with {', '.join(map(repr, others))}." if others else ""
        raise DataError(f"{where}: {lines}{more} Option --skip predicts the other rows.")
    bad = np.any([np.zeros(len(frame), bool), *(u.rows for u in unfit)], axis=0)
    warnings = [u.line for u in unfit]
    warnings += [f"no prediction for {rows(bad)}."] if bad.any() else []
    warnings += _out_of_range(fit.parts.design, fit.parts.dictionary, frame)
    warnings += _filled_in(fit.parts.design, frame, bad, details=details)
    found, late = _predicted(fit, frame.loc[~bad].reset_index(drop=True), grid)
    if join in (known := ["row", *found]):
        raise StudyError(f"--id {join}: there is such a column already: {', '.join(known)}.")
    out: dict[str, Any] = {"row": np.arange(1, len(frame) + 1), **keys}
    for name, values in found.items():
        out[name] = values
        if bad.any():
            text = values.dtype == object
            out[name] = np.full(len(frame), "" if text else np.nan, object if text else float)
            out[name][~bad] = values
    return Predictions(pd.DataFrame(out), tuple(f"{where}: {w}" for w in [*warnings, *late]))


def _unfit(design: Design, frame: pd.DataFrame) -> list[Unfit]:
    """Return every cell that the design cannot read.

    Raises
    ------
    DataError : columns are missing, all of them named.
    """
    gone = design.encoding.lacking(frame)
    variables = [v for v in design.encoding.variables if v.view not in gone]
    origins = [v.since for v in variables if v.since and v.since_day is None]
    roles = [name for name in (design.offset, design.strata) if name]
    needed = dict.fromkeys([*(v.name for v in variables), *origins, *roles])
    lacking = [n for n in needed if n not in frame.columns]
    try:
        found = design.unfit(frame)
        return [part for one in found for part in _explained(one, frame, variables)]
    except DataError as error:
        called = {design.strata: " (the strata)"}
        said = str(error)
        more = [f"{n!r}{called.get(n, '')}" for n in lacking if f"no column {n!r}" not in said]
        raise DataError(f"{said} Missing too: {', '.join(more)}." if more else said) from None


def _explained(unfit: Unfit, frame: pd.DataFrame, variables: Sequence[Variable]) -> list[Unfit]:
    """Divide cells that cannot be read by what helps them, as `fedcohort data check` does."""
    variable = next((v for v in variables if v.name == unfit.column and not v.since), None)
    if variable is None:
        return [unfit]
    what, _, otherwise = unfit.line.partition(". ")
    column = column_of(frame, unfit.column)
    if variable.coded:
        parts = level_remedies(column, unfit.rows, variable)
    else:
        parts = number_remedies(column, unfit.rows, otherwise)
    what = what.removesuffix(rows(unfit.rows))
    return [
        Unfit(
            unfit.column, at, f"{what}{rows(at)}. {otherwise if remedy == OTHER_LEVEL else remedy}"
        )
        for remedy, at in parts.items()
    ]


def _filled_in(design: Design, frame: pd.DataFrame, bad: Array, *, details: bool) -> list[str]:
    """Return what is said of missing values in rows that are predicted.

    details : whether each column has a line with its rows; by default all of them have one.
    """
    at = np.flatnonzero(~bad)
    encoding = design.encoding
    read = encoding(frame.iloc[at])
    empty = {
        **dict(zip((v.name for v in encoding.numeric), map(np.isnan, read.numbers), strict=True)),
        **dict(zip((v.name for v in encoding.coded), (c < 0 for c in read.codes), strict=True)),
    }
    gone = {name: missing for name, missing in empty.items() if missing.any()}
    how = "missing" if design.impute == "none" else "filled in as in the fit"

    def where(missing: Array) -> str:
        which = np.zeros(len(frame), bool)
        which[at[missing]] = True
        return rows(which)

    if details or len(gone) < 2:
        return [f"column {name!r} is {how} in {where(missing)}." for name, missing in gone.items()]
    most = sorted(gone, key=lambda name: -int(gone[name].sum()))[:FILLED_NAMED]
    named = ", ".join(f"{name!r} in {gone[name].mean():.0%}" for name in most)
    more = ", …" if len(gone) > len(most) else ""
    some = int(np.any([*gone.values()], axis=0).sum())
    return [
        f"{len(gone)} columns have cells that are {how}, in {some:,} of {len(at):,} rows: {named}"
        f"{more}. --details names the rows."
    ]


def _out_of_range(design: Design, dictionary: Dictionary, frame: pd.DataFrame) -> list[str]:
    """Return a warning for each column with values outside the dictionary's range."""
    found: list[str] = []
    for v in (dictionary[c.name] for c in design.columns if c.name in dictionary):
        if v.range == (None, None) or v.name not in frame.columns:
            continue
        values, _ = read_numbers(frame, v)
        low, high = (np.nan if end is None else end for end in v.range)
        if (out := (values < low) | (values > high)).any():
            found.append(
                f"column {v.name!r} is outside the dictionary's range in {rows(out)}; predicted "
                f"all the same."
            )
    return found


def _predicted(fit: Fit, frame: pd.DataFrame, times: Array) -> tuple[dict[str, Array], list[str]]:
    """Return columns of predictions (n,) by name, and warnings about the times."""
    outcome, gives = fit.parts.design.outcome, registry.find(fit.method).gives
    if "predict" not in gives and "transform" in gives:
        points = np.asarray(fit.transform(frame))
        return {f"latent {i}": z for i, z in enumerate(points.T, 1)}, []
    if isinstance(outcome, Category) and fit.classes:
        found = _of_classes(fit, frame)
        return found, _posterior(fit, frame, found)
    name = "cluster" if "clustering" in registry.find(fit.method).tasks else "value"
    yes = "risk" if registry.find(fit.method).overrides("intervals") else "probability"
    for kind, word in ((Survival, "risk"), (Binary, yes)):
        if isinstance(outcome, kind):
            name = word
    found = {name: np.asarray(fit.predict(frame))}
    warnings = _posterior(fit, frame, found)
    if not _has_curve(fit):
        return found, warnings
    unit = _unit(fit)
    found |= _risk_by(fit, frame)
    curve = fit.model.arrays().get("times")
    closed = fit.model.median_survival(fit.parts.design.matrix(frame))
    if curve is not None or closed is not None:
        if curve is not None and len(curve) < COARSE:
            warnings.append(
                f"the model knows survival at {len(curve)} time{'s' * (len(curve) > 1)} only, "
                f"because times of death are few, or were joined so that none stands for few "
                f"patients (time_grid)."
            )
        known = _time(_end(fit, frame, curve), unit)
        end = f"{known}, the last time up to which the sites' sums tell it"
        medians = closed if curve is None else _medians(fit, frame, curve)
        found["median survival time" + f" ({unit})" * bool(unit)] = medians
        survival = fit.predict_survival(frame, times, warn=False)
        if (unreached := np.isnan(medians)).any():
            warnings.append(
                f"the median survival time is empty in {int(unreached.sum())} of {len(frame)} "
                f"rows: their survival stays above 1/2 up to {end}."
            )
        late = [name for name, v in found.items() if v is not medians and np.isnan(v).any()]
        if at := [_time(t, unit) for t in times[np.isnan(survival).any(axis=0)].tolist()]:
            late.append(f"survival at {', '.join(at)}")
        warnings += [f"{what} is empty: it is known up to {end}." for what in late]
    elif len(times):
        survival = fit.predict_survival(frame, times, warn=False)
    else:
        return found, []
    named = {f"survival at {_time(t, unit)}": survival[:, i] for i, t in enumerate(times.tolist())}
    return found | named, warnings


def _posterior(fit: Fit, frame: pd.DataFrame, found: dict[str, Array]) -> list[str]:
    """Add to `found` what a posterior tells of each row; return what its interval is of.

    The ends of the credible interval at the model's own level, the share of the outcome's variance
    that is due to the model's parameters, and how unlike the training rows a row is; each of them
    only where the model gives it.
    """
    told: list[str] = []
    outcome, method = fit.parts.design.outcome, registry.find(fit.method)
    if method.overrides("intervals") and not isinstance(outcome, Category):
        name, level = next(iter(found)), float(fit.model.level)
        ends = fit.intervals(frame, level)
        found |= {f"{name}_{end}": ends[end].to_numpy() for end in ("low", "high")}
        of = {
            "survival": "the risk score", "binary": "the risk, a probability",
            "count": "the mean count",
        }  # fmt: skip
        what = of.get("" if outcome is None else outcome.type, "a new patient's value")
        told.append(
            f"{name}_low and {name}_high are the ends of the {100 * level:.4g} % credible interval "
            f"of {what}."
        )
    if method.overrides("uncertainty"):
        with suppress(NotSupported):  # times
            found["model_uncertainty"] = epistemic_share(fit.uncertainty(frame).to_numpy().T)
    if method.overrides("unlike_training"):
        with suppress(NotSupported):  # a fit at exact times
            found["unlike_training"] = fit.unlike_training(frame)
    return told


def _of_classes(fit: Fit, frame: pd.DataFrame) -> dict[str, Array]:
    """Return the likeliest class (n,), and the probability of each; the first of equal ones."""
    p = np.asarray(fit.predict(frame), float)
    likeliest = np.array(fit.classes, object)[classes.likeliest(p)]
    return {"class": likeliest} | {
        f"probability of {level}": p[:, k] for k, level in enumerate(fit.classes)
    }


def _time(time: float, unit: str) -> str:
    """Return a time with its unit; without one ``time 1000``, a number on the table's own clock."""
    return said(time, unit) if unit else f"time {time:.6g}"


def _unit(fit: Fit) -> str:
    """Return the unit of the model's times; "" where its dictionary has none."""
    outcome, dictionary = fit.parts.design.outcome, fit.parts.dictionary
    return "" if outcome is None else outcome.time_unit(dictionary)


def _risk_by(fit: Fit, frame: pd.DataFrame) -> dict[str, Array]:
    """Return the risk of the event by the study's horizon (n,), where it has one."""
    asked: Any = fit.parts.notes.get("horizon") or {}
    time = asked.get("time") if isinstance(asked, dict) else None
    if not isinstance(time, (int, float)) or not time > 0:
        return {}
    alive = fit.predict_survival(frame, np.array([float(time)]), warn=False)[:, 0]
    return {f"risk by {asked.get('text') or _time(float(time), _unit(fit))}": 1.0 - alive}


def _end(fit: Fit, frame: pd.DataFrame, curve: Array | None) -> float:
    """Return the last time at which the survival of any row is known."""
    if curve is not None:
        return float(curve.max(initial=0.0))
    return float(fit.model.known_until(fit.parts.design.matrix(frame)).max(initial=0.0))


def _medians(fit: Fit, frame: pd.DataFrame, curve: Array) -> Array:
    """Return the first time of `curve` (T,) at which survival is at most 1/2 (n,), else NaN."""
    found = np.full(len(frame), np.nan)
    if not len(curve):
        return found
    size = max(1, CURVES // len(curve))
    for start in range(0, len(frame), size):
        rows_here = frame.iloc[start : start + size]
        half = fit.predict_survival(rows_here, curve, warn=False) <= 0.5
        falls = half.any(axis=1)
        found[start : start + size][falls] = curve[half.argmax(axis=1)[falls]]
    return found


def _has_curve(fit: Fit) -> bool:
    outcome = fit.parts.design.outcome
    timed = outcome is not None and outcome.kind == "survival"
    return timed and "predict_survival" in registry.find(fit.method).gives


def _times(text: str | None, fit: Fit) -> Array:
    """Return the times at which to give survival."""
    if text is None:
        kept: Any = fit.parts.notes.get("times", [])
        return np.array(kept, float)
    if not _has_curve(fit):
        raise StudyError(f"--times: a model of method {fit.method!r} has no survival curve.")
    try:
        grid = np.array([float(part) for part in text.split(",")])
    except ValueError:
        grid = np.array([-1.0])
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise StudyError("--times: expected positive numbers separated by commas, such as 365,730.")
    return grid
