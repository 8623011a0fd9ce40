"""Particulars of an arm's model in words, and the steps of its ratios.

A coefficient b is per unit of the covariate as the fit saw it, which is `scale` units of the
column. The ratio for a step of p units is exp(f b) with f = p / scale, as are its ends. A number's
step is

    the dictionary's (`per`),
    else one standard deviation, if numbers were scaled by it,
    else the round number 1, 2 or 5 times a power of ten that is nearest to the standard deviation
    of Table 1 (of an integer at least 1),
    else, if Table 1 hides that, the same of c scale / s, with s the coefficient's standard error
    and c the median of sd s / scale over the fit's numbers with a visible standard deviation,
    else one unit of the covariate as the fit saw it.

Coefficients stay as the fit has them, so that they and the rest of a model define it; where they
are no logarithms of ratios, the step is one unit as the fit saw it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from fedcohort.data.prepare import IMPUTERS, TABLES
from fedcohort.report import words
from fedcohort.report.words import number

if TYPE_CHECKING:
    from fedcohort.report.run import Arm

Row = Mapping[str, Any]

#: Settings that are the size of a penalty; 0 is none.
_PENALTIES = ("penalty", "l1", "l2")
#: Settings that are the size of an ensemble of trees, by one that only it has.
_TREES = {
    "max_depth": ("strategy", "objective", "rounds", "learning_rate", "max_depth"),
    "candidates": ("strategy", "trees", "depth"),
    "leaf_start": ("trees", "depth"),
}
#: Limits of the effects of columns, in words.
_LIMITS = {"increasing": "never falling in {}", "decreasing": "never rising in {}"}


def tuned(choices: Iterable[Row]) -> dict[str, str]:
    """Return each setting's most frequent tuned value, and how other choices differ.

    Parameters
    ----------
    choices : rows of `tuning` in results.json, of one arm; failed ones chose nothing.
    """
    made = [dict(row.get("chosen") or {}) for row in choices]
    return {
        name: _most([chosen[name] for chosen in made if name in chosen])
        for name in dict.fromkeys(name for chosen in made for name in chosen)
    }


def _most(values: list[Any]) -> str:
    """Return ``0.1 (tuned)``, or ``0.1 (tuned; in 3 of 5 choices, which go from 0.01 to 1)``."""
    (first, times), *rest = Counter(map(words.value, values)).most_common()
    if not rest:
        return f"{first} (tuned)"
    numbers = [v for v in values if words.number(v) == words.number(v)]
    if len(numbers) == len(values):
        others = f"which go from {words.value(min(numbers))} to {words.value(max(numbers))}"
    else:
        others = f"the others being {words.listed([text for text, _ in rest])}"
    return f"{first} (tuned; in {times} of {len(values)} choices, {others})"


def particulars(settings: Mapping[str, Any], chosen: Mapping[str, str]) -> list[str]:
    """Return what a methods paragraph says of an arm besides its method's name.

    Parameters
    ----------
    settings : the arm's, with defaults.
    chosen : what tuning chose, as `tuned` says it.
    """
    said = [
        text.format(settings[key])
        for key, text in (
            ("offset", "offset {}"),
            ("weights", "rows weighted by {}"),
            ("strata", "a baseline hazard for each level of {}"),
        )
        if settings.get(key)
    ]
    if settings.get("baseline") == "stratified":
        said.append("a baseline hazard for each site")
    sizes = [name for own, names in _TREES.items() if own in settings for name in names]
    said += [
        f"{words.spaced(name)} {words.value(settings[name])}"
        for name in sizes
        if name not in chosen and settings.get(name, "auto") != "auto"
    ]
    if settings.get("refined", "none") != "none":
        said.append(
            f"columns placed as an image by REFINED (Bazgir et al. 2020; distances from "
            f"{'sums' if settings['refined'] == 'sums' else 'rows of the coordinator'})"
        )
    for name in _PENALTIES:
        if name not in chosen and (text := _penalty(name, settings)):
            said.append(text)
    said += [
        text.format(words.listed(list(settings[name])))
        for name, text in _LIMITS.items()
        if settings.get(name)
    ]
    if settings.get("class_weight") == "balanced":
        said.append("classes weighted alike")
    return [*said, *(f"{words.spaced(name)} {text}" for name, text in chosen.items())]


def imputed(arms: Iterable[Arm]) -> dict[str, list[str]]:
    """Return the titles of arms by the method with which their missing values were filled."""
    found: dict[str, list[str]] = {}
    for arm in arms:
        if method := arm.settings.get("impute"):
            name = several_tables(arm.settings) if method == "multiple" else str(method)
            found.setdefault(name, []).append(arm.title)
    return found


def several_tables(settings: Mapping[str, Any]) -> str:
    """Return how several tables were imputed, and what became of them."""
    tables = settings.get("imputations", TABLES)
    imputer = settings.get("imputer", IMPUTERS[0])
    return f"multiple, {tables} tables by {imputer}, pooled by Rubin’s rules"


def _penalty(name: str, settings: Mapping[str, Any]) -> str:
    """Return how a penalty was set; "" where there is none."""
    value = settings.get(name)
    if value == "auto" and (settings.get("l1") or settings.get("l2")):
        return ""
    if value == "auto":
        if settings.get("rule") == "bic":
            return "penalty chosen by the Bayesian information criterion"
        held = (
            "rows" if settings.get("folds") == "rows" else "sites, or of rows where these are few"
        )
        within = ", the largest within one standard error" * (settings.get("rule") == "1se")
        return f"penalty chosen by cross-validation over folds of {held}{within}"
    size = words.number(value)
    return f"{words.spaced(name)} {words.value(value)}" if size == size and size else ""


def stepped(rows: Iterable[Row], scale: str, variables: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows of coefficients with ``step``, in words, and its ``factor`` f; ratios are for it.

    Parameters
    ----------
    rows : of results.json, of one arm; one without ``scale``, as of a level, stays unchanged. Of
        several fits the first gives the steps that Table 1 does not.
    scale : the arm's scaling of numbers, such as "standard".
    variables : Table 1, as in results.json.
    """
    spreads = {
        str(v["name"]): max(number(v.get("sd")), 1.0 if v.get("type") == "integer" else 0.0)
        for v in variables
        if v.get("site") is None and number(v.get("sd")) > 0
    }
    rows = list(rows)
    known = [1 / (w * spreads[n]) for n, w in _widths(rows) if n in spreads]
    if known:  # errors of one fit are about in proportion to 1 / sd
        for name, width in _widths(rows):
            spreads.setdefault(name, 1 / (width * median(known)))
    return [_stepped(dict(row), scale, spreads) for row in rows]


