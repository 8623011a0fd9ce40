"""Coefficients, or their ratios, as a forest plot, and the table a statistician asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts.scales import Domain, around
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open, more
from fedcohort.report.sections.parameters import level_of, parameters
from fedcohort.report.words import effect, fixed, number, ratio

Row = Mapping[str, Any]

_UNITS = {
    "standard": "numbers per standard deviation, levels against the first",
    "minmax": "numbers from their 0.5 % to their 99.5 % quantile, levels against the first",
    "quantile": "numbers from their lowest to their highest rank, levels against the first",
    "none": "numbers per unit, levels against the first",
}


_PLAIN = {
    "hazard ratio": "Hazard ratio: by how much the rate of the event is multiplied. Right of 1, "
    "the event comes sooner; left of 1, later.",
    "odds ratio": "Odds ratio: by how much the odds of the outcome are multiplied. Right of 1, "
    "the outcome is more frequent; left of 1, less.",
    "rate ratio": "Rate ratio: by how much the expected count is multiplied. Right of 1, there are "
    "more; left of 1, fewer.",
    "mean ratio": "Mean ratio: by how much the expected value is multiplied. Right of 1, it is "
    "higher; left of 1, lower.",
    "coefficient": "Coefficient: what is added to the expected value. Right of 0, it is higher; "
    "left of 0, lower.",
}
#: What a coefficient is that is no ratio, where the outcome has classes.
_SCORE = (
    "Coefficient: what is added to the score from which the probability follows. Right of 0, the "
    "outcome is more frequent; left of 0, less."
)
_SHORT = {"hazard ratio": "HR", "odds ratio": "OR", "rate ratio": "RR", "mean ratio": "MR"}
#: What a fit calls the constant, whose size tells nothing beside the others.
_CONSTANTS = ("intercept", "(intercept)", "(Intercept)")


def section(run: Run) -> Section | None:
    """Return a forest plot and a table for each arm that has coefficients."""
    blocks = [(arm, b) for arm in run.arms if (b := _block(run, arm)) is not None]
    if not blocks:
        return None
    kinds = dict.fromkeys(_kind(c) for c in run.rows("coefficients"))
    plain = _PLAIN if run.task == "regression" else _PLAIN | {"coefficient": _SCORE}
    what = " ".join(plain[k] for k in kinds if k in plain)
    ends = " or ".join(dict.fromkeys(f"{_reference(k):g}" for k in kinds))
    with_bars = {str(c["arm"]) for c in run.rows("coefficients") if _has_interval(c)}
    every = with_bars == {str(c["arm"]) for c in run.rows("coefficients")}
    levels = dict.fromkeys(level_of(arm) for arm in run.arms if arm.name in with_bars)
    what_bars = f"{words.listed(list(levels))} intervals"
    are = f"Bars are {what_bars}" if every else f"Bars, of arms that have them, are {what_bars}"
    bars = f" {are}; where a bar crosses {ends}, the data leave the direction open."
    bars = bars if with_bars else ""
    goes = "outcome" if run.task == "regression" else "risk"
    return Section(
        "coefficients", "Coefficients", f"Which covariates go with the {goes}?",
        f"{what}{bars} An association is not yet a cause.", h("div", leading_open(run, blocks)),
    )  # fmt: skip


def _has_interval(c: Row) -> bool:
    """Return whether a coefficient has an interval."""
    return not math.isnan(number(c.get("low")))


def _block(run: Run, arm: Arm) -> Markup | None:
    """Return one arm's picture and table, of its first fit."""
    every = [c for c in run.rows("coefficients") if c["arm"] == arm.name]
    order = list(run.scenarios)
    fits = sorted(
        {(str(c["scenario"]), int(c.get("repeat") or 0)) for c in every},
        key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k[1]),
    )
    if not fits:
        return None
    first = [c for c in every if (str(c["scenario"]), int(c.get("repeat") or 0)) == fits[0]]
    spread = _spread(every) if len(fits) > 1 else {}
    unit = _UNITS.get(str(arm.settings.get("scale") or run.mapping("preprocess").get("scale")))
    note = [unit] if unit else []
    if not any(map(_has_interval, first)):
        note.append("this method gives no intervals")
    if len(fits) > 1:
        note.append(
            f"first of {len(fits)} fits ({run.scenarios.get(fits[0][0], fits[0][0])}); the pale "
            "line spans all fits"
        )
    note += [
        f"{p['column']}, other levels: {', '.join(p['levels'])} (fewer than {p['least']} rows "
        "each, or the next rarest; pooled)"
        for p in run.rows("pooled")
        if (p["arm"], str(p["scenario"]), int(p["repeat"])) == (arm.name, *fits[0])
    ]
    if _gridded(first):
        note.append(
            "grid shift: by how much the time grid moves the coefficient, in standard errors, as "
            "the sites' own risk sets tell"
        )
    kind = _kind(first[0])
    log = kind != "coefficient"
    drawn = [c for c in first if c["covariate"] not in _CONSTANTS]
    domain = _domain(drawn, spread)
    pages = [drawn[i : i + charts.MOST_ROWS] for i in range(0, len(drawn), charts.MOST_ROWS)]
    figures = [
        charts.figure(
            f"coefficients-{arm.name}" + f"-{i + 1}" * (len(pages) > 1),
            arm.title + f", part {i + 1} of {len(pages)}" * (len(pages) > 1),
            "; ".join(note) or None,
            charts.interval_rows(
                [_row(c, spread.get(str(c["covariate"]))) for c in page],
                f"{kind.capitalize()}, log scale" if log else _axis(run),
                log=log,
                reference=_reference(kind),
                domain=domain,
            ),
            [_data(arm, kind, c) for c in page],
            "; ".join(f"{c['covariate']}: {kind} {_shown(c)}" for c in page) + ".",
        )
        for i, page in enumerate(pages)
    ]
    level = level_of(arm)
    rest = [_between(first, kind), parameters(run, arm, fits[0], level)]
    numbers = [*figures[1:], _table(first, spread, kind, level), *rest]
    if len(first) > charts.MOST_ROWS:
        numbers = [more(f"All {words.of(len(first), 'row')}, and the rest of the model", *numbers)]
    return h("div", figures[0], *numbers, class_="forest")


