"""Pictures of a fit, as `Fit.plot` draws them: one self-contained SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcohort.protocol import NotSupported, Row, SettingError
from fedcohort.report.charts import (
    LOOKS,
    Series,
    Spec,
    curves_with_risk_table,
    draw,
    lines_with_bands,
    stacked,
    standalone,
    ticks,
)
from fedcohort.report.markup import Markup, filled


class Picture:
    """A picture that a notebook shows and that can be saved.

    Attributes
    ----------
    svg : the picture, as a file of its own.
    title : what it shows.
    """

    def __init__(self, svg: str, title: str):
        self.svg, self.title = svg, title

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the picture as the path's suffix says: .svg, .png or .html.

        Raises
        ------
        SettingError : another suffix.
        """
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".png":
            import vl_convert

            path.write_bytes(vl_convert.svg_to_png(self.svg, scale=2))
        elif kind == ".svg":
            path.write_text(self.svg, encoding="utf-8")
        elif kind == ".html":
            page = filled("picture.html", title=self.title, svg=Markup(self.svg))
            path.write_text(page, encoding="utf-8")
        else:
            raise SettingError(
                f"{path.name!r} does not end in .svg, .png or .html; name the picture so."
            )


def drawn(charts: Spec | list[Spec], title: str, said: str) -> Picture:
    """Return charts below each other, with their title and alternative text."""
    every = charts if isinstance(charts, list) else [charts]
    drawing = stacked([draw(chart) for chart in every])
    return Picture(standalone(drawing, title, said), title)


#: What a curve may be of, and its axis.
CURVES: Mapping[str, str] = {"survival": "survival", "cumulative_hazard": "cumulative hazard"}
#: Recorded quantities that show convergence, and whether less is better.
OBJECTIVES: Mapping[str, int] = {"objective": 1, "loss": 1, "log_likelihood": -1}
#: What goes to 0 as a fit converges, and its panel.
RESIDUALS: Mapping[str, str] = {
    "primal": "primal residual",
    "dual": "dual residual",
    "step": "longest step",
}
#: A gap or residual below this is 0.
LEAST = 1e-16

#: Rows of a fit's history, or of its curves.
Rows = Sequence[Mapping[str, Any]]


def kind_of(rows: Sequence[Row]) -> str:
    """Return which of `CURVES` rows are of."""
    return next(k for k in CURVES if k in rows[0])


def survival_picture(
    fits: Mapping[str, Sequence[Row]],
    x_title: str,
    *,
    min_cell: Mapping[str, int],
) -> Picture:
    """Return the curves of fits, each by its group, with numbers at risk below.

    Parameters
    ----------
    fits : name → rows as `Fitted.curves` gives them; all of survival, or all of hazards.
    min_cell : of each fit, the smallest number shown, except 0.

    Raises
    ------
    NotSupported : more curves than can be distinguished.
    """
    rows = [(name, row) for name, found in fits.items() for row in found]
    kind = kind_of([rows[0][1]])
    last = max(row["time"] for _, row in rows)
    at = ticks(0.0, last, 6)
    lines: dict[tuple[str, str], list[Row]] = {}
    for name, row in rows:
        lines.setdefault((name, str(row["group"])), []).append(row)
    looks = _looks(len(lines), "curves; join levels, or draw rows of fit.model.curves()")
    series = [
        Series(
            label=_label(name, group, several=len(fits) > 1),
            look=look,
            points=_points(own, kind),
            at_risk=[(t, n) for t in at if (n := _at_risk(own, t, min_cell[name])) != -1],
        )
        for look, ((name, group), own) in zip(looks, lines.items(), strict=True)
    ]
    highest = 1.0
    if kind != "survival":
        highest = max(v for s in series for p in s.points for v in p[1:] if math.isfinite(v))
    chart = curves_with_risk_table(
        series, x_title, CURVES[kind], x_domain=(0.0, last), y_domain=(0.0, highest),
        counted="Number at risk, about",
    )  # fmt: skip
    groups = ", ".join(s.label for s in series)
    return drawn(chart, CURVES[kind].capitalize(), f"{CURVES[kind]} by time: {groups}")


def _looks(count: int, what: str) -> Sequence[str]:
    """Return a look for each line, no two the same."""
    if count > len(LOOKS):
        raise NotSupported(
            f"a picture tells {len(LOOKS)} lines apart, and these are {count} {what}."
        )
    return LOOKS[:count]


def _label(name: str, group: str, *, several: bool) -> str:
    if not several:
        return group
    return name if group == "all" else f"{name}: {group}"


def _points(rows: Sequence[Row], kind: str) -> list[tuple[float, ...]]:
    """Return a line's points, with their bands."""
    return [tuple(_number(row[k]) for k in ("time", kind, "low", "high")) for row in rows]


def _at_risk(rows: Sequence[Row], time: float, min_cell: int) -> int | None:
    """Return the number followed at a time; None: not shown, −1: after the last time."""
    before = max((i for i, row in enumerate(rows) if row["time"] <= time), default=0)
    now = rows[before]
    after = rows[before + 1] if before + 1 < len(rows) else None
    if after is None and now["time"] < time:
        return -1
    if after is None or now["about"] is None:
        return now["about"]
    if after["about"] is None:  # hidden, and not 0
        return now["about"] if time == now["time"] else None
    share = (time - now["time"]) / (after["time"] - now["time"])
    found = round(now["about"] + share * (after["about"] - now["about"]))
    return None if 0 < found < min_cell else found


def can_show(history: Rows) -> bool:
    """Return whether a fit's history shows its convergence."""
    return any(k in row for row in history for k in (*OBJECTIVES, *RESIDUALS))


def convergence_picture(fits: Mapping[str, Rows]) -> Picture:
    """Return the objective's gap to the best of all fits, and the residuals, round by round.

    Parameters
    ----------
    fits : name → history, in each of which `can_show` finds something.

    Raises
    ------
    NotSupported : more fits than can be told apart.
    """
    looks = dict(zip(fits, _looks(len(fits), "fits; lay fewer over each other"), strict=True))
    found: list[Series] = []
    for key, sign in OBJECTIVES.items():
        curves = {name: _recorded(rows, key) for name, rows in fits.items()}
        best = min((sign * y for c in curves.values() for _, y in c), default=0.0)
        panel = f"{key.replace('_', ' ')}: gap to the best"
        for name, curve in curves.items():
            gaps = [(x, sign * y - best) for x, y in curve]
            found += _line(name, looks[name], gaps, panel)
    for key, panel in RESIDUALS.items():
        for name, rows in fits.items():
            found += _line(name, looks[name], _recorded(rows, key), panel)
    chart = lines_with_bands(found, "round", "", whole=True, own=True, powers=True)
    said = "; ".join(dict.fromkeys(s.panel for s in found))
    return drawn(chart, "Convergence", f"{said}, round by round: {', '.join(fits)}")


def _recorded(rows: Rows, key: str) -> list[tuple[float, float]]:
    """Return (round, value) of a recorded name; the last of a round counts."""
    found = {int(r["round"]) + 1: _number(r[key]) for r in rows if key in r}
    return [(float(x), y) for x, y in found.items() if math.isfinite(y)]


def _line(name: str, look: str, curve: Sequence[tuple[float, float]], panel: str) -> list[Series]:
    points = [(x, math.log10(y)) for x, y in curve if y > LEAST]
    return [Series(label=name, look=look, points=points, panel=panel)] if points else []


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
