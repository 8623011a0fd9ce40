"""Estimates of sites side by side, as `Fit.plot` draws them: forest plots and site effects.

A forest plot has one panel per covariate, each on its own axis: every site's estimate, the pooled
one as a diamond as wide as its interval, and the prediction interval of a new site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from scipy.special import ndtri

from fedcohort.protocol import NotSupported, Row, SettingError
from fedcohort.report import charts, words
from fedcohort.report.charts import Domain
from fedcohort.report.plots import Picture, drawn

#: How sites were pooled, in words.
POOLED: Mapping[str, str] = {
    "random": "Pooled, random effects",
    "fixed": "Pooled, fixed effects",
    "multivariate": "Pooled, all together",
}
#: Beyond this no exponential is taken: e²³⁰ is 10¹⁰⁰.
LARGEST = 230.0


@runtime_checkable
class Pools(Protocol):
    """A model that pools coefficients of sites."""

    pool: str
    level: float

    @property
    def sites(self) -> list[Row]:
        """A row for each covariate and site: coefficient, low, high."""
        ...

    @property
    def ratio(self) -> str:
        """Name of exp(coefficient); empty if it is no ratio."""
        ...

    def summary(self) -> list[Row]:
        """Return a row for each covariate: its pooled coefficient and prediction interval."""
        ...


def forest_picture(model: Pools, covariate: str = "") -> Picture:
    """Return a forest plot of each covariate below each other, or of one.

    Raises
    ------
    SettingError : there is no such covariate.
    """
    pooled = {str(row["covariate"]): row for row in model.summary()}
    if covariate and covariate not in pooled:
        raise SettingError(
            f"there is no covariate {covariate!r}; it is one of {', '.join(pooled)}."
        )
    names = [covariate] if covariate else list(pooled)
    panels = [_panel(model, name, pooled[name]) for name in names]
    sites = len({row["site"] for row in model.sites})
    said = f"{', '.join(names)}: coefficients of {words.of(sites, 'site')}, and pooled"
    return drawn(panels, "Forest plot", said)


def _panel(model: Pools, name: str, pooled: Row) -> charts.Spec:
    """Return one covariate's forest plot."""
    own = [row for row in model.sites if row["covariate"] == name]
    what = model.ratio.replace("_", " ") or "coefficient"
    shown = [_line(model, str(row["site"]), row) for row in own]
    note = f"I² {words.percent(float(pooled['i2']))}" if math.isfinite(pooled["i2"]) else ""
    shown.append(_line(model, POOLED[model.pool], pooled, "pooled", note))
    ahead = (pooled["prediction_low"], pooled["prediction_high"])
    if all(map(math.isfinite, ahead)):
        span = (_scaled(model, ahead[0]), _scaled(model, ahead[1]))
        text = _between(model, *span)
        shown.append(charts.Row(name="A new site, expected", span=span, text=text))
    head = f"{what} ({words.percent(model.level)} interval)"
    return charts.interval_rows(
        [charts.Row(name=words.spaced(name), kind="heading"), *shown],
        f"{what}, log scale" if model.ratio else what,
        log=bool(model.ratio),
        reference=1.0 if model.ratio else 0.0,
        domain=_domain(model, own, pooled),
        heads=("Site", head),
    )


def _line(model: Pools, name: str, row: Row, kind: str = "point", note: str = "") -> charts.Row:
    value, low, high = (_scaled(model, row[k]) for k in ("coefficient", "low", "high"))
    shown = words.ratio(value) if model.ratio else words.significant(value, 3)
    return charts.Row(
        name=name, value=value, low=low, high=high, kind=kind, note=note, small=True,
        text=f"{shown} ({_between(model, low, high)})",
    )  # fmt: skip


def _scaled(model: Pools, value: Any) -> float:
    """Return a coefficient as it is drawn: its exponential, where that is a ratio."""
    x = float(value)
    return math.exp(min(max(x, -LARGEST), LARGEST)) if model.ratio and x == x else x


def _between(model: Pools, low: float, high: float) -> str:
    if model.ratio:
        return f"{words.ratio(low)}–{words.ratio(high)}"
    least, most = words.significant(low, 3), words.significant(high, 3)
    return f"{least} to {most}" if "−" in least + most else f"{least}–{most}"


def _domain(model: Pools, own: Sequence[Row], pooled: Row) -> Domain:
    """Return an axis that holds all estimates; intervals far wider than these stop at its edge."""
    keys = ("low", "high", "prediction_low", "prediction_high", "coefficient")
    inner = [0.0, *(float(row["coefficient"]) for row in own), *(float(pooled[k]) for k in keys)]
    inner = [min(max(v, -LARGEST), LARGEST) for v in inner if math.isfinite(v)]
    room = max(inner) - min(inner)
    least, most = min(inner) - room, max(inner) + room
    outer = [float(row[k]) for row in own for k in ("low", "high")]
    low, high = charts.around([*inner, *(v for v in outer if least <= v <= most)], 0.04)
    return (math.exp(low), math.exp(high)) if model.ratio else (low, high)


def effects_picture(effects: Mapping[str, float], tau2: float, level: float) -> Picture:
    """Return each site's effect on the linear predictor, and the range of most sites.

    Parameters
    ----------
    effects : û of each site that revealed it.
    tau2 : their variance τ².
    level : share of sites in the range.

    Raises
    ------
    NotSupported : no site revealed its effect.
    """
    if not effects:
        raise NotSupported("no site revealed its effect.")
    reach = float(ndtri((1.0 + level) / 2.0)) * math.sqrt(tau2)
    rows = [
        charts.Row(name=site, value=value, text=words.significant(value, 3), small=True)
        for site, value in sorted(effects.items(), key=lambda item: item[1])
    ]
    chart = charts.interval_rows(
        rows,
        f"effect on the linear predictor; shaded: {words.percent(level)} of sites",
        reference=0.0,
        band=(-reach, reach),
        domain=charts.around([*effects.values(), -reach, reach]),
        heads=("Site", "effect"),
    )
    said = f"effects of {words.of(len(effects), 'site')}, standard deviation {math.sqrt(tau2):.3g}"
    return drawn(chart, "Site effects", said)
