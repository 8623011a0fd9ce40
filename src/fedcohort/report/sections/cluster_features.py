"""Features that describe clusters: each feature in a cluster against all other patients.

Odds ratios of levels and standardised differences of numbers, with intervals, and p-values adjusted
by Benjamini and Hochberg (results.json, `cluster_features`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedcohort.report import charts, words
from fedcohort.report.charts import Domain, around
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.sections.cohort import HIDDEN
from fedcohort.report.words import number, ratio

#: Features of a cluster in a figure, and their largest q.
SHOWN, SMALL = 6, 0.05
#: Ratios beyond are not distinguished: they are of shares near 0 or 1.
LEAST, MOST = 1e-2, 1e3
#: Text for a cluster with only hidden features.
FEW = f"{HIDDEN}: of few patients"
#: Axis, and the value that says nothing, of shares and of means.
_AXIS = {
    "share": ("Odds ratio against all other patients, log scale", 1.0),
    "mean": ("Difference to all other patients, in standard deviations", 0.0),
}


def section(run: Run) -> Section | None:
    """Return a figure and a table for each arm."""
    body = clustered.folded(run, "cluster_features", lambda fit: _block(run, fit))
    if body is None:
        return None
    return Section(
        "cluster-features", "What sets them apart", "What sets each cluster apart?",
        f"{clustered.seen(run).capitalize()} patients of a cluster against all others. Odds "
        "ratio: by how much the odds of a feature are multiplied in the cluster; right of 1 it is "
        "more frequent there; half a patient is added to every count, so that a share of 0 % has "
        "a ratio too. Of a number, the difference of the means in standard "
        "deviations. Bars are 95 % intervals. q is p adjusted for the number of "
        "comparisons (Benjamini and Hochberg). The clusters were "
        "made from these features, which neither q nor an interval allows for: they say what "
        "describes a cluster, and do not prove that there are clusters.",
        body,
    )  # fmt: skip


def _block(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's pictures, and the table of all features; a single cluster has no rest."""
    found = clustered.rows(run, "cluster_features", fit)
    if len(clustered.clusters(found)) < 2:
        return None
    kinds = [k for k in _AXIS if any(_kind(r) == k for r in found)]
    figures = [f for k in kinds for f in _figures(run, fit, k, found)]
    note = clustered.hidden_note(run, [r.get("share") for r in found])
    said = p(note, class_="quiet") if note else None
    return h(
        "div",
        figures,
        more(f"All features of {clustered.title(run, fit)}", _table(found, _units(run)), said),
        class_="forest",
    )


def _kind(r: Row) -> str:
    return "mean" if r.get("kind") == "mean" else "share"


def _value(r: Row) -> float:
    return number(r.get("difference" if _kind(r) == "mean" else "odds_ratio"))


def _telling(found: Sequence[Row]) -> list[Row]:
    """Return the features that describe a cluster most: smallest q first, then largest effect."""
    known = [r for r in found if number(r.get("q")) < SMALL and math.isfinite(_value(r))]

    def size(r: Row) -> float:
        value = _value(r)
        return abs(value) if _kind(r) == "mean" else abs(math.log(value)) if value > 0 else 0.0

    return sorted(known, key=lambda r: (number(r.get("q")), -size(r), str(r["feature"])))[:SHOWN]


def _figures(run: Run, fit: Fit, kind: str, found: Sequence[Row]) -> list[Markup]:
    """Return one kind of features, whole clusters on as many figures as pages that they need."""
    mine = [r for r in found if _kind(r) == kind]
    told = {
        c: _telling([r for r in mine if int(r["cluster"]) == c]) for c in clustered.clusters(found)
    }
    pages: list[list[int]] = [[]]
    lines = 0
    for c, own in told.items():
        if pages[-1] and lines + len(own) + 2 > charts.MOST_ROWS:
            pages.append([])
            lines = 0
        pages[-1].append(c)
        lines += len(own) + 2
    axis, nothing = _AXIS[kind]
    domain = _domain([r for own in told.values() for r in own], kind)
    what = "levels" if kind == "share" else "numbers"
    units = _units(run)
    several = len({_kind(r) for r in found}) > 1
    out: list[Markup] = []
    for i, page in enumerate(pages):
        part = f", part {i + 1} of {len(pages)}" * (len(pages) > 1)
        rows: list[charts.Row] = []
        for c in page:
            rows.append(charts.Row(name=clustered.name(c), kind="heading"))
            rows += [_row(r, units) for r in told[c]]
            if not told[c]:
                seen = any(number(r.get("q")) == number(r.get("q"))
                           for r in mine if int(r["cluster"]) == c)  # fmt: skip
                rows.append(charts.Row(name="nothing clearly differs" if seen else FEW))
        out.append(
            charts.figure(
                f"cluster-features-{kind}-{fit[0].name}-{fit[1]}-{i}",
                f"{clustered.title(run, fit)}: what describes each cluster"
                + f", {what}" * several + part,
                f"At most {SHOWN} features a cluster, those with the smallest q below {SMALL}; "
                "first repeat. On the right: the estimate with its interval, then the "
                + ("share" if kind == "share" else "mean") + " in the cluster and in the rest",
                charts.interval_rows(
                    rows, axis, log=kind == "share", reference=nothing, domain=domain
                ),
                [_data(r) for r in mine if int(r["cluster"]) in page],
                "; ".join(_said(c, told[c]) for c in page) + ".",
            )
        )  # fmt: skip
    return out


