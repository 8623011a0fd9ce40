"""Explanation of a fitted booster by two sums over sites, after its last round.

Lundberg et al., Nature Machine Intelligence 2, 2020 (Shapley values φ of trees); Friedman, Annals
of Statistics 29, 2001, section 8.2 (partial dependence). Of the `COLUMNS` covariates c with most
gain, with bins b of the fit's grid and f of `explanation.averaged`:

    1. rows of each bin of each c
    2. Σ |φ_j| of each covariate j; Σ φ_c by group of c's bins; Σ f(x^(c=v)), v in `POINTS` bins

Bins are joined to at most `GROUPS` groups of c with at least `models.fewest` rows each. Missing
values are a group of their own if they are as many, and else join the lowest values, as in the
trees' own groups; so no sum, and no difference of two, is over fewer rows.

Numbers are added as multiples of 2^-b, b such that 30 bits lie below the largest margin that the
trees can give: exact, in any order.

The rows are those that the trees learn from. If the work is more than `WORK`, each site draws the
same share of them, in secret (`steps`).

Revealed: `Counted` and `Explained`, once each, only as sums over all sites. The trees are those of
the fit: a site refuses others, by the margins that it has kept. Values and groups are bins of its
grid. A site does not know whether the covers follow from the fit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcohort.algorithms.boosting import arguments
from fedcohort.algorithms.boosting.explanation import (
    COLUMNS,
    GROUPS,
    POINTS,
    Explanation,
    averaged,
    value_in,
)
from fedcohort.algorithms.boosting.steps import BoostingSite, Growing, bins_of, draws, extent
from fedcohort.arrays import Array
from fedcohort.numerics.trees.dependence import replaced
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.histogram import numbers_of, whole
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.numerics.trees.shapley import shapley
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol import DataError, Federation, Keep, message, summed

#: Rows × leaves × squared depth of a site, on average, about half a second's work; fewest rows.
WORK, FEWEST = 10**8, 500
#: Bits of a sum's terms below their largest value.
BITS = 30


@message
class Counted:
    """``rows`` () that are used; ``bins`` (c, B), of these in each bin of c covariates."""

    rows: Array
    bins: Array
    some_rows = True


@message
class Explained:
    """``absolute`` (K, p), Σ |φ|; ``shift`` (K, G), Σ φ by group; ``curve`` (P, K), Σ f by point.

    In multiples of 2^-b.
    """

    absolute: Array
    shift: Array
    curve: Array


@summed(blocks="own")
def count_explained(site: BoostingSite, *, columns: Array, share: float) -> Keep[Counted, Growing]:
    """Draw rows that the trees learn from; count them by bin of some covariates.

    share : of the rows, drawn at the site.
    """
    state = _begun(site)
    _, p, size = extent(state)
    arguments.check_columns(site.name, columns, share, p)
    used = ~state.held
    if share < 1:
        used = used & (draws(site).random(len(used)) < share)
    own = bins_of(site, state)[used][:, columns]
    counts = [np.bincount(column, minlength=size) for column in own.T]
    told = Counted(np.array(int(used.sum())), np.array(counts, np.int64).reshape(-1, size))
    return Keep(told, replace(state, used=used))


@summed(blocks="own")
def explain_trees(
    site: BoostingSite, *, objective: str, columns: Array, ends: Array, points: Array, base: Array,
    kept: Array, roots: Array, feature: Array, threshold: Array, left: Array, right: Array,
    goes_left: Array, value: Array, cover: Array, group: Array,
) -> Explained:  # fmt: skip
    """Sum Shapley values of the drawn rows, by column and by group of its values, and predictions.

    columns (c,) : covariates. ends (c, B) : the last bin of each group. points (c, m) : bins with a
    value that all rows are given; −1 for none. kept () : number of trees that the model has, of
    those of the fit, whose nodes follow.
    """
    state = _begun(site)
    _, p, _ = extent(state)
    arguments.check_columns(site.name, columns, 1.0, p)
    arguments.check_explained(site.name, objective, ends, points, state.edges[columns])
    arguments.check_vectors(
        site.name, base, roots, feature, threshold, left, right, goes_left, value, cover, group
    )
    x, used = site.data.x[state.used], bins_of(site, state)[state.used]
    trees = Trees(
        roots=roots, feature=feature, threshold=threshold, left=left, right=right,
        missing_left=goes_left, value=value[:, None],
    )  # fmt: skip
    ensemble = Ensemble(trees=trees, gain=np.zeros(len(cover)), cover=cover, group=group, base=base)
    arguments.check_ensemble(site.name, ensemble, kept, state.margin[state.used], x)
    ensemble = ensemble.part(np.arange(len(trees)) < kept)
    bits = bits_of(ensemble)
    phi = whole(shapley(ensemble, x)[0], bits)
    number, groups = numbers_of(ends[None])
    shift = np.zeros((phi.shape[1], groups), np.int64)
    for i, j in enumerate(columns.tolist()):
        for own, told in zip(phi[:, :, j].T, shift, strict=True):
            np.add.at(told, number[0, i, used[:, j]], own)
    values = _values(state.edges, columns, points)
    margins = replaced(ensemble, x, values)
    curve = [whole(averaged(objective, margins[j]), bits).sum(axis=0) for j in values]
    return Explained(np.abs(phi).sum(axis=0), shift, np.concatenate(curve))


STEPS = (count_explained, explain_trees)


def explained(
    fed: Federation, fitted: Ensemble, kept: Ensemble, edges: Array, objective: str, *,
    rows: int, least: int,
) -> Explanation | None:  # fmt: skip
    """Ask the sites for the means that explain a model; None of one without a split.

    Parameters
    ----------
    fitted : all trees of the fit, which the sites know.
    kept : those of the model, the first ones.
    edges : (p, E) of the bins.
    rows : number of training rows of all sites.
    least : fewest rows of a group.
    """
    gain = kept.importance(len(edges))["total_gain"]
    columns = np.argsort(-gain, kind="stable")[:COLUMNS]
    columns = np.sort(columns[gain[columns] > 0])
    if not len(columns):
        return None
    share = min(1.0, most_rows(kept) * len(fed.sites) / max(rows, 1))
    counted = fed.sum(count_explained, columns=columns, share=share)
    if counted.rows < 2 * least:
        return None
    ends = np.array([group_ends(own, least) for own in counted.bins])
    points = np.full((len(columns), POINTS + 1), -1)
    for i, j in enumerate(columns.tolist()):
        bins = np.unique(np.linspace(1, last_bin(edges[j]), POINTS).astype(np.int64))
        bins = np.r_[0, bins] if ends[i, 0] else bins
        points[i, : len(bins)] = bins
    trees = fitted.trees
    told = fed.sum(
        explain_trees, objective=objective, columns=columns, ends=ends, points=points,
        base=np.asarray(fitted.base, float), kept=np.array(len(kept.trees)), roots=trees.roots,
        feature=trees.feature, threshold=trees.threshold, left=trees.left, right=trees.right,
        goes_left=trees.missing_left, value=trees.value[:, 0], cover=fitted.cover,
        group=fitted.group,
    )  # fmt: skip
    own = counted, told
    return _means(*own, edges, columns, ends, points, unit=2.0 ** -bits_of(kept), of=rows)


def most_rows(ensemble: Ensemble) -> float:
    """Return the number of rows of a site, on average, whose explanation takes about `WORK`."""
    leaf, depth = ensemble.trees.leaf, 1
    on = ensemble.trees.roots[~leaf[ensemble.trees.roots]]
    while len(on := on[~leaf[on]]):
        depth, on = depth + 1, np.r_[ensemble.trees.left[on], ensemble.trees.right[on]]
    return max(FEWEST, WORK / (int(leaf.sum()) * depth**2))


def bits_of(ensemble: Ensemble) -> int:
    """Return b such that each number summed of a row is below 2^`BITS` in multiples of 2^-b."""
    trees = ensemble.trees
    largest = np.maximum.reduceat(np.abs(trees.value[:, 0]), trees.roots).sum()
    most = max(1.0, float(np.abs(ensemble.base).max()) + 2 * float(largest))
    return BITS - math.ceil(math.log2(most))


def group_ends(counts: Array, least: int) -> Array:
    """Return the last bin of each group (B,), of the rows in each bin (B,); bin 0 has missing ones.

    A group has at least `least` rows, if there are as many in all.
    """
    ends = np.arange(len(counts)) == len(counts) - 1
    missing, known = counts[0], counts[1:].copy()
    if known.sum() < least:
        return ends
    ends[0] = missing >= least
    known[np.flatnonzero(known)[0]] += missing * (missing < least)
    ends[1 + interval_ends(known, least, known.sum() / GROUPS)[:-1]] = True
    return ends


def last_bin(edges: Array) -> int:
    """Return the number of a covariate's last bin."""
    return 1 + int(np.isfinite(edges).sum())


