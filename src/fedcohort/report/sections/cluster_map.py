"""Where clusters lie: means and spread in the plane of the first two principal components.

If the study asks for it, UMAP's map of simulated patients stands below: `cluster_umap` of
results.json, in which no row of a table has a part.
"""

from __future__ import annotations

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number

#: Titles of the panels.
WHOLE, SITES = "All hospitals", "Each hospital"
#: How to read each map.
ELLIPSES = (
    "The first two principal components of the {} patients, in the model's own numbers where it "
    "has them (a network's latent space, of k-means the distances to its centres), and in the "
    "features otherwise. An ellipse is a mean and one standard deviation in each direction; of "
    "patients that are spread as a normal distribution, two in five lie within it. On the right, "
    "each hospital's own patients of the same clusters, as far as they are not few: where ellipses "
    "of one cluster lie apart, it holds other patients at one hospital than at another. That they "
    "lie on each other is no second finding, since one model made all of them. No patient is "
    "drawn. Groups that overlap here may be apart in further components."
)
SIMULATED = (
    "Simulated patients only: the model drew them, and each has the colour of the cluster that the "
    "model puts it into; UMAP laid them out so that those who are alike in the model's latent "
    "space lie side by side. No real patient is on this map, and none was looked at to draw it. So "
    "it shows what the model has learnt to call a cluster, and is no evidence that there are "
    "clusters. How many dots a cluster has, how far apart groups lie, how large they are and how "
    "dense says nothing."
)


def section(run: Run) -> Section | None:
    """Return the maps of each arm."""
    real = clustered.folded(run, "cluster_map", lambda fit: _figure(run, fit))
    simulated = clustered.folded(run, "cluster_umap", lambda fit: _simulated(run, fit))
    if real is None and simulated is None:
        return None
    intro = ELLIPSES.format(clustered.seen(run)) if real is not None else SIMULATED
    both = real is not None and simulated is not None
    told = (
        h("div", h("h3", "Simulated patients", class_="block"), p(SIMULATED, class_="quiet"))
        if both
        else None
    )
    body = h("div", real, told, simulated)
    return Section("cluster-map", "Map", "Where do the groups lie?", intro, body)


def _figure(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's map."""
    found = [r for r in clustered.rows(run, "cluster_map", fit) if _drawable(r)]
    if not found:
        return None
    whole = [r for r in found if r.get("site") is None]
    sites = [r for r in found if r.get("site") is not None]
    named = len({str(r["site"]) for r in sites})
    share = number(next((r.get("explained") for r in whole), None))
    held = f"the two components hold {words.percent(share)} of the variance; " * (share == share)
    keys = ("cluster", "site", "n", "x", "y", "sx", "sy", "angle", "explained")
    said = "; ".join(
        f"{clustered.name(int(r['cluster']))} at {words.fixed(r['x'], 2)}, "
        f"{words.fixed(r['y'], 2)}, standard deviations {words.significant(r['sx'], 2)} and "
        f"{words.significant(r['sy'], 2)}"
        for r in whole
    )
    return charts.figure(
        f"cluster-map-{fit[0].name}-{fit[1]}",
        f"{clustered.title(run, fit)}: where the clusters lie",
        f"First repeat; {held}ellipses of each cluster"
        + f", and of each with patients enough at {words.of(named, 'hospital')}" * bool(sites),
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


def _simulated(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's map of simulated patients."""
    places = {
        int(r["cluster"]): list(zip(map(number, r["x"]), map(number, r["y"]), strict=True))
        for r in clustered.rows(run, "cluster_umap", fit)
    }
    if not any(places.values()):
        return None
    sizes = "; ".join(f"{clustered.name(c)}: {len(at)}" for c, at in places.items())
    return charts.figure(
        f"cluster-umap-{fit[0].name}-{fit[1]}",
        f"{clustered.title(run, fit)}: simulated patients of each cluster",
        f"First repeat; {words.of(sum(map(len, places.values())), 'simulated patient')} laid out "
        "by UMAP, none of them real",
        charts.dots(
            [
                charts.Dot(x=x, y=y, look=clustered.look(c), label=clustered.name(c))
                for c, at in places.items()
                for x, y in at
            ],
            "first direction of UMAP, no unit",
            "second direction of UMAP, no unit",
        ),
        [
            {"cluster": c, "simulated_patient": i, "umap_1": x, "umap_2": y}
            for c, at in places.items()
            for i, (x, y) in enumerate(at)
        ],
        f"Simulated patients by cluster, laid out by UMAP. {sizes}.",
    )
