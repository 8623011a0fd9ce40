"""Coefficients: hazard or odds ratios as a forest plot, and the table a statistician asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts.scales import Domain
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section
from fedcohort.report.words import fixed, number, ratio

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
}


def section(run: Run) -> Section | None:
    """Return a forest plot and a table for each arm that has coefficients."""
    blocks = [b for arm in run.arms if (b := _block(run, arm)) is not None]
    if not blocks:
        return None
    kinds = dict.fromkeys(_kind(c) for c in run.rows("coefficients"))
    what = " ".join(_PLAIN[k] for k in kinds)
    intro = (
        f"{what} Bars are 95 % intervals; where a bar crosses 1, the data leave the direction "
        "open. An association is not yet a cause."
    )
    return Section(
        "coefficients", "Coefficients", "Which covariates go with the risk?", intro,
        h("div", blocks),
    )  # fmt: skip


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
    kind = _kind(first[0])
    domain = _domain(first)
    pages = [first[i : i + charts.MOST_ROWS] for i in range(0, len(first), charts.MOST_ROWS)]
    figures = [
        charts.figure(
            f"coefficients-{arm.name}" + f"-{i + 1}" * (len(pages) > 1),
            arm.title + f", part {i + 1} of {len(pages)}" * (len(pages) > 1),
            "; ".join(note) or None,
            charts.interval_rows(
                [_row(c, spread.get(str(c["covariate"]))) for c in page],
                f"{kind.capitalize()}, log scale",
                log=True,
                reference=1.0,
                domain=domain,
            ),
            [_data(arm, kind, c) for c in page],
            "; ".join(f"{c['covariate']}: {kind} {_shown(c)}" for c in page) + ".",
        )
        for i, page in enumerate(pages)
    ]
    return h("div", *figures, _table(first, spread, kind), class_="forest")


def _kind(c: Row) -> str:
    """Return what the exponential of a coefficient is called."""
    return "odds ratio" if "odds_ratio" in c else "hazard ratio"


def _spread(every: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest ratio of each covariate over all fits."""
    out: dict[str, tuple[float, float]] = {}
    for c in every:
        x, name = _ratios(c)[0], str(c["covariate"])
        if x > 0:
            low, high = out.get(name, (x, x))
            out[name] = (min(low, x), max(high, x))
    return out


def _domain(first: Sequence[Row]) -> Domain:
    """Return a domain that holds the intervals, at most four decades each way."""
    found = [x for c in first for x in _ratios(c)]
    logs = [math.log(x) for x in found if x > 0] or [0.0]
    low, high = max(min(*logs, -0.2), -9.2), min(max(*logs, 0.2), 9.2)
    room = 0.04 * (high - low)
    return math.exp(low - room), math.exp(high + room)


def _row(c: Row, spread: tuple[float, float] | None) -> charts.Row:
    """Return one covariate's interval and mark; grey where the direction is open."""
    value, low, high = _ratios(c)
    name = words.spaced(str(c["covariate"]))
    if not value > 0:
        return charts.Row(name=name, text=words.MISSING)
    return charts.Row(
        name=name,
        value=value,
        low=low,
        high=high,
        look="c0" if low > 1 or high < 1 else "faint",
        text=_shown(c),
        span=spread,
        small=True,
    )


def _data(arm: Arm, kind: str, c: Row) -> dict[str, object]:
    """Return one covariate's line of the figure's data."""
    value, low, high = _ratios(c)
    head = {"arm": arm.name, "covariate": c["covariate"], "coefficient": c.get("coefficient")}
    rest = {"standard_error": c.get("standard_error"), kind.replace(" ", "_"): value}
    return {**head, **rest, "low": low, "high": high, "p": c.get("p")}


def _shown(c: Row) -> str:
    """Return ``1.52 (1.20–1.93)``."""
    value, low, high = map(ratio, _ratios(c))
    interval = "" if words.MISSING in (low, high) else f" ({low}–{high})"
    return value + interval


def _ratios(c: Row) -> tuple[float, float, float]:
    """Return the ratio and its interval; the run has the interval of the coefficient."""
    value, low, high = (
        math.exp(min(max(number(c.get(k)), -700.0), 700.0)) for k in ("coefficient", "low", "high")
    )
    return value, low, high


def _table(first: Sequence[Row], spread: Mapping[str, tuple[float, float]], kind: str) -> Markup:
    short = "OR" if kind == "odds ratio" else "HR"
    head = ["Covariate", "Coefficient", "SE", f"{short} (95 % CI)", "p"]
    head += [f"{short} over all fits"] if spread else []
    body: list[list[str]] = []
    for c in first:
        line = [
            words.spaced(str(c["covariate"])), fixed(c.get("coefficient")),
            fixed(c.get("standard_error")), _shown(c), words.p_value(c.get("p")),
        ]  # fmt: skip
        ends = spread.get(str(c["covariate"]))
        line += ([f"{ratio(ends[0])}–{ratio(ends[1])}"] if ends else [words.MISSING]) * bool(spread)
        body.append(line)
    return table(head, body, numeric=range(1, len(head)), caption="Coefficients")
