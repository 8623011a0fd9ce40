"""Where clusters lie: means and spread in the plane of the first two principal components."""

from __future__ import annotations

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number

#: Titles of the panels.
WHOLE, SITES = "All hospitals", "Each hospital"


def section(run: Run) -> Section | None:
    """Return the map of each arm."""
    body = clustered.folded(run, "cluster_map", lambda fit: _figure(run, fit))
    if body is None:
        return None
    return Section(
        "cluster-map", "Map", "Where do the groups lie?",
        f"The first two principal components of the {clustered.seen(run)} patients, in "
        "the model's own few numbers where it has them. An ellipse is a mean and one standard "
        "deviation in each direction; about two in five patients of a cluster lie within it. On "
        "the right, each hospital's own patients of the same clusters: where their ellipses lie "
        "on each other, hospitals agree on what a cluster is. No patient is drawn, and what is "
        "of few patients is left out. Groups that overlap here may be apart in further components.",
        body,
    )  # fmt: skip


def _figure(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's map."""
    found = [r for r in clustered.rows(run, "cluster_map", fit) if _drawable(r)]
    if not found:
        return None
    whole = [r for r in found if r.get("site") is None]
    sites = [r for r in found if r.get("site") is not None]
    named = len({str(r["site"]) for r in sites})
    keys = ("cluster", "site", "n", "x", "y", "sx", "sy", "angle")
    said = "; ".join(
        f"{clustered.name(int(r['cluster']))} at {words.fixed(r['x'], 2)}, "
        f"{words.fixed(r['y'], 2)}, standard deviations {words.significant(r['sx'], 2)} and "
        f"{words.significant(r['sy'], 2)}"
        for r in whole
    )
    return charts.figure(
        f"cluster-map-{fit[0].name}-{fit[1]}",
        f"{clustered.title(run, fit)}: where the clusters lie",
        "First repeat; ellipses of each cluster"
        + f", and of each cluster at {words.of(named, 'hospital')}" * bool(sites),
        charts.ellipses(
            [_ellipse(r, WHOLE) for r in whole] + [_ellipse(r, SITES) for r in sites],
            "first principal component",
            "second principal component",
        ),
        [{k: r.get(k) for k in keys} for r in found],
        f"Middle and spread of each cluster. {said}.",
    )


def _drawable(r: Row) -> bool:
    """Return whether a row has all of an ellipse."""
    return all(number(r.get(k)) == number(r.get(k)) for k in ("x", "y", "sx", "sy", "angle"))


def _ellipse(r: Row, panel: str) -> charts.Ellipse:
    c = int(r["cluster"])
    return charts.Ellipse(
        x=number(r["x"]), y=number(r["y"]),
        long=number(r["sx"]), short=number(r["sy"]), angle=number(r["angle"]),
        look=clustered.look(c),
        label=clustered.name(c),
        text=str(c) if panel == WHOLE else "",
        panel=panel,
        pale=panel == SITES,
    )  # fmt: skip