def _widths(rows: Iterable[Row]) -> Iterator[tuple[str, float]]:
    """Yield each number's name, and its coefficient's standard error for one unit of the column."""
    for row in rows:
        width = number(row.get("standard_error")) / (number(row.get("scale")) or math.nan)
        if 0 < width < math.inf:
            yield str(row["covariate"]), width


def _stepped(row: dict[str, Any], scale: str, spreads: Mapping[str, float]) -> dict[str, Any]:
    one = number(row.get("scale"))
    if not one > 0:
        return row
    unit = str(row.get("unit") or "")
    unit = f" × {unit}" if unit[:1].isdigit() else f" {unit}" if unit else ""
    ratios = [key for key in row if key.endswith("_ratio")]
    step = number(row.get("per")) if ratios else one
    if scale == "standard" and not (step > 0 and ratios):
        return row | {"step": f"per SD ({one:.3g}{unit})", "factor": 1.0}
    if not step > 0:
        spread = spreads.get(str(row["covariate"]), math.nan)
        step = round_step(spread) if spread > 0 else one
    b = number(row.get("coefficient")) * step / one
    shown = dict.fromkeys(ratios, math.exp(b) if b < 709.0 else math.inf)
    return row | shown | {"step": f"per {step:.4g}{unit}", "factor": step / one}


def round_step(spread: float) -> float:
    """Return the number 1, 2 or 5 times a power of ten that is nearest to `spread`, as a ratio."""
    power = 10.0 ** math.floor(math.log10(spread))
    steps = [power * k for k in (1.0, 2.0, 5.0, 10.0)]
    nearest = min(steps, key=lambda s: abs(math.log(s / spread)))
    return float(f"{nearest:.1g}")


def penalty_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the penalty that shrinks a fit's coefficients; "" without one."""
    return next((str(r["shrunken"]) for r in rows if r.get("shrunken")), "")


def is_posterior(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether coefficients, or parameters beside them, are of a posterior."""
    return any(r.get("above_0") is not None for r in rows)


def scale_of(settings: Mapping[str, Any], preprocess: Mapping[str, Any]) -> str:
    """Return how an arm scales numbers."""
    return str(settings.get("scale") or preprocess.get("scale") or "")
