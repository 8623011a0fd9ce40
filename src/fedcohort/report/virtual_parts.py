"""Virtual patients beside real ones: the parts of a page about one model's rows.

They draw the lists of results.json whose names begin with ``virtual_`` (`study.virtual.shown`): the
page of `fedcohort synthesise` (`report.virtual`), and the report of a study, by arm
(`sections.virtual`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedcohort.report import words
from fedcohort.report.charts import (
    Series,
    curves_with_risk_table,
    figure,
    scatter_with_diagonal,
)
from fedcohort.report.clock import Clock
from fedcohort.report.markup import Markup, filled, h, join, p, table
from fedcohort.report.metric_texts import METRICS
from fedcohort.report.sections.base import Section, more

Row = Mapping[str, Any]
Lists = Mapping[str, Sequence[Row]]

#: Width and height of a small histogram, and the room below for its axis.
WIDTH, HEIGHT, FOOT = 220, 80, 16
#: Columns with a picture; correlations in the table of the largest differences.
DRAWN, LISTED = 48, 12


def blocks(key: str, lists: Lists, unit: str, reference: Lists | None = None) -> Iterator[Section]:
    """Yield the sections of one model's virtual rows; a list without rows has none.

    Parameters
    ----------
    key : begins the anchors. unit : of survival times.
    """
    if privacy := _privacy(lists, reference):
        yield Section(
            f"{key}-privacy", "What they reveal", "Do virtual patients reveal real ones?",
            "Distances count standard deviations of numbers and unlike levels. Blind rows are "
            "patients that the model has not seen: virtual rows should be about as far from the "
            "training rows as these. An attack guesses from the virtual rows who was trained on; "
            "its AUC is 0.5 if it can only guess.",
            privacy,
        )  # fmt: skip
    if use := _scores(lists, reference):
        yield Section(
            f"{key}-use", "Use", "Can a model learn from them?",
            "The same model of the outcome learns from virtual rows and from the training rows, "
            "and is tested on blind rows of real patients.",
            use,
        )  # fmt: skip
    if curves := _curves(key, lists, unit):
        yield Section(
            f"{key}-survival", "Survival", "Do they live as long?",
            "Kaplan–Meier curves with 95 % bands. Numbers of few patients are joined.",
            curves,
        )  # fmt: skip
    if marginals := _marginals(lists):
        beside = any(r.get("real") is not None for r in lists["virtual_marginals"])
        yield Section(
            f"{key}-marginals", "Columns", "Is each column spread alike?",
            "Grey: real rows; orange line: virtual rows. The error of a number or a yes/no column "
            "is the largest difference of the two distribution functions, where a missing value "
            "is below all others; of levels it is half the sum of the differences of shares: 0 "
            "for equal ones, at most 1. The largest errors come first; bins of few real patients "
            "are joined."
            if beside else "Virtual rows alone.",
            marginals,
        )  # fmt: skip
    if correlations := _correlations(key, lists):
        yield Section(
            f"{key}-correlations", "Correlations", "Do columns go together alike?",
            "Correlations of ranks; a level counts as 0 or 1.", correlations,
        )  # fmt: skip


def _privacy(lists: Lists, reference: Lists | None) -> Markup | None:
    rows = lists.get("virtual_privacy") or ()
    if not rows:
        return None
    others = {r["measure"]: r for r in (reference or {}).get("virtual_privacy", ())}
    head = ["Measure", "Virtual rows", "Blind rows", *(["SMOTE"] if others else [])]
    body = [
        [
            _capital(str(r["measure"])), _estimate(r), words.fixed(r["blind"]),
            *([_estimate(others[r["measure"]])] if r["measure"] in others else [""] * bool(others)),
        ]
        for r in rows
    ]  # fmt: skip
    note = p(
        "SMOTE interpolates training rows: what a method without any privacy gives."
    ) if others else None  # fmt: skip
    return join(table(head, body, numeric=range(1, 4), spoken="Privacy"), note)


def _estimate(row: Row) -> str:
    if str(row["measure"]).endswith(": p"):
        return words.p_value(row["value"])
    return words.estimate(row["value"], row.get("low"), row.get("high"))


def _scores(lists: Lists, reference: Lists | None) -> Markup | None:
    rows = [*(lists.get("virtual_scores") or ())]
    if not rows:
        return None
    extra = [r for r in (reference or {}).get("virtual_scores", ()) if r not in rows]
    rows += [r for r in extra if r["learnt_from"] != "training rows"]
    real = next(
        (words.number(r["value"]) for r in rows if r["learnt_from"] == "training rows"), math.nan
    )
    metric = METRICS[str(rows[0]["metric"])]
    body = [
        [
            _capital(str(r["learnt_from"])),
            words.estimate(r["value"], r["low"], r["high"]) if r["value"] is not None
            else "no model: these rows teach none",
            words.percent(words.number(r["value"]) / real) if real > 0 else words.MISSING,
        ]
        for r in rows
    ]  # fmt: skip
    head = ["Learnt from", metric.label, "Of training rows’"]
    return join(table(head, body, numeric=(1, 2), spoken="Use"), p(metric.plain))


def _curves(key: str, lists: Lists, unit: str) -> Markup | None:
    rows = lists.get("virtual_curves") or ()
    if not rows:
        return None
    ends = {str(r["rows"]): float(r["time"]) for r in rows}
    end = ends.get("real", math.inf)
    shown = [r for r in rows if float(r["time"]) <= end]
    beyond = ends.get("virtual", 0.0) > end
    if beyond:
        drawn = [r for r in shown if r["rows"] == "virtual"]
        shown += [{**r, "time": end} for r in drawn[-1:]]
    clock = Clock.of(unit, max(float(r["time"]) for r in shown))
    last = clock.say(ends.get("virtual", 0.0))
    note = f"as far as real rows go; the curve of virtual rows ends at {last}" if beyond else None
    looks = {"real": "lower", "virtual": "c1"}
    series = [
        Series(
            label=f"{which} rows", look=looks[which],
            points=[
                (clock.at(r["time"]), r["survival"], _nan(r["low"]), _nan(r["high"]))
                for r in shown if r["rows"] == which
            ],
        )
        for which in ("virtual", "real") if any(r["rows"] == which for r in shown)
    ]  # fmt: skip
    said = "survival curves of " + words.listed([s.label for s in series])
    return figure(
        f"{key}-curves", "Survival", note, curves_with_risk_table(series, clock.axis), rows, said
    )


def _nan(value: Any) -> float:
    return math.nan if value is None else float(value)


def _marginals(lists: Lists) -> Markup | None:
    columns: dict[str, list[Row]] = {}
    for row in lists.get("virtual_marginals") or ():
        columns.setdefault(str(row["column"]), []).append(row)
    if not columns:
        return None
    order = sorted(columns, key=lambda c: -words.number(columns[c][0]["error"] or 0.0))
    drawn = [_small(name, columns[name]) for name in order[:DRAWN]]
    cells = h("div", *drawn, style="display:flex;flex-wrap:wrap;gap:24px")
    body = [[name, words.fixed(columns[name][0]["error"])] for name in order]
    listed = table(["Column", "Error"], body, numeric=(1,), spoken="Errors of columns")
    has = columns[order[0]][0]["error"] is not None
    left = len(order) - len(drawn)
    note = p(f"{words.of(left, 'column')} more without a picture.") if left > 0 else None
    return join(cells, note, more("Errors of all columns", listed) if has else None)


def _small(name: str, rows: Sequence[Row]) -> Markup:
    """Return a small histogram: real rows as bars, virtual rows as an outline."""
    edges, labels = _edges(rows)
    most = (
        max(
            (
                _height(r, w, k)
                for r, (_, w) in zip(rows, edges, strict=True)
                for k in ("real", "virtual")
            ),
            default=0.0,
        )
        or 1.0
    )
    bars: list[tuple[float | str, ...]] = []
    outline = ""
    for r, (x, wide), told in zip(rows, edges, labels, strict=True):
        high = HEIGHT * 0.95 * _height(r, wide, "real") / most
        shares = [f"{k} {words.percent(_nan(r[k]))}" for k in ("real", "virtual")]
        if r["real"] is not None:
            box = (round(v, 2) for v in (x, HEIGHT - high, max(wide - 1, 0.5), high))
            bars.append((*box, f"{told}: {', '.join(shares)}"))
        top = HEIGHT - HEIGHT * 0.95 * _height(r, wide, "virtual") / most
        outline += f"{'L' if outline else f'M{x:.2f} {HEIGHT} L'}{x:.2f} {top:.2f}H{x + wide:.2f}"
    outline += f"V{HEIGHT}"
    unit, error = rows[0]["unit"], rows[0]["error"]
    title = name + (f", {unit}" if unit else "")
    title += f" – error {words.fixed(error)}" if error is not None else ""
    return filled(
        "marginal.html", name=title, said=f"distribution of {name}", width=WIDTH, height=HEIGHT,
        foot=FOOT, bars=bars, outline=outline, ticks=_ticks(rows, edges),
    )  # fmt: skip


def _height(row: Row, wide: float, which: str) -> float:
    """Return the height of a bin: its share per width."""
    return words.number(row[which] or 0.0) / max(wide, 1e-9)


def _edges(rows: Sequence[Row]) -> tuple[list[tuple[float, float]], list[str]]:
    """Return left end and width of each bin in the drawing, and its words."""
    if rows[0]["level"] is not None or len(rows) < 3:
        step = WIDTH / len(rows)
        return [(i * step, step) for i in range(len(rows))], [_bin(r) for r in rows]
    inner = [float(r["high"]) for r in rows[:-1]]
    width = (inner[-1] - inner[0]) / (len(inner) - 1)
    low, high = inner[0] - width, inner[-1] + width
    at = [low, *inner, high]
    unit = WIDTH / (high - low)
    ends = [((a - low) * unit, (b - a) * unit) for a, b in pairwise(at)]
    return ends, [_bin(r) for r in rows]


def _bin(row: Row) -> str:
    if row["level"] is not None:
        return str(row["level"])
    low, high = row["low"], row["high"]
    if low is None and high is None:
        return "all"
    if low is None:
        return f"below {high:g}"
    return f"from {low:g}" if high is None else f"{low:g} to {high:g}"


def _ticks(
    rows: Sequence[Row], edges: Sequence[tuple[float, float]]
) -> list[tuple[float, str, str]]:
    if rows[0]["level"] is not None:
        room = int(edges[0][1] // 6.5)
        return [
            (round(x + w / 2, 1), _cut(str(r["level"]), room), "middle")
            for r, (x, w) in zip(rows, edges, strict=True)
        ]  # fmt: skip
    if len(rows) < 3:
        return [(round(x + w / 2, 1), str(i), "middle") for i, (x, w) in enumerate(edges)]
    every = max(1, math.ceil(len(rows) / 4))
    return [
        (round(x + w, 1), f"{r['high']:g}", "middle")
        for i, (r, (x, w)) in enumerate(zip(rows[:-1], edges, strict=False)) if i % every == 0
    ]  # fmt: skip


def _correlations(key: str, lists: Lists) -> Markup | None:
    rows = [r for r in lists.get("virtual_correlations") or () if r["virtual"] is not None]
    both = [r for r in rows if r["real"] is not None]
    if not rows:
        return None
    if not both:
        rows = sorted(rows, key=lambda r: -abs(r["virtual"]))[:LISTED]
        body = [[r["one"], r["other"], words.fixed(r["virtual"], 2)] for r in rows]
        head = ["One", "Other", "Virtual rows"]
        return table(head, body, numeric=(2,), spoken="The largest correlations")
    points = sorted((float(r["real"]), float(r["virtual"])) for r in both)
    low = min(0.0, *(min(pair) for pair in points))
    drawn = figure(
        f"{key}-pairs", "Correlations of pairs of columns", "On the diagonal, both are equal.",
        scatter_with_diagonal(
            [Series(label="", look="c1", points=[pair]) for pair in points],
            "among real rows", "among virtual rows",
            domain=(math.floor(10 * low) / 10, 1.0),
        ),
        both, "correlations among virtual rows against those among real rows",
    )  # fmt: skip
    worst = sorted(both, key=lambda r: -abs(r["real"] - r["virtual"]))[:LISTED]
    body = [
        [r["one"], r["other"], words.fixed(r["real"], 2), words.fixed(r["virtual"], 2)]
        for r in worst
    ]
    head = ["One", "Other", "Real rows", "Virtual rows"]
    listed = table(head, body, numeric=(2, 3), spoken="The largest differences of correlations")
    return join(drawn, more("The largest differences", listed))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
