"""Places of clusters in the plane, and synthetic patients of each.

Files: results.json, `cluster_map`, `cluster_umap`, `cluster_images`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
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


def cluster_map(run: Run) -> Section | None:
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


def cluster_images(run: Run) -> Section | None:
    """Return the pictures of each arm with a model that draws patients."""
    body = clustered.folded(run, "cluster_images", lambda fit: _block(run, fit))
    if body is None:
        return None
    return Section(
        "cluster-images", "Patients", "What does a patient of each cluster look like?",
        "The small pictures are synthetic patients: the model drew them, and none is a row of a "
        "table. Each cell is a feature, the darker, the higher its value from 0 to 1. The larger "
        f"picture is the average of the cluster's real {clustered.seen(run)} patients, where it "
        "may be shown "
        "(a grey cell is hidden), or else that of the synthetic ones. Synthetic patients that do "
        "not resemble the average say that the model has not learnt the cluster.",
        body,
    )  # fmt: skip


def _block(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's pictures, and the key of their cells."""
    found = clustered.rows(run, "cluster_images", fit)
    if not found:
        return None
    features = [str(f) for f in found[0].get("features") or ()]
    n = len(features) or len(found[0].get("values") or ())
    shape = _shape(found[0].get("shape"), n)
    told = {
        (int(r["cluster"]), str(r["feature"])): number(r.get("share"))
        for r in clustered.rows(run, "cluster_features", fit)
        if r.get("kind") != "mean"
    }
    known = {f for _, f in told}
    real = known.issuperset(features) and any(v == v for v in told.values())
    groups: dict[int, charts.Group] = {}
    said: dict[int, str] = {}
    for c in clustered.clusters(found):
        patients = [_values(r) for r in found if int(r["cluster"]) == c]
        average = (
            [told.get((c, f), math.nan) for f in features]
            if real
            else [math.fsum(v) / len(v) for v in zip(*patients, strict=True)]
        )
        groups[c] = charts.Group(
            name=clustered.name(c), look=clustered.look(c), average=average, patients=patients
        )
        said[c] = f"{clustered.name(c)}: highest on average are {_highest(features, average)}"
    whose = "" if real else "synthetic "
    many = max(len(g.patients) for g in groups.values())
    most = charts.most_groups(shape, many)
    numbers = list(groups)
    pages = [numbers[i : i + most] for i in range(0, len(numbers), most)]
    figures = [
        charts.figure(
            f"cluster-images-{fit[0].name}-{fit[1]}-{i}",
            f"{clustered.title(run, fit)}: synthetic patients of each cluster"
            + f", part {i + 1} of {len(pages)}" * (len(pages) > 1),
            f"First repeat; the large picture is the average of the cluster's {whose}patients, the "
            f"others are up to {words.of(many, 'synthetic patient')}. Each has "
            f"{words.of(shape[0], 'row')} and {words.of(shape[1], 'column')} of features",
            charts.pictures([groups[c] for c in page], shape),
            [
                {"cluster": r["cluster"], "patient": r["patient"]}
                | dict(zip(features or map(str, range(n)), _values(r), strict=False))
                for r in found
                if int(r["cluster"]) in page
            ],
            f"Pictures of synthetic patients by cluster. {'; '.join(said[c] for c in page)}.",
        )
        for i, page in enumerate(pages)
    ]
    return h("div", figures, _key(features, shape))


def _shape(given: object, n: int) -> tuple[int, int]:
    """Return rows and columns for n features."""
    if isinstance(given, list) and len(given) == 2 and given[0] * given[1] >= n > 0:
        return int(given[0]), int(given[1])
    high = max(1, math.isqrt(n))
    return high, max(1, math.ceil(n / high))


def _values(r: Row) -> list[float]:
    return [number(v) for v in r.get("values") or ()]


def _highest(features: Sequence[str], average: Sequence[float]) -> str:
    """Return the three features that are highest on average, with their shares."""
    known = [(v, f) for f, v in zip(features, average, strict=False) if v == v]
    top = sorted(known, key=lambda x: (-x[0], x[1]))[:3]
    return ", ".join(f"{words.spaced(f)} {words.percent(v)}" for v, f in top) or "hidden"


def _key(features: Sequence[str], shape: tuple[int, int]) -> Markup | None:
    """Return the feature of each cell."""
    if not features:
        return None
    high, wide = shape
    body = [
        [f"Row {r + 1}", *(words.spaced(f) for f in features[r * wide : (r + 1) * wide])]
        for r in range(high)
    ]
    head = ["", *(f"Column {i + 1}" for i in range(wide))]
    filled = [[*line, *[""] * (len(head) - len(line))] for line in body]
    return more(
        "Which cell is which feature",
        p("Rows and columns of every picture, from the top left.", class_="quiet"),
        table(head, filled, caption="Features by their place in a picture"),
    )
