"""Checks of the arguments of boosting's steps: a site refuses impossible ones in one line.

They bound memory and arithmetic, and keep an error of NumPy from standing for an answer. They do
not tell whether a split, a grid or a value follows from the fit: see `program`.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.boosting.explanation import COLUMNS, GROUPS, POINTS
from fedcohort.algorithms.boosting.objectives import PULLS
from fedcohort.arrays import Array
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.histogram import FINEST, ROOM
from fedcohort.protocol import DataError, Refused

#: Most nodes of a tree, one more than any number: of 16 levels.
NODES = 2**17
#: Most trees of a round.
TREES = 2**12
#: Most edges of a covariate, as of 1,024 bins.
EDGES = 1023


def check_grid(site: str, edges: Array, p: int) -> None:
    """Refuse edges that are no ascending grid of p covariates, padded with inf."""
    if edges.ndim != 2 or edges.shape[0] != p:
        raise DataError(
            f"site {site!r}: the grid has shape {edges.shape}, and the table {p} covariates. Fit "
            f"again with the same columns at all sites."
        )
    fine = edges.dtype.kind == "f" and 1 <= edges.shape[1] <= EDGES
    low, high = edges[:, :-1], edges[:, 1:]
    _need(
        site, "edges", fine and bool(((low < high) | (low == high) & np.isposinf(high)).all())
        and not np.isnan(edges).any() and not np.isneginf(edges).any(),
        f"numbers that ascend, up to {EDGES} a covariate",
    )  # fmt: skip


def check_begin(site: str, objective: str, classes: int, kinds: int, held_out: float) -> None:
    """Refuse an unknown objective, or impossible numbers of classes, kinds or held-out rows."""
    _need(site, "objective", objective in PULLS, f"one of {', '.join(PULLS)}")
    _need(site, "classes", 0 <= classes < 2**15, "a number of classes")
    _need(site, "kinds", 0 <= kinds < 2**15, "a number of kinds")
    _need(site, "held_out", 0 <= held_out <= 0.5, "a share up to 0.5")


def check_moves(site: str, moves: Array, trees: int, p: int, bins: int) -> None:
    """Refuse moves (m, 6) of trees, nodes, covariates or bins that cannot be, or two of a node."""
    fine = moves.ndim == 2 and moves.shape[1] == 6 and moves.dtype.kind == "i"
    if fine and not len(moves):
        return
    most = np.array([trees, NODES, p, bins, 2, NODES - 1])
    fine = fine and bool(((moves >= 0) & (moves < most)).all())
    fine = fine and bool((moves[:, 5] > moves[:, 1]).all())
    fine = fine and len(set((moves[:, 0] * NODES + moves[:, 1]).tolist())) == len(moves)
    _need(site, "moves", fine, "splits of nodes, each once, by a covariate and bin of the grid")


def check_trees(site: str, trees: int, classes: int) -> None:
    """Refuse values of more trees than `TREES`, or of no multiple of the classes."""
    fine = trees <= TREES and trees % classes == 0
    _need(site, "values", fine, f"those of trees of each class, up to {TREES}")


def check_values(site: str, values: Array, node: Array) -> None:
    """Refuse values of leaves that are no float32 (K, N), one for each node of each tree (n, K)."""
    if not values.size:
        return
    fine = values.ndim == 2 and values.dtype.kind == "f" and len(values) == node.shape[1]
    fine = fine and values.shape[1] > node.max(initial=0)
    fine = fine and bool((np.abs(values) <= np.finfo(np.float32).max).all())
    _need(site, "values", fine, "a finite float32 for each node of each tree")


def check_asked(site: str, asked: Array, ends: Array, trees: int, p: int, bins: int) -> None:
    """Refuse nodes (A, 2) that are not ascending, or ends that are no groups of the grid's bins."""
    fine = asked.ndim == 2 and asked.shape[1] == 2 and asked.dtype.kind == "i"
    fine = fine and bool(((asked >= 0) & (asked < [trees, NODES])).all())
    if fine:
        place = asked[:, 0] * NODES + asked[:, 1]
        fine = bool((place[1:] > place[:-1]).all())
    _need(site, "asked", fine, "nodes of the growing trees, in order, each once")
    fine = ends.dtype == bool and ends.shape == (len(asked), p, bins)
    _need(
        site, "ends", fine and bool(ends[..., -1].all()),
        "the last bin of each group of each node, and every covariate's last bin",
    )  # fmt: skip


def check_pull(
    site: str, objective: str, sigma: float, share: float, class_weight: Array, classes: int
) -> None:
    """Refuse an unknown objective, a scale or share out of range, or weights of other classes."""
    _need(site, "objective", objective in PULLS, f"one of {', '.join(PULLS)}")
    _need(site, "sigma", 0 < sigma < np.inf, "a number above 0")
    _need(site, "share", 0 < share <= 1, "a share above 0, up to 1")
    fine = class_weight.ndim == 1 and len(class_weight) in (0, max(classes, 2))
    fine = fine and bool(((class_weight >= 0) & (class_weight < np.inf)).all())
    _need(site, "class_weight", fine, "a weight for each class, or none")


def check_times(site: str, times: Array, *others: Array) -> None:
    """Refuse times that do not ascend, or sums at other times that are negative or infinite."""
    fine = times.ndim == 1 and bool((np.diff(times) > 0).all()) and np.isfinite(times).all()
    for other in others:
        fine = fine and other.shape == times.shape and bool(((other >= 0) & (other < np.inf)).all())
    _need(site, "times", bool(fine), "finite and ascending, with a hazard of 0 or more at each")


