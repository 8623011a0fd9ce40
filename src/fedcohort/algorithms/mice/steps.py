"""Site steps of chained equations. All replies are sums over sites.

A site keeps its missing entries as last drawn, one set for each chain. A call first draws the
entries of one column anew, by coefficients that the coordinator sends, then sums what the next
column's regression needs. So a column costs one call.

Revealed, only as sums over all sites: `Isolation` once, `Present` at most a few times at the start,
`Slopes` in each call after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing import conditionals
from fedcohort.data.imputing.disclosure import known_isolation
from fedcohort.data.prepare import HEADS, Head
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Keep, Site, message, summed


@message
class Present:
    """Numbers of records: of all (); by pair of sets (H + 1, H + 1), in the first but not in the
    second; by set and feature (H, p), of those known there, ``above`` 0 and in all.

    Set j are the records that have all columns of group j; the last are all records.
    """

    records: Array
    apart: Array
    above: Array
    known: Array


@message
class Slopes:
    """Sums of `conditionals.Terms` over the records of a set, by chain.

    ``records`` (), ``score`` (M, k), ``information`` (M, k, k), ``extra`` (M,).
    """

    records: Array
    score: Array
    information: Array
    extra: Array


@message
class Entries:
    """Missing entries as last drawn, by chain (M, count), in the order of x."""

    drawn: Array


MiceSite = Site[FeatureTable, Entries]


def packed(heads: Sequence[Head]) -> dict[str, Array]:
    """Return columns as arrays, for arguments of steps; names are left out."""
    places = [(h.at[0], len(h.at), HEADS.index(h.kind), int(h.whole)) for h in heads]
    numbers = [(h.shift, h.scale, h.low, h.high) for h in heads]
    return {
        "places": np.array(places, np.int64).reshape(-1, 4),
        "numbers": np.array(numbers, float).reshape(-1, 4),
    }


def unpacked(places: Array, numbers: Array) -> tuple[Head, ...]:
    """Return the columns of `packed`."""
    return tuple(
        Head(
            name="", kind=HEADS[kind], at=tuple(range(first, first + n)), whole=bool(whole),
            shift=shift, scale=scale, low=low, high=high,
        )
        for (first, n, kind, whole), (shift, scale, low, high) in zip(
            places.tolist(), numbers.tolist(), strict=True
        )
    )  # fmt: skip


@summed
def compare_sets(site: Site[FeatureTable, None], *, first: Array, groups: Array) -> Present:
    """Count the records that have one column, or group of columns, and not another.

    first : (H,), the first feature of each column.
    groups : (H, H), by column the columns of its group.
    """
    there = ~np.isnan(site.data.x[:, first])
    inside = np.column_stack([_all(there, group) for group in groups] + [np.ones(len(there))])
    x, sets = site.data.x, inside[:, :-1].T
    return Present(
        records=np.array(len(there)),
        apart=(inside.T @ (1 - inside)).astype(np.int64),
        above=(sets @ (np.nan_to_num(x) > 0)).astype(np.int64),
        known=(sets @ ~np.isnan(x)).astype(np.int64),
    )


def _all(there: Array, group: Array) -> Array:
    """Return 1.0 for each row of `there` (n, H) with all columns of a group (H,), else 0.0."""
    return there[:, group.astype(bool)].all(axis=1).astype(float)


@summed
def chain_sums(
    site: Site[FeatureTable, Entries | None],
    *,
    places: Array,
    numbers: Array,
    groups: Array,
    regressed: Array,
    moving: Array,
    chains: int,
    drawn: int,
    coefficients: Array,
    noises: Array,
    asked: int,
    at: Array,
) -> Keep[Slopes, Entries]:
    """Draw one column's missing entries, then sum what another column's regression needs.

    places, numbers : the columns (`packed`).
    groups : (H, H), as in `compare_sets`.
    regressed : (H, p), which features a column's regression uses.
    moving : (H,), whether a column's missing entries are drawn; the others stay in the middle.
    drawn, asked : numbers of the two columns; −1 draws none.
    coefficients, noises : of the drawn column, (M, k) and (M,).
    at : of the asked column (M, k).
    """
    heads = unpacked(places, numbers)
    u = conditionals.scaled(site.data.x, heads)
    missing = np.isnan(u)
    there = ~missing[:, places[:, 0]]
    rng, used = site.rng, [np.flatnonzero(row) for row in regressed]
    kept = site.state.drawn if site.state is not None else None
    if kept is None:
        kept = _started(u, heads, moving.astype(bool), chains, rng)
    use = _all(there, groups[asked]).astype(bool)
    out, found = np.empty_like(kept), list[conditionals.Terms]()
    holes = ~there[:, drawn] if drawn >= 0 else np.zeros(len(u), bool)
    for m in range(chains):
        full = u.copy()
        full[missing] = kept[m]
        if drawn >= 0 and moving[drawn] and holes.any():
            full[np.ix_(holes, np.array(heads[drawn].at))] = conditionals.drawn(
                full[holes], heads[drawn], used[drawn], coefficients[m], float(noises[m]), rng
            )
        out[m] = full[missing]
        found.append(conditionals.terms(full[use], heads[asked], used[asked], at[m]))
    return Keep(
        Slopes(
            records=np.array(int(use.sum())),
            score=np.array([f.score for f in found]),
            information=np.array([f.information for f in found]),
            extra=np.array([f.extra for f in found]),
        ),
        Entries(out),
    )


def _started(
    u: Array, heads: Sequence[Head], moving: Array, chains: int, rng: np.random.Generator
) -> Array:
    """Return first draws of the missing entries (M, count)."""
    missing = np.isnan(u)
    found = np.empty((chains, int(missing.sum())))
    for m in range(chains):
        full = u.copy()
        for head, moves in zip(heads, moving.tolist(), strict=True):
            rows = np.flatnonzero(missing[:, head.at[0]])
            own = conditionals.guess(u[rows], head, rng) if moves else conditionals.middle(head)
            full[np.ix_(rows, np.array(head.at))] = own
        found[m] = full[missing]
    return found


#: Every step of the method.
STEPS = (known_isolation, compare_sets, chain_sums)
