"""Coefficients, or their ratios, as a forest plot, and the table a statistician asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts import Domain, around
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.modelling import is_posterior, penalty_of, scale_of, stepped
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open, more
from fedcohort.report.sections.parameters import credible, level_of, parameters, penalised_bar
from fedcohort.report.words import effect, fixed, number, ratio

Row = Mapping[str, Any]

#: What a coefficient is for, where rows do not say it of each number.
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
    "relative risk ratio": "Relative-risk ratio: by how much the probability of a class, divided "
    "by that of the reference class, is multiplied. Right of 1, the class is more frequent beside "
    "the reference; left of 1, less.",
    "rate ratio": "Rate ratio: by how much the expected count is multiplied. Right of 1, there are "
    "more; left of 1, fewer.",
    "mean ratio": "Mean ratio: by how much the expected value is multiplied. Right of 1, it is "
    "higher; left of 1, lower.",
    "coefficient": "Coefficient: what is added to the expected value. Right of 0, it is higher; "
    "left of 0, lower.",
}
#: What an odds ratio is where classes have an order.
_ORDERED = (
    "Odds ratio: by how much the odds of a higher class are multiplied, at each threshold between "
    "classes. Right of 1, higher classes are more frequent; left of 1, less."
)
#: What a coefficient is that is no ratio, where the outcome has classes.
_SCORE = (
    "Coefficient: what is added to the score from which the probability follows. Right of 0, the "
    "outcome is more frequent; left of 0, less."
)
#: Text on arms with shrunken effects.
SHRUNKEN = (
    " Shrunken effects, of fits with a penalty, are drawn towards no effect: they serve "
    "prediction, and are no estimates of the effects. Their bars are standard errors of the "
    "penalised fit, no confidence intervals."
)
#: Text on arms with a posterior.
POSTERIOR = (
    " Of a posterior, the mark is its mean and the bar an interval that holds the effect with "
    "probability {}, given the prior and the data. P(> 0) is the probability that the coefficient "
    "is above 0. It is not a p-value: near 1 the coefficient is almost surely above 0, near 0 "
    "almost surely below it, and at 0.5 its direction is open."
)
_SHORT = {"hazard ratio": "HR", "odds ratio": "OR", "rate ratio": "RR", "mean ratio": "MR",
          "relative risk ratio": "RRR"}  # fmt: skip
#: Number of intervals from which on the page says how many exclude no effect by chance.
MANY = 20
#: A fit's names of the constant, which is not comparable with other coefficients.
_CONSTANTS = ("intercept", "(intercept)", "(Intercept)")


def section(run: Run) -> Section | None:
    """Return a forest plot and a table for each arm that has coefficients."""
    blocks = [(arm, b) for arm in run.arms if (b := _block(run, arm)) is not None]
    if not blocks:
        return None
    rows = [(arm, run.model_rows("coefficients", arm.name)) for arm in run.arms]
    kinds = dict.fromkeys(_kind(c) for _, mine in rows for c in mine)
    plain = _PLAIN | {"coefficient": _SCORE} if run.kind.scored else _PLAIN
    if run.mapping("outcome").get("type") == "ordinal":
        plain = plain | {"odds ratio": _ORDERED}
    what = " ".join(plain[k] for k in kinds if k in plain)
    ends = " or ".join(dict.fromkeys(f"{_reference(k):g}" for k in kinds))
    shrunken = any(penalty_of(mine) for _, mine in rows)
    bayes = [arm for arm, mine in rows if is_posterior(mine)]
    tested = [(a, mine) for a, mine in rows if not (penalty_of(mine) or is_posterior(mine))]
    whole = [a for a, mine in tested if any(map(_has_interval, mine))]
    every = len(whole) == sum(bool(mine) for _, mine in rows)
    levels = dict.fromkeys(level_of(arm) for arm in whole)
    what_bars = f"{words.listed(list(levels))} intervals"
    are = f"Bars are {what_bars}" if every else f"Bars, of arms that have them, are {what_bars}"
    bars = f" {are}; where a bar crosses {ends}, the data leave the direction open." * bool(whole)
    bars += _by_chance(run, whole, ends)
    bars += SHRUNKEN * shrunken
    if bayes:
        bars += POSTERIOR.format(words.listed(list(dict.fromkeys(map(level_of, bayes)))))
    return Section(
        "coefficients", "Coefficients", f"Which covariates go with the {run.kind.goes}?",
        f"{what}{bars} An association is not yet a cause.", h("div", leading_open(run, blocks)),
    )  # fmt: skip


def _by_chance(run: Run, arms: Sequence[Arm], ends: str) -> str:
    """Return how many of many intervals would exclude no effect by chance."""
    told: list[str] = []
    for arm in arms:
        n = sum(map(_has_interval, run.model_rows("coefficients", arm.name)))
        missed = round(n * (1 - float(level_of(arm).removesuffix(" %")) / 100))
        told += [f" Of {n} such bars about {missed} would miss {ends} by chance alone."] * (
            n >= MANY and missed > 0
        )
    return told[0] if told else ""


def _has_interval(c: Row) -> bool:
    """Return whether a coefficient has an interval."""
    return not math.isnan(number(c.get("low")))


def _block(run: Run, arm: Arm) -> Markup | None:
    """Return one arm's picture and table, of its model."""
    scale = scale_of(arm.settings, run.mapping("preprocess"))
    table_one = run.mapping("cohort").get("variables") or ()
    mine = run.model_rows("coefficients", arm.name)
    if not mine:
        return None
    every = [c for c in run.rows("coefficients") if c["arm"] == arm.name]
    steps = stepped([*mine, *every], scale, table_one)
    first = steps[: len(mine)]
    fits = {(str(c["scenario"]), int(c.get("repeat") or 0)) for c in every}
    final = run.final(arm.name) is not None
    spread = _spread(steps[len(mine) :]) if len(fits) > 1 else {}
    penalty = penalty_of(first)
    unit = "" if any(c.get("step") for c in first) else _UNITS.get(scale, "")
    note = [unit] if unit else ["levels against the first"]
    if penalty:
        note.append(f"shrunken towards {_reference(_kind(first[0])):g} by a penalty ({penalty})")
    if is_posterior(first):
        note.append(f"posterior mean and {credible(level_of(arm))}")
    if not any(map(_has_interval, first)):
        note.append("this method gives no intervals")
    if final:
        note.append("final fit, to all rows")
    if versus := first[0].get("reference"):
        note.append(f"classes are compared with {versus}")
    if final and len(fits) > 1:
        note.append(f"the pale line spans the {words.of(len(fits), 'fit')} of the evaluation")
    if len(fits) > 1 and not final:
        where = str(first[0]["scenario"])
        note.append(
            f"first of {len(fits)} fits ({run.scenarios.get(where, where)}); the pale line spans "
            f"all fits"
        )
    note += [
        f"{p['column']}, other levels: {', '.join(p['levels'])} (fewer than {p['least']} rows "
        "each, or the next rarest; pooled)"
        for p in run.model_rows("pooled", arm.name)
    ]
    if _gridded(first):
        note.append(
            "grid error: by how many standard errors, in root mean square, the coefficient may be "
            "off the fit at exact times, because sites tell sums of several patients by time"
        )
    kind = _kind(first[0])
    log = kind != "coefficient"
    drawn = [c for c in first if c["covariate"] not in _CONSTANTS]
    domain = _domain(drawn, spread)
    if len(drawn) > charts.MOST_ROWS:
        drawn, by = _strongest(drawn)
        note.append(
            f"{len(drawn)} effects, the strongest first, by {by}; the {charts.MOST_ROWS} strongest "
            f"in part 1"
        )
    pages = [drawn[i : i + charts.MOST_ROWS] for i in range(0, len(drawn), charts.MOST_ROWS)]
    figures = [
        charts.figure(
            f"coefficients-{arm.name}" + f"-{i + 1}" * (len(pages) > 1),
            arm.title + f", part {i + 1} of {len(pages)}" * (len(pages) > 1),
            "; ".join(note) or None,
            charts.interval_rows(
                [_row(c, spread.get(_term(c))) for c in page],
                (f"{kind.capitalize()}, log scale" if log else _axis(run))
                + ", shrunken" * bool(penalty),
                log=log,
                reference=_reference(kind),
                domain=domain,
            ),
            [_data(arm, kind, c) for c in page],
            "; ".join(f"{_name(c, _term(c))}: {kind} {_shown(c)}" for c in page) + ".",
        )
        for i, page in enumerate(pages)
    ]
    level = level_of(arm)
    rest = [_between(first, kind), parameters(run, arm, level)]
    numbers = [*figures[1:], _table(first, spread, kind, level, penalty), *rest]
    if len(first) > charts.MOST_ROWS:
        numbers = [more(f"All {words.of(len(first), 'row')}, and the rest of the model", *numbers)]
    return h("div", figures[0], *numbers, class_="forest")


