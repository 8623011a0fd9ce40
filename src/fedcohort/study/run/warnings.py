"""Warnings about fits with too few rows: too many parameters, or too much noise.

**Parameters.** A regression has one for each column of x; a perceptron of widths p, h₁, …, h_k, 1

    Σ_i (w_i + 1) w_{i+1},   w = (p, h₁, …, h_k, 1)                                         (1)

and of K > 2 classes K − 1 for each column, or a last width of K.

Settings of other models state it by a method ``free_parameters(features)``, and with ``by_class``
``(features, classes)``; curves and tables have none. An intercept, a baseline hazard and parameters
for sites do not count: a site has many rows for each. Nor do the leaves of trees whose settings
have ``rows_of_leaf(min_cell)``, the fewest rows of each, which is said in their place. Penalties
are ignored. `privacy.disclosure.models` has the rule.

**Noise.** A release of multiplier z has noise of standard deviation z Δ in each number (Laplace: √2
z Δ). A record moves it by at most Δ, so n records by at most n Δ. Over all releases of a fit, r_i
of each kind, with samples of q_i, the signal of all records together is at most

    n √(Σ r_i q_i²/z_i²)  standard deviations                                              (2)

in the one direction in which all of them agree. Below 1 noise exceeds the signal. It is a bound:
well above 1 a fit may be useless too. (2) grows with ε, so the least ε for n records is found by
bisection, to one digit.

results.json and the report show both, by arm. The warning about noise is also logged before the
fit.

Revealed: number of sites with too few rows, if a report states it; the rest follows from a study's
text and the number of records (or sites).
"""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedcohort.data.outcome import levels_of
from fedcohort.data.prepare import Design
from fedcohort.data.variable import Variable
from fedcohort.data.words import first_of
from fedcohort.privacy.disclosure.models import ROWS_EACH, most_parameters
from fedcohort.protocol import Dp, Method, Release, SettingError, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.run import private
from fedcohort.study.run.engine import Run

if TYPE_CHECKING:
    from fedcohort.study.at_site.table import SiteTable


def free_parameters(method: str, settings: dict[str, Any], features: int, classes: int = 0) -> int:
    """Return the number of free parameters of a model of `features` columns of x.

    Parameters
    ----------
    classes : of the outcome; with more than two, a model may have parameters for each.
    """
    known = registry.find(method)
    config: Any = known.configure(settings)
    if "curves" in known.gives or not {"predict", "transform"} & known.gives:
        return 0
    by_class = getattr(config, "by_class", False)
    if hasattr(config, "rows_of_leaf"):
        return 0
    if hasattr(config, "free_parameters"):
        return config.free_parameters(*(features, classes)[: 1 + by_class])
    hidden: Sequence[int] = getattr(config, "hidden", ())
    several = classes if classes > 2 and by_class else 0
    if not hidden or not features:
        return features * max(several - 1, 1)
    return sum((a + 1) * b for a, b in pairwise((features, *hidden, max(several, 1))))


def rows_of_leaf(method: str, settings: dict[str, Any], min_cell: int) -> int:
    """Return the fewest rows of each leaf of a model of trees over several sites; 0 of others."""
    config: Any = registry.find(method).configure(settings)
    return config.rows_of_leaf(min_cell) if hasattr(config, "rows_of_leaf") else 0


def columns_of(features: Iterable[Variable], frame: pd.DataFrame) -> int:
    """Return roughly how many columns of x a table's features give, before any is dropped."""
    return sum(
        max(len(v.levels or frame[v.name].dropna().unique()) - 1, 0) if v.type == "category" else 1
        for v in features
        if v.name in frame
    )


def too_many(table: SiteTable) -> Iterator[tuple[str, int]]:
    """Yield each arm of a study with more free parameters than a site's rows allow.

    Gives its name and the rough number; for a tuned arm, with the settings in the study file.
    """
    plan = table.terms.plan
    rows = round((1 - plan.test_fraction) * len(table.frame))
    features = columns_of(table.terms.dictionary.features(table.outcome), table.frame)
    classes = len(levels_of(table.outcome, table.terms.dictionary))
    for arm in plan.arms:
        n = free_parameters(arm.method, arm.configured(), features, classes)
        if n > most_parameters(rows):
            yield arm.name, n


