"""What patients of a cluster look like: synthetic ones as small pictures, beside the average."""

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


def section(run: Run) -> Section | None:
    """Return the pictures of each arm whose model can draw patients."""
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
    """Return one fit's pictures, and which cell is which feature."""
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
    """Return rows and columns that hold so many features."""
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
    """Return which cell is which feature."""
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