def _strongest(drawn: Sequence[Row]) -> tuple[list[Row], str]:
    """Return coefficients with the strongest first, and the criterion."""
    z = [abs(number(c.get("coefficient")) / (number(c.get("standard_error")) or math.nan))
         for c in drawn]  # fmt: skip
    by = "|z|, a coefficient over its standard error"
    if is_posterior(drawn):
        by = "the size of the posterior mean over its standard deviation"
    if not any(map(math.isfinite, z)):
        z = [abs(float(c.get("factor") or 1.0) * number(c.get("coefficient"))) for c in drawn]
        by = "the size of the effect for the step that is named"
    order = sorted(range(len(drawn)), key=lambda i: -z[i] if math.isfinite(z[i]) else math.inf)
    return [drawn[i] for i in order], by


def _kind(c: Row) -> str:
    """Return the name of a coefficient's exponential; "coefficient" if it has none."""
    return next((k.replace("_", " ") for k in c if k.endswith("_ratio")), "coefficient")


def _reference(kind: str) -> float:
    """Return the value of no effect."""
    return 0.0 if kind == "coefficient" else 1.0


def _gridded(first: Sequence[Row]) -> bool:
    """Return whether the time grid's effect on coefficients is known."""
    return any(not math.isnan(number(c.get("grid_error"))) for c in first)