def check_last(site: str, last: Array, times: int) -> None:
    """Refuse groups of times that do not ascend, or that leave a time out."""
    fine = last.ndim == 1 and last.dtype.kind == "i" and bool((np.diff(last, prepend=-1) > 0).all())
    _need(site, "last", fine and (len(last) == 0 or last[-1] == times - 1), "the ends of groups")


def check_bits(site: str, bits: int, largest: float) -> None:
    """Refuse bits with which a sum over rows of `largest` |g| + h in all passes 2^`ROOM`."""
    fine = -1100 <= bits <= FINEST and largest < np.ldexp(1.0, min(ROOM - bits, 1023))
    _need(site, "bits", bool(fine), "so few that sums of gradients stay exact")


def check_columns(site: str, columns: Array, share: float, p: int) -> None:
    """Refuse covariates that are none or not in order, and a share that is out of range."""
    fine = columns.ndim == 1 and columns.dtype.kind == "i" and 1 <= len(columns) <= COLUMNS
    fine = fine and bool((np.diff(columns, prepend=-1, append=p) > 0).all())
    _need(site, "columns", fine, f"up to {COLUMNS} covariates, in order")
    _need(site, "share", 0 < share <= 1, "a share above 0, up to 1")


def check_explained(site: str, objective: str, ends: Array, points: Array, edges: Array) -> None:
    """Refuse an unknown objective, and groups or points beyond the grid (c, E) of c covariates."""
    _need(site, "objective", objective in PULLS, f"one of {', '.join(PULLS)}")
    fine = ends.dtype == bool and ends.shape == (len(edges), edges.shape[1] + 2)
    fine = fine and bool(ends[:, -1].all()) and bool((ends.sum(axis=1) <= GROUPS + 1).all())
    _need(site, "ends", fine, f"the ends of up to {GROUPS} groups of bins, and of missing values")
    last = np.isfinite(edges).sum(axis=1)[:, None] + 1
    fine = points.ndim == 2 and points.dtype.kind == "i" and len(points) == len(edges)
    fine = fine and points.shape[1] <= POINTS + 1
    fine = fine and bool(((points >= -1) & (points <= last)).all())
    _need(site, "points", fine, f"up to {POINTS} bins of the grid, and that of missing values")


def check_vectors(site: str, *arrays: Array) -> None:
    """Refuse arrays of nodes or trees that are no vectors."""
    _need(site, "roots", all(a.ndim == 1 for a in arrays), "vectors of nodes and trees")


def check_ensemble(site: str, trees: Ensemble, kept: Array, margin: Array, x: Array) -> None:
    """Refuse trees that do not give rows x (n, p) the margins (n, K) that the fit has left here.

    kept : () number of trees of the model, of all trees of the fit.
    """
    fine = not kept.shape and kept.dtype.kind == "i" and 1 <= kept <= len(trees.trees)
    _need(site, "kept", bool(fine), "a number of the fit's trees")
    try:
        trees.check(x.shape[1])
        fine = trees.base.shape == margin.shape[1:]
        fine = fine and np.allclose(trees.margins(x), margin, rtol=1e-6, atol=1e-6)
    except (ValueError, IndexError):
        fine = False
    _need(site, "roots", fine, "the trees of this fit")


def check_private(
    site: str, objective: str, classes: int, feature: Array, threshold: Array, missing_left: Array,
    values: Array, p: int,
) -> None:  # fmt: skip
    """Refuse complete trees (T, N) over other covariates, or values not (T − 1, N + 1, K)."""
    _need(site, "objective", objective in PULLS, f"one of {', '.join(PULLS)}")
    _need(site, "classes", 1 <= classes < 2**15, "a number of classes")
    fine = feature.ndim == 2 and len(feature) > 0 and feature.dtype.kind == "i"
    size = feature.shape[1] + 1 if fine else 0
    fine = fine and 2 <= size <= NODES and not size & (size - 1)
    fine = fine and bool(((feature >= 0) & (feature < p)).all())
    _need(site, "feature", fine, "covariates of the nodes of complete trees")
    fine = threshold.shape == missing_left.shape == feature.shape and missing_left.dtype == bool
    fine = fine and threshold.dtype.kind == "f" and bool(np.isfinite(threshold).all())
    _need(site, "threshold", fine, "a number for each node, and the way of missing values")
    fine = values.shape == (len(feature) - 1, size, classes) and values.dtype.kind == "f"
    fine = fine and bool((np.abs(values) <= np.finfo(np.float32).max).all())
    _need(site, "values", fine, "a finite float32 for each leaf of each tree but the last")


def check_added(
    site: str, first: int, added: int, last: int, margin: Array, shape: tuple[int, int]
) -> None:
    """Refuse trees from `first` up to `last` that do not join those in a site's margins."""
    fine = 0 <= first <= added <= last and margin.shape == shape
    _need(site, "first", fine, f"from tree {added} or before, up to those after, of these records")


def _need(site: str, name: str, fine: bool, what: str) -> None:
    if not fine:
        raise Refused(
            "trees",
            f"site {site!r}: argument {name!r} of boosting is not as it must be: {what}. Run the "
            f"same version of fedcohort at the coordinator and all sites.",
        )