def _domain(found: Sequence[Row], kind: str) -> Domain:
    """Return a domain that holds the intervals; of ratios, at most four decades each way."""
    ends = [v for r in found for v in (_value(r), number(r.get("low")), number(r.get("high")))]
    if kind == "mean":
        return around([*ends, 0.0])
    logs = [math.log(v) for v in ends if v > 0] or [0.0]
    low, high = max(min(*logs, -0.2), -9.2), min(max(*logs, 0.2), 9.2)
    room = 0.04 * (high - low)
    return math.exp(low - room), math.exp(high + room)


def _units(run: Run) -> dict[str, str]:
    """Return the units of numbers by their names, where the cohort tells them."""
    found = run.mapping("cohort").get("variables") or ()
    return {str(v["name"]): str(v["unit"]) for v in found if v.get("unit")}


def _name(r: Row, units: Mapping[str, str]) -> str:
    """Return a feature's name, with the unit of a mean."""
    name = str(r["feature"])
    unit = units.get(name, "") if _kind(r) == "mean" else ""
    return words.spaced(name) + f", {unit}" * bool(unit)


def _row(r: Row, units: Mapping[str, str]) -> charts.Row:
    return charts.Row(
        name=_name(r, units),
        value=_value(r), low=number(r.get("low")), high=number(r.get("high")),
        look=clustered.look(int(r["cluster"])),
        text=f"{_estimate(r)}; {_against(r)}",
        small=True,
    )  # fmt: skip


def _estimate(r: Row) -> str:
    """Return ``3.52 (2.41–5.12)``, or that it is hidden."""
    if number(r.get("share")) != number(r.get("share")):
        return HIDDEN
    if _kind(r) == "mean":
        return words.estimate(_value(r), r.get("low"), r.get("high"), 2)
    low, high = (_ratio(number(r.get(k))) for k in ("low", "high"))
    between = " to " if "<" in low or ">" in high else "–"
    ends = "" if words.MISSING in (low, high) else f" ({low}{between}{high})"
    return _ratio(_value(r)) + ends


def _ratio(value: float) -> str:
    """Return an odds ratio: three significant digits, two of small ones; near 1 as `ratio`.

    It is of few patients, so more digits would mean nothing.
    """
    if value != value:
        return words.MISSING
    if value < LEAST:
        return f"< {LEAST:g}"
    if value >= MOST:
        return f"> {MOST:,.0f}"
    if 0.1 <= value < 10:
        return ratio(value)
    return words.significant(value, 3 if value >= 10 else 2)


def _level(r: Row, key: str) -> str:
    """Return a share as a percentage, or a mean."""
    value = number(r.get(key))
    if value != value:
        return HIDDEN
    return words.percent(value) if _kind(r) == "share" else _mean(value)


def _mean(value: float) -> str:
    """Return a mean; it was rounded before, so that no zeros are added to its decimals."""
    text = words.significant(value, 3)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _against(r: Row) -> str:
    return f"{_level(r, 'share')} v {_level(r, 'rest')}"


def _said(cluster: int, told: Sequence[Row]) -> str:
    """Return a cluster's features as text."""
    own = ", ".join(
        f"{words.spaced(str(r['feature']))} {_level(r, 'share')} against {_level(r, 'rest')}, "
        f"{'difference' if _kind(r) == 'mean' else 'odds ratio'} {_estimate(r)}"
        for r in told
    )
    return f"{clustered.name(cluster)}: {own or 'nothing clearly differs'}"


def _data(r: Row) -> dict[str, object]:
    keys = ("cluster", "feature", "kind", "share", "rest", "odds_ratio", "difference", "low",
            "high", "p", "q")  # fmt: skip
    return {k: r.get(k) for k in keys}


def _table(found: Sequence[Row], units: Mapping[str, str]) -> Markup:
    """Return every feature of every cluster."""
    body = [
        [
            clustered.name(int(r["cluster"])), _name(r, units),
            _level(r, "share"), _level(r, "rest"),
            f"{_estimate(r)}{' SD' * (_kind(r) == 'mean' and math.isfinite(_value(r)))}",
            words.p_value(r.get("p")), words.p_value(r.get("q")),
        ]
        for r in found
    ]  # fmt: skip
    head = ["Cluster", "Feature", "In the cluster", "In the rest", "OR or difference (95 % CI)",
            "p", "q"]  # fmt: skip
    caption = "Features of each cluster against all other patients, first repeat"
    return table(head, body, numeric=range(2, len(head)), caption=caption)