def _axis(run: Run) -> str:
    """Return the title of an axis of coefficients, with the outcome's unit."""
    return f"Coefficient, {run.unit}" if run.unit else "Coefficient"


def _spread(every: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest value of each covariate over all fits."""
    out: dict[str, tuple[float, float]] = {}
    for c in every:
        x, name = _values(c)[0], _term(c)
        if x == x:
            low, high = out.get(name, (x, x))
            out[name] = (min(low, x), max(high, x))
    return out


def _domain(first: Sequence[Row], spread: Mapping[str, tuple[float, float]]) -> Domain:
    """Return a domain that holds the intervals; of ratios, at most four decades each way."""
    found = [x for c in first for x in _values(c)]
    if not first or _kind(first[0]) == "coefficient":
        spans = (x for c in first for x in spread.get(_term(c), ()))
        return around([*found, *spans, 0.0])
    logs = [math.log(x) for x in found if x > 0] or [0.0]
    low, high = max(min(*logs, -0.2), -9.2), min(max(*logs, 0.2), 9.2)
    room = 0.04 * (high - low)
    return math.exp(low - room), math.exp(high + room)


def _row(c: Row, spread: tuple[float, float] | None) -> charts.Row:
    """Return one covariate's interval and mark; grey where the direction is open."""
    value, low, high = _values(c)
    name = _name(c)
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
    head |= {key: c[key] for key in ("class", "reference", "step") if c.get(key)}
    rest = {"standard_error": c.get("standard_error"), kind.replace(" ", "_"): value}
    last = {"above_0": c["above_0"]} if is_posterior([c]) else {"p": c.get("p")}
    return {**head, **rest, "low": low, "high": high, **last}


def _shown(c: Row) -> str:
    """Return ``1.52 (1.20–1.93)``."""
    shown = ratio if _kind(c) != "coefficient" else _three
    value, low, high = map(shown, _values(c))
    return value if words.MISSING in (low, high) else f"{value} ({_range(low, high)})"


def _three(value: float) -> str:
    """Return a coefficient with three digits that matter."""
    return effect(value, 2) if abs(value) < 1e-4 else words.significant(value, 3)


def _values(c: Row) -> tuple[float, float, float]:
    """Return the ratio for its step, or the coefficient, and its interval."""
    factor = float(c.get("factor") or 1.0)
    value, low, high = (factor * number(c.get(k)) for k in ("coefficient", "low", "high"))
    if _kind(c) == "coefficient":
        return value, low, high
    return _exp(value), _exp(low), _exp(high)


def _exp(x: float) -> float:
    return math.exp(min(max(x, -700.0), 700.0)) if x == x else x


def _term(c: Row) -> str:
    """Return a covariate, with the class that its effect is on."""
    return f"{c['class']}: {c['covariate']}" if c.get("class") else str(c["covariate"])


def _name(c: Row, name: str = "") -> str:
    """Return a covariate with the step that its effect is for."""
    return (name or words.spaced(_term(c))) + (f", {c['step']}" if c.get("step") else "")


def _table(
    first: Sequence[Row],
    spread: Mapping[str, tuple[float, float]],
    kind: str,
    level: str,
    penalty: str,
) -> Markup:
    plain = kind == "coefficient"
    tested = any(number(c.get("standard_error")) == number(c.get("standard_error")) for c in first)
    short = "Coefficient" if plain else _SHORT.get(kind, "Ratio")
    of = "Shrunken coefficient" if penalty else "Coefficient"
    short = (of if plain else f"Shrunken {short}") if penalty else short
    around = penalised_bar(level) if penalty else f"{level} CI"
    error_head, last = "SE", ["p"] * (not penalty)
    if posterior := is_posterior(first):
        of, around = "Posterior mean", credible(level)
        short, error_head, last = of if plain else short, "Posterior SD", ["P(> 0)"]
    head = ["Covariate", *([] if plain else [of])]
    stepping = not plain and any(c.get("step") for c in first)
    value = [f"{short} is"] * stepping + [f"{short} ({around})" if tested else short]
    head += [error_head, *value, *last] if tested else value
    gridded = _gridded(first)
    pooled = any(c.get("fmi") is not None for c in first)
    head += ["df", "Missing information"] * pooled
    head += ["Grid error"] * gridded + [f"{short} over all fits"] * bool(spread)
    shown = _three if plain else ratio
    body: list[list[str]] = []
    for c in first:
        error = c.get("standard_error")
        line = [_name(c) if plain else words.spaced(_term(c))]
        line += [] if plain else [effect(c["coefficient"])]
        width = _three(number(error)) if plain else effect(error)
        p_value = [words.p_value(c.get("p"))] * (not penalty)
        if posterior:
            p_value = [words.probability(c.get("above_0"))]
        value = [] if plain else [str(c.get("step") or words.MISSING)] * stepping
        value.append(_shown(c))
        line += [width, *value, *p_value] if tested else value
        if pooled:
            line += [fixed(c.get("df"), 0), words.percent(number(c.get("fmi")))]
        line += [fixed(c.get("grid_error"), 2)] * gridded
        if spread:
            ends = spread.get(_term(c), (math.nan, math.nan))
            line.append(_range(*map(shown, ends)))
        body.append(line)
    caption = "Coefficients"
    if versus := first[0].get("reference"):
        caption = f"Coefficients by class, each compared with {versus}"
    if penalty:
        caption = (
            f"Shrunken coefficients, under a penalty ({penalty}): no estimates of the effects, and "
            f"what stands in brackets is no confidence interval"
        )
    if posterior:
        caption = "Posterior of the coefficients" + f"; {short} of its mean" * (not plain)
    if pooled:
        caption += (
            ", pooled over imputed tables by Rubin’s rules; missing information is the share of an "
            "estimate’s variance that is due to missing values"
        )
    return table(head, body, numeric=range(1, len(head)), caption=caption)


def _between(first: Sequence[Row], kind: str) -> Markup | None:
    """Return the variation of pooled coefficients between sites, and intervals for a new site."""
    rows = [c for c in first if number(c.get("tau2")) == number(c.get("tau2"))]
    if not rows:
        return None
    body: list[list[str]] = []
    for c in rows:
        ends = [number(c.get(k)) for k in ("prediction_low", "prediction_high")]
        factor = float(c.get("factor") or 1.0)
        new = (
            map(_three, ends) if kind == "coefficient" else (ratio(_exp(factor * x)) for x in ends)
        )
        share = words.percent(number(c.get("i2")))
        body.append([_name(c), effect(c["tau2"]), share, _range(*new)])
    head = ["Covariate", "τ²", "I²", f"{_SHORT.get(kind, kind.capitalize())} at a new site"]
    return table(head, body, numeric=range(1, len(head)), caption="Differences between sites")


def _range(low: str, high: str) -> str:
    """Return ``1.20–1.93``, or a dash where an end is missing."""
    to = " to " if "−" in low + high else "–"
    return words.MISSING if words.MISSING in (low, high) else f"{low}{to}{high}"