def _means(
    counted: Counted, told: Explained, edges: Array, columns: Array, ends: Array, points: Array,
    *, unit: float, of: int,
) -> Explanation:  # fmt: skip
    rows, places = float(counted.rows), enumerate(columns.tolist())
    group_of: list[int] = []
    group: list[list[float]] = []
    sizes: list[float] = []
    for i, j in places:
        known = edges[j][np.isfinite(edges[j])]
        limits, first = np.r_[np.nan, np.nan, known, np.nan], 0
        for last in np.flatnonzero(ends[i]).tolist():
            low, high = max(first, 1), min(last, last_bin(edges[j]))
            at = value_in(known, (low + high) // 2 if last else 0)
            group_of.append(j)
            ends_at = limits[[low, high + 1]].tolist() if last else [math.nan, math.nan]
            group.append([at, *ends_at])
            sizes.append(float(counted.bins[i, first : last + 1].sum()))
            first = last + 1
    asked = _values(edges, columns, points)
    return Explanation(
        rows=np.array([int(rows), of]),
        absolute=told.absolute * unit / rows,
        group_of=np.array(group_of),
        group=np.array(group),
        shift=told.shift * unit / np.array(sizes),
        point_of=np.repeat(columns, [len(v) for v in asked.values()]),
        point=np.concatenate([*asked.values()]),
        curve=told.curve * unit / rows,
    )


def _values(edges: Array, columns: Array, points: Array) -> dict[int, Array]:
    """Return the values that each covariate is given."""
    return {
        j: np.array([value_in(edges[j][np.isfinite(edges[j])], b) for b in own[own >= 0].tolist()])
        for j, own in zip(columns.tolist(), points, strict=True)
    }


def _begun(site: BoostingSite) -> Growing:
    if site.state is None:
        raise DataError(
            f"site {site.name!r} has begun no trees for these rows. Start the fit again."
        )
    return site.state