def _kind(c: Row) -> str:
    """Return what the exponential of a coefficient is called; "coefficient" where none is taken."""
    return next((k.replace("_", " ") for k in c if k.endswith("_ratio")), "coefficient")


def _reference(kind: str) -> float:
    """Return where a covariate says nothing."""
    return 0.0 if kind == "coefficient" else 1.0


def _gridded(first: Sequence[Row]) -> bool:
    """Return whether an estimate of what the time grid does is known."""
    return any(not math.isnan(number(c.get("grid_shift"))) for c in first)


def _axis(run: Run) -> str:
    """Return the title of an axis of coefficients, with the outcome's unit."""
    return f"Coefficient, {run.unit}" if run.unit else "Coefficient"


def _spread(every: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest value of each covariate over all fits."""
    out: dict[str, tuple[float, float]] = {}
    for c in every:
        x, name = _values(c)[0], str(c["covariate"])
        if x == x:
            low, high = out.get(name, (x, x))
            out[name] = (min(low, x), max(high, x))
    return out


def _domain(first: Sequence[Row], spread: Mapping[str, tuple[float, float]]) -> Domain:
    """Return a domain that holds the intervals; of ratios, at most four decades each way."""
    found = [x for c in first for x in _values(c)]
    if not first or _kind(first[0]) == "coefficient":
        spans = (x for c in first for x in spread.get(str(c["covariate"]), ()))
        return around([*found, *spans, 0.0])
    logs = [math.log(x) for x in found if x > 0] or [0.0]
    low, high = max(min(*logs, -0.2), -9.2), min(max(*logs, 0.2), 9.2)
    room = 0.04 * (high - low)
    return math.exp(low - room), math.exp(high + room)


def _row(c: Row, spread: tuple[float, float] | None) -> charts.Row:
    """Return one covariate's interval and mark; grey where the direction is open."""
    value, low, high = _values(c)
    name = words.spaced(str(c["covariate"]))
    if value != value:
        return charts.Row(name=name, text=words.MISSING)
    nothing = _reference(_kind(c))
    open_ = low <= nothing <= high if low == low else value == nothing
    return charts.Row(
        name=name,
        value=value,
        low=low,
        high=high,
        look="faint" if open_ else "c0",
        text=_shown(c),
        span=spread,
        small=True,
    )


def _data(arm: Arm, kind: str, c: Row) -> dict[str, object]:
    """Return one covariate's line of the figure's data."""
    value, low, high = _values(c)
    head = {"arm": arm.name, "covariate": c["covariate"], "coefficient": c.get("coefficient")}
    rest = {"standard_error": c.get("standard_error"), kind.replace(" ", "_"): value}
    return {**head, **rest, "low": low, "high": high, "p": c.get("p")}


def _shown(c: Row) -> str:
    """Return ``1.52 (1.20–1.93)``."""
    shown = ratio if _kind(c) != "coefficient" else _three
    value, low, high = map(shown, _values(c))
    return value if words.MISSING in (low, high) else f"{value} ({_range(low, high)})"


def _three(value: float) -> str:
    """Return a coefficient with three digits that matter."""
    return effect(value, 2) if abs(value) < 1e-4 else words.significant(value, 3)


def _values(c: Row) -> tuple[float, float, float]:
    """Return the ratio, or the coefficient, and its interval; the run has the coefficient's."""
    value, low, high = (number(c.get(k)) for k in ("coefficient", "low", "high"))
    if _kind(c) == "coefficient":
        return value, low, high
    return _exp(value), _exp(low), _exp(high)


def _exp(x: float) -> float:
    return math.exp(min(max(x, -700.0), 700.0)) if x == x else x


def _table(
    first: Sequence[Row], spread: Mapping[str, tuple[float, float]], kind: str, level: str
) -> Markup:
    plain = kind == "coefficient"
    tested = any(number(c.get("standard_error")) == number(c.get("standard_error")) for c in first)
    short = "Coefficient" if plain else _SHORT.get(kind, "Ratio")
    head = ["Covariate", *([] if plain else ["Coefficient"])]
    head += ["SE", f"{short} ({level} CI)", "p"] if tested else [short]
    gridded = _gridded(first)
    head += ["Grid shift"] * gridded + [f"{short} over all fits"] * bool(spread)
    shown = _three if plain else ratio
    body: list[list[str]] = []
    for c in first:
        error = c.get("standard_error")
        line = [words.spaced(str(c["covariate"])), *([] if plain else [effect(c["coefficient"])])]
        width = _three(number(error)) if plain else effect(error)
        line += [width, _shown(c), words.p_value(c.get("p"))] if tested else [_shown(c)]
        line += [fixed(c.get("grid_shift"), 2)] * gridded
        if spread:
            ends = spread.get(str(c["covariate"]), (math.nan, math.nan))
            line.append(_range(*map(shown, ends)))
        body.append(line)
    return table(head, body, numeric=range(1, len(head)), caption="Coefficients")


def _between(first: Sequence[Row], kind: str) -> Markup | None:
    """Return how pooled coefficients differ between sites, and where a new site's are expected."""
    rows = [c for c in first if number(c.get("tau2")) == number(c.get("tau2"))]
    if not rows:
        return None
    body: list[list[str]] = []
    for c in rows:
        ends = [number(c.get(k)) for k in ("prediction_low", "prediction_high")]
        new = map(_three, ends) if kind == "coefficient" else (ratio(_exp(x)) for x in ends)
        share = words.percent(number(c.get("i2")))
        body.append([words.spaced(str(c["covariate"])), effect(c["tau2"]), share, _range(*new)])
    head = ["Covariate", "τ²", "I²", f"{_SHORT.get(kind, kind.capitalize())} at a new site"]
    return table(head, body, numeric=range(1, len(head)), caption="Differences between sites")


def _range(low: str, high: str) -> str:
    """Return ``1.20–1.93``, or a dash where an end is missing."""
    to = " to " if "−" in low + high else "–"
    return words.MISSING if words.MISSING in (low, high) else f"{low}{to}{high}"
