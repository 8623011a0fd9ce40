"""Site steps of boosting by histograms. All replies are sums over sites.

A site keeps its rows' margins, gradients and places in the growing trees (`Growing`). The
coordinator numbers the nodes of a tree, 0 for the root; the right child follows the left one. Moves
(m, 6) are splits, each (tree, node, covariate, bin, missing_left, left child): rows whose bin is at
most `bin` go left, those without a value as missing_left says. K trees grow at a time, one for each
class of softmax.

Revealed: see `program`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort import mapped
from fedcohort.algorithms.boosting import arguments
from fedcohort.algorithms.boosting.objectives import FARTHEST, Outcome, pulls, targets
from fedcohort.arrays import Array
from fedcohort.data import binning
from fedcohort.data.tables import LabelledTable, SurvivalTable, remembered
from fedcohort.data.timegrid import STEPS as TIMES
from fedcohort.numerics.survival import count_at, dies_on_grid, slots
from fedcohort.numerics.trees import histogram
from fedcohort.protocol import DataError, Keep, Site, message, summed


@message
class Growing:
    """State that a site keeps in a fit.

    ``edges`` (p, E) of the bins; ``margin``, ``gradient`` and ``hessian`` (n, K) of its rows, the
    latter two in multiples of 2^-b; ``node`` (n, T) in each of the last T trees; ``used`` (n,),
    rows of the growing trees; ``held`` (n,), rows that are held out of all trees.
    """

    read_only = True

    edges: Array
    margin: Array
    gradient: Array
    hessian: Array
    node: Array
    used: Array
    held: Array


@message
class Begun:
    """``training`` and ``held_out`` (), numbers of rows; Σ w () and Σ w y (K,) of the former.

    ``kinds`` (K,): rows of each class, of counts and survival those without and with an event.
    """

    training: Array
    held_out: Array
    summed_weight: Array
    target: Array
    kinds: Array


@message
class Risks:
    """By group of times (J,): Σ w e^F of the rows at risk, Σ w of deaths, and rows ``leaving``."""

    s0: Array
    d: Array
    leaving: Array


@message
class Root:
    """Σ w · loss () of training rows and of held-out ones; ``size`` (), Σ |g| + Σ h.

    ``cells`` (G, 3): Σg, Σh and rows of each group of bins at the roots of K trees.
    """

    loss: Array
    held_out_loss: Array
    size: Array
    cells: Array


@message
class Sums:
    """Σg and Σh, in multiples of 2^-b, and rows if counted, of each group of bins of each node.

    ``cells`` (G, 3), or (G, 2) without rows.
    """

    cells: Array


@message
class Numbers:
    """Rows of each group of bins of each asked node (G,)."""

    cells: Array


Table = LabelledTable | SurvivalTable
BoostingSite = Site[Table, Growing | None]


@summed(blocks="own")
def begin(
    site: Site[Table, None], *, edges: Array, objective: str, classes: int, kinds: int,
    held_out: float,
) -> Keep[Begun, Growing]:  # fmt: skip
    """Number each value by its bin, draw the rows to hold out, and sum the outcome of the others.

    kinds : number of kinds of the outcome; 0 for values.
    held_out : share of the rows of each site.
    """
    n, p = site.data.x.shape
    k = max(classes, 1)
    arguments.check_grid(site.name, edges, p)
    arguments.check_begin(site.name, objective, classes, kinds, held_out)
    held = np.zeros(n, bool)
    held[draws(site).permutation(n)[: int(held_out * n)]] = True
    nothing = np.zeros((n, k), np.int64)
    weight = weights_of(site.data, np.zeros(0)) * ~held
    told = targets(objective, outcome_of(site.data, k))
    state = Growing(
        np.asarray(edges, np.float32), np.zeros((n, k)), nothing, nothing, nothing, ~held, held
    )
    return Keep(
        Begun(
            training=np.array(int((~held).sum())),
            held_out=np.array(int(held.sum())),
            summed_weight=np.array(weight.sum()),
            target=weight @ told,
            kinds=_kinds(site.data, ~held, kinds),
        ),
        state,
    )


@summed(blocks="own")
def sum_risks(
    site: BoostingSite, *, moves: Array, values: Array, times: Array, together: bool, last: Array
) -> Keep[Risks, Growing]:
    """Move the rows down the last trees, add the leaves' values, and sum e^F over those at risk.

    last : (J,) the last of the times of each group, by which the sums are told.
    """
    state = _grown(site, moves, values)
    table = site.data
    arguments.check_times(site.name, times)
    arguments.check_last(site.name, last, len(times))
    if not isinstance(table, SurvivalTable) or not len(times):
        raise DataError(f"site {site.name!r}: risk sets need survival times and a grid of times.")
    at = slots(table.time, table.event, times, together=together)
    own = ~state.held
    weight = weights_of(table, np.zeros(0))
    dies = dies_on_grid(table.time, table.event, times) & own
    risk = weight * np.exp(np.clip(state.margin[:, 0], -FARTHEST, FARTHEST))

    def grouped(values: Array) -> Array:
        return np.add.reduceat(values, np.r_[0, last[:-1] + 1])

    return Keep(
        Risks(
            s0=np.cumsum(grouped(count_at(at[own], len(times), risk[own]))[::-1])[::-1],
            d=grouped(np.bincount(at[dies], weight[dies], len(times))),
            leaving=grouped(count_at(at[own], len(times))),
        ),
        state,
    )


@summed(blocks="own")
def pull_rows(
    site: BoostingSite, *, moves: Array, values: Array, objective: str, sigma: float,
    class_weight: Array, times: Array, together: bool, hazard: Array, squares: Array, share: float,
    bits: int, ends: Array,
) -> Keep[Root, Growing]:  # fmt: skip
    """Begin K trees: add the last ones' values, and take each row's gradient.

    share : of the rows that the trees are grown from, drawn at the site.
    bits : of the gradients. ends (K, p, B): groups of bins to sum at the roots; empty for none.
    hazard, squares : (T,) d/S₀ and d/S₀² at the times of cox; (0,) otherwise.
    """
    state = _grown(site, moves, values)
    table = site.data
    k = state.margin.shape[1]
    arguments.check_pull(site.name, objective, sigma, share, class_weight, k)
    arguments.check_times(site.name, times, hazard, squares)
    roots = np.column_stack([np.arange(k), np.zeros(k, np.int64)])[: len(ends)]
    arguments.check_asked(site.name, roots, ends, *extent(state))
    weight = weights_of(table, class_weight)
    of = outcome_of(table, k, sigma, times, hazard, squares, together=together)
    g, h, loss = pulls(objective, state.margin, of, weight)
    own = ~state.held
    used = own
    if share < 1:
        used = own & (draws(site).random(len(own)) < share)
    kept = own if state.held.any() else slice(None)
    far = np.abs(g)
    size = float(far[kept].sum() + h[kept].sum())
    most = max(float(far.max(initial=0.0)), float(h.max(initial=0.0)))
    arguments.check_bits(site.name, bits, max(size, most))
    gradient, hessian = histogram.whole(g, bits), histogram.whole(h, bits)
    node = np.zeros(state.margin.shape, np.int64)
    state = Growing(state.edges, state.margin, gradient, hessian, node, used, state.held)
    return Keep(
        Root(
            loss=np.array(float(loss[kept].sum())),
            held_out_loss=np.array(float(loss[state.held].sum())),
            size=np.array(size),
            cells=sums_in(site, state, roots, ends),
        ),
        state,
    )


@summed(blocks="own")
def count_cells(
    site: BoostingSite, *, moves: Array, asked: Array, ends: Array
) -> Keep[Numbers, Growing]:
    """Move rows to the children of their nodes; count those of the asked nodes by group of bins.

    asked : (A, 2) tree and node. ends : (A, p, B), the last bin of each group.
    """
    state = moved(site, moves)
    arguments.check_asked(site.name, asked, ends, *extent(state))
    bins = bins_of(site, state)
    found = [histogram.counted(bins, at, ends[which]) for _, which, at in places(state, asked)]
    return Keep(Numbers(_joined(found, ())), state)


@summed(blocks="own")
def sum_cells(
    site: BoostingSite, *, moves: Array, asked: Array, ends: Array, counted: bool
) -> Keep[Sums, Growing]:
    """Move rows to the children of their nodes; sum their gradients by group of bins.

    counted : whether rows are counted too.
    """
    state = moved(site, moves)
    arguments.check_asked(site.name, asked, ends, *extent(state))
    return Keep(Sums(sums_in(site, state, asked, ends, count=counted)), state)


STEPS = (*binning.STEPS, begin, sum_risks, pull_rows, count_cells, sum_cells, *TIMES)


def draws(site: Site[Table, Any]) -> np.random.Generator:
    """Return a generator for this call that the coordinator, who knows the seed, cannot have.

    Sums over random rows that are known by their positions could be solved for each row. So the
    seed goes with a digest of the table.
    """
    table = site.data

    def digest() -> int:
        found = hashlib.blake2b(digest_size=32)
        for column in table:
            if column is not None:
                for rows in mapped.walked(column):
                    found.update(np.ascontiguousarray(column[rows]).tobytes())
        return int.from_bytes(found.digest(), "big")

    return np.random.default_rng((*site.entropy, remembered(table, "boosting draws", digest)))


def _outcome(table: Table) -> Array:
    return table.y if isinstance(table, LabelledTable) else table.event


def _kinds(table: Table, rows: Array, kinds: int) -> Array:
    """Return the number of rows of each kind (kinds,)."""
    if not kinds:
        return np.zeros(0, np.int64)
    y = np.clip(_outcome(table)[rows].astype(np.int64), 0, kinds - 1)
    return np.bincount(y, minlength=kinds)


def weights_of(table: Table, class_weight: Array) -> Array:
    """Return the weight of each row (n,), times that of its class (K,)."""
    weight = np.ones(len(table.x)) if table.weight is None else np.asarray(table.weight, float)
    if len(class_weight):
        weight = weight * class_weight[np.asarray(_outcome(table), np.int64)]
    return weight


def outcome_of(
    table: Table, classes: int, sigma: float = 1.0, times: Array | None = None,
    hazard: Array | None = None, squares: Array | None = None, *, together: bool = False,
) -> Outcome:  # fmt: skip
    """Return the outcome of the rows, with Λ(t) and Σ d/S₀² at their times."""
    if isinstance(table, LabelledTable):
        return Outcome(np.asarray(table.y, float), classes=classes)
    time, event = np.asarray(table.time, float), np.asarray(table.event, bool)
    if times is None or hazard is None or squares is None or not len(times):
        return Outcome(time, event, sigma=sigma)
    at = slots(time, event, times, together=together) + 1
    return Outcome(
        time, dies_on_grid(time, event, times), hazard=np.append(0.0, np.cumsum(hazard))[at],
        squares=np.append(0.0, np.cumsum(squares))[at],
    )  # fmt: skip


def bins_of(site: Site[Table, Any], state: Growing) -> Array:
    """Return the bin of each value, (n, p)."""
    known: list[tuple[bytes, Array]] = remembered(site.data, "boosting bins", list)
    key = state.edges.tobytes()
    for edges, bins in known:
        if edges == key:
            return bins
    x = site.data.x
    parts = [histogram.numbered(x[rows], state.edges) for rows in mapped.walked(x)]
    known.append((key, parts[0] if len(parts) == 1 else np.concatenate(parts)))
    return known[-1][1]


def extent(state: Growing) -> tuple[int, int, int]:
    """Return the numbers of trees, of covariates, and of bins of each."""
    return state.node.shape[1], len(state.edges), state.edges.shape[1] + 2


def _grown(site: BoostingSite, moves: Array, values: Array) -> Growing:
    """Return the state after the last trees: rows in their leaves, values (T, N) added.

    T is K, or a multiple if a round has several trees of each class: tree t is of class t mod K.
    """
    state = site.state
    if state is not None:
        arguments.check_trees(site.name, len(values), state.margin.shape[1])
    if state is not None and len(values) > state.node.shape[1]:
        node = np.zeros((len(state.node), len(values)), np.int64)
        site = replace(site, state=replace(state, node=node))
    state = moved(site, moves)
    arguments.check_values(site.name, values, state.node)
    if not values.size:
        return state
    margin, classes = state.margin.copy(), state.margin.shape[1]
    for t, own in enumerate(values):
        margin[:, t % classes] += own[state.node[:, t]]
    return replace(state, margin=margin)


def moved(site: BoostingSite, moves: Array) -> Growing:
    """Return the state after rows have moved to the children of their nodes, and on from there.

    Raises
    ------
    DataError : the fit has not begun.
    Refused : the moves cannot be, or a child's number is not above its parent's.
    """
    state = site.state
    if state is None:
        raise DataError(
            f"site {site.name!r} has begun no trees for these rows. Start the fit again."
        )
    arguments.check_moves(site.name, moves, *extent(state))
    if not len(moves):
        return state
    bins, node = bins_of(site, state), state.node.copy()
    for k in np.flatnonzero(np.bincount(moves[:, 0])).tolist():
        node[:, k] = histogram.settled(bins, node[:, k], moves[moves[:, 0] == k])
    return replace(state, node=node)


def places(state: Growing, asked: Array) -> Iterator[tuple[int, slice, Array]]:
    """Yield for each tree k: its asked nodes, and of each row (n,) which of them it is in, or −1.

    The asked nodes (A, 2) are in the order of the trees.
    """
    for k in np.flatnonzero(np.bincount(asked[:, 0])).tolist():
        which = slice(*np.searchsorted(asked[:, 0], [k, k + 1]).tolist())
        yield k, which, histogram.placed(state.node[:, k], state.used, asked[which, 1])


def sums_in(
    site: Site[Table, Any], state: Growing, asked: Array, ends: Array, *, count: bool = True
) -> Array:
    """Return Σg, Σh and, if asked for, the rows of each group (G, 3)."""
    bins, found = bins_of(site, state), list[Array]()
    for k, which, at in places(state, asked):
        g, h = (np.ascontiguousarray(a[:, k]) for a in (state.gradient, state.hessian))
        found.append(histogram.summed(bins, at, g, h, ends[which], count=count))
    return _joined(found, (2 + count,))


def _joined(found: list[Array], shape: tuple[int, ...]) -> Array:
    """Return the sums of several trees (G, …) in order; those of one are not copied."""
    if len(found) == 1:
        return found[0]
    return np.concatenate([np.zeros((0, *shape), np.int64), *found])