def crowded(parameters: int, rows: Iterable[int | None]) -> str:
    """Return a note on the sites with too few rows for a model's parameters; "" without such sites.

    Parameters
    ----------
    rows : training rows of each site; None if hidden: such a site is not checked.
    """
    known = [n for n in rows if n is not None]
    few = sum(parameters > most_parameters(n) for n in known)
    if not few:
        return ""
    return (
        f"{parameters} free parameters, and fewer than {ROWS_EACH} rows for each at {few} of "
        f"{len(known)} sites: the model may hold single rows"
    )


#: Values of ε with one digit: 1, 2, … 9 times each power of ten.
DIGITS = tuple(float(f"{d}e{power}") for power in range(-12, 4) for d in range(1, 10))


def needed(releases: Sequence[Release]) -> float:
    """Return n, records or sites, for which eq. (2) is 1."""
    spread = {"gaussian": 1.0, "laplace": math.sqrt(2.0)}
    told = sum(r.count * (r.sampling / (spread[r.mechanism] * r.noise)) ** 2 for r in releases)
    return 1.0 / math.sqrt(told)


def drowned(method: Method, config: Any, dp: Dp | None, units: int) -> str:
    """Return a note if noise exceeds the signal, with the least sufficient ε; "" otherwise.

    Parameters
    ----------
    units : number of training records, or of sites if these are protected.
    """
    if dp is None or units >= needed(private.releases(method, config, dp)):
        return ""
    what = "sites" if dp.unit == "site" else "records"
    said = (
        f"epsilon {dp.epsilon:g} needs noise above the signal of all {what} together: the result "
        f"holds no information on them"
    )
    least = next(_enough(method, config, dp, units), None)
    return said if least is None else f"{said}; the smallest sufficient epsilon is {least:g}"


def _enough(method: Method, config: Any, dp: Dp, units: int) -> Iterator[float]:
    """Yield the least sufficient ε of one digit for so many units, if there is one."""

    def enough(epsilon: float) -> bool:
        try:
            listed = private.releases(method, config, replace(dp, epsilon=epsilon))
        except SettingError:  # ε too small for any noise that can be drawn
            return False
        return units >= needed(listed)

    larger = [e for e in DIGITS if dp.epsilon < e <= 1000.0]
    yield from larger[bisect.bisect_left(larger, True, key=enough) :][:1]


#: Number of imputed columns that a note names.
FILLED_NAMED = 5

_log = logging.getLogger(__name__)


def crowded_notes(
    run: Run, arm: Arm, chosen: Mapping[str, Any], rows: Iterable[int | None]
) -> list[dict[str, str]]:
    """Return notes on too many parameters for some sites' rows, and the model's own notes.

    The model's own have ``about: "fit"``.

    Parameters
    ----------
    rows : training rows of each site; None if hidden.
    """
    if arm.scope != "sites":
        return []
    features = len(run.design.features) - bool(run.design.offset)
    classes = len(run.design.classes)
    n = free_parameters(arm.method, arm.configured(chosen), features, classes)
    note = crowded(n, rows)
    own = [{"note": told, "about": "fit"} for told in run.model.cautions() if told]
    return [{"note": note}] * bool(note) + own


def filled_note(design: Design) -> str:
    """Return a note on columns with many imputed values; "" without any.

    Intervals treat imputed values as measured.
    """
    if not design.filled:
        return ""
    most = sorted(design.filled, key=lambda name: -design.filled[name])
    listed = first_of([f"{name!r} ({design.filled[name]:.0%})" for name in most], FILLED_NAMED)
    return (
        f"missing values are filled in (impute: {design.impute}) in many rows of {listed}. "
        f"Intervals are too narrow and effects may be biased; leave the column out, or try impute: "
        f"{'indicator' if design.impute == 'iterative' else 'iterative'}"
    )


def filled_rows(design: Design) -> list[dict[str, Any]]:
    """Return a row for each column with many imputed values: share and method."""
    return [
        {"column": name, "share": share, "impute": design.impute}
        for name, share in design.filled.items()
    ]


def drowned_notes(
    arm: Arm, chosen: Mapping[str, Any], dp: Dp | None, rows: Iterable[int | None]
) -> list[dict[str, str]]:
    """Return a note if a fit's noise exceeds its signal, and log it.

    Parameters
    ----------
    dp : privacy of the fit; None without noise.
    rows : as `crowded_notes`; no note if any is hidden.
    """
    every = list(rows)
    if dp is None or arm.scope != "sites" or None in every:
        return []
    units = len(every) if dp.unit == "site" else sum(n or 0 for n in every)
    method = registry.find(arm.method)
    note = drowned(method, method.configure(arm.configured(chosen)), dp, units)
    if note:
        _log.warning("arm %s: %s", arm.name, note)
    return [{"note": note}] if note else []
