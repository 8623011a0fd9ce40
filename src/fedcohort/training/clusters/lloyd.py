"""k-means over sites, in any space: Lloyd's rounds from sums, none of which is over few patients.

Lloyd, IEEE Trans. Inf. Theory 28(2), 1982. With the points z of all sites' rows, l(z) the nearest
centroid, and S_j the points with l(z) = j,

    W = Σ_z ‖z − μ_l(z)‖²,   μ_j ← μ_j + Σ_{S_j} (z − μ_j) / |S_j|                          (1)

which equals the fit of the pooled table, however its rows are split. A sum over few rows reveals
them, and so does a difference of two sums. So sites first count, and the coordinator asks for sums
only if no row can be singled out of them, with m = `least`:

    size    Each cluster has m rows, and the sums of all clusters are asked for: a sum over a small
            cluster would be the total less the others'. A small cluster is dropped; the cluster
            of the largest W_j is split instead, by a draw of its variance.
    unions  No unions of these clusters and of those last summed differ by fewer than m rows,
            unless they are equal (`numerics.centroids.least_difference`).
    moves   If they would, rows stay where they are along the least cut between clusters
            (`numerics.centroids.allowed`), until no cut of few rows is left. If that does not
            help, or all rows that would move stay, the rounds end.

So with m > 1 a few rows, fewer than m for each cut, may differ from the pooled table's rounds. A
fit of one site has m = 1, and nothing is held back. Not protected: sums of rounds further apart
that lead from one partition to another, or of several fits, combined.

When rounds settle, two clusters may be merged and a third one split
(`training.clusters.swaps`). Rounds continue from there by the same rules, and the least W wins.
They often return to the earlier partition except for a few rows. So the rule of unions then holds
for all rounds before the swap: more rows stay where they are, and if that does not help, rounds
end.

Revealed: `Near` and `Sums` (`training.clusters.partition`) in each round, and `Flows` in those
after a swap, as sums over all sites.

A site that leaves. All clusters' sums of a round add up to the total of its rows. So a sum without
the site, less an earlier one, is that site's own total, however clusters have changed, and its own
clusters' sums if they have not. A mask hides these, and no quorum allows them. So a sum waits for
the site. If it does not return, no more sums are asked for. After one round of sums or more, the
result is the clusters last summed, which include all sites. Before that the fit ends with an error
that names the site, as the total of all rows may be known by then (`seeding.Moments`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import allowed, least_difference
from fedcohort.protocol import (
    DataError,
    Federation,
    QuorumLost,
    SitesAway,
    SiteUnavailable,
    check_all_answered,
)
from fedcohort.training.clusters.partition import STEPS as STEPS
from fedcohort.training.clusters.partition import (
    Cells,
    Near,
    count,
    count_near,
    count_since,
    sum_near,
)
from fedcohort.training.clusters.points import PLAIN, Space
from fedcohort.training.clusters.swaps import swapped
from fedcohort.training.clusters.swaps import swaps as possible

#: Relative decrease of W by which a swap is kept.
BETTER = 1e-9


@dataclass(frozen=True)
class Found:
    """Result of Lloyd's rounds.

    Attributes
    ----------
    centroids : μ (k, d), in the space.
    counts : (k,) rows nearest to each.
    variance : (k, d) of each coordinate within the clusters last summed, about their means.
    inertia : W of the clusters last summed, about their centroids.
    rounds : number of rounds of sums.
    converged : whether no move is left, or the centroids move by at most `tol`; else the rounds ran
        out.
    left : sites that left during the rounds, which ended there; counts are then of the clusters
        last summed.
    moving : rows nearer to another centroid that stayed, because too few others would move with
        them.
    dropped : clusters that stayed empty, or below `least`.
    sites : names of the sites that took part.
    """

    centroids: Array
    counts: Array
    variance: Array
    inertia: float
    rounds: int
    converged: bool
    moving: int
    dropped: int
    sites: tuple[str, ...]
    left: tuple[str, ...] = ()


def lloyd(
    fed: Federation,
    start: Array,
    space: Space = PLAIN,
    *,
    rng: np.random.Generator,
    least: int = 5,
    rounds: int = 300,
    tol: float = 0.0,
    reseeds: int = 5,
    centre: Callable[[Array], Array] | None = None,
    counted: bool = False,
    swaps: int = 0,
) -> Found:
    """Run Lloyd's rounds, eq. (1), from centroids (k, d).

    Parameters
    ----------
    least : m, fewest rows of a sum, or of a difference of two.
    rounds : most rounds in all.
    tol : end when the centroids' squared moves sum to at most this part of a coordinate's mean
        variance within clusters; 0 continues until no row moves.
    reseeds : number of attempts to split other clusters in place of small ones.
    centre : means (k, d) → centroids used instead, e.g. the nearest modes.
    counted : whether rounds are the run's own, with progress and history.
    swaps : number of swaps.

    Raises
    ------
    DataError : fewer than m rows in all.
    SiteUnavailable : a site is absent before the first sums, or fewer sites are left than the
        quorum.
    """
    return _Rounds(fed, space, start, rng, least, tol, reseeds, centre).run(rounds, counted, swaps)


class _Rounds:
    """State of Lloyd's rounds.

    Attributes
    ----------
    at : current centroids: the start, then those of `asked`, without dropped clusters.
    variance, weight : (k, d) and (k,), within the clusters of `at`, and their rows.
    asked : the partition last summed; None before the first.
    summed : its result; None before the first.
    tried : centroids (k, d) after the swaps made so far.
    rounds, since : partitions summed, in order, and their number before the last swap.
    home : the last partition that settled with the least W so far.
    """

    def __init__(
        self,
        fed: Federation,
        space: Space,
        start: Array,
        rng: np.random.Generator,
        least: int,
        tol: float,
        reseeds: int,
        centre: Callable[[Array], Array] | None,
    ):
        self.fed, self.space, self.rng, self.tol = fed.awaiting(), space, rng, tol
        self.least = max(least, 1)
        self.reseeds, self.centre = reseeds, centre
        self.at = np.array(start, float)
        self.k = len(start)
        self.asked: Cells | None = None
        self.variance, self.weight = np.zeros(self.at.shape), np.zeros(self.k, np.int64)
        self.inertia, self.moving = math.nan, 0
        self.done, self.converged = 0, False
        self.summed: Found | None = None
        self.tried: list[Array] = []
        self.rounds: list[Cells] = []
        self.since = 0
        self.home: Cells | None = None

    def run(self, most: int, counted: bool, swaps: int) -> Found:
        """Return the result of the rounds."""
        self._check_rows()
        rounds, best = iter(self.fed.rounds(most) if counted else range(most)), None
        try:
            best = self._settle(rounds, counted)
            self.home = self.asked
            for _ in range(swaps):
                if (start := self._swap(best)) is None:
                    break
                self.at = start if self.centre is None else self.centre(start)
                self.variance, self.weight = best.variance, best.counts
                self.since = len(self.rounds)
                self.inertia = math.inf  # until it is summed: a swap may lead to the same clusters
                found = self._settle(rounds, counted)
                if not found.dropped and found.inertia < best.inertia * (1 - BETTER):
                    best, self.home = found, self.asked
        except SitesAway as error:
            return self._ended(best, error.sites, error)
        except QuorumLost:
            raise
        except SiteUnavailable as error:
            return self._ended(best, {*self.fed.sites} - {*self.fed.answered}, error)
        return replace(best, rounds=self.done)

    def _ended(
        self, best: Found | None, gone: Collection[str], error: SiteUnavailable
    ) -> Found:  # fmt: skip
        """Return the result so far when sites do not return; raise the error if there is none."""
        if (result := best or self.summed) is None:
            raise error
        return replace(result, left=tuple(sorted(gone)))

    def _swap(self, best: Found) -> Array | None:
        """Return centroids (k, d) after the most promising swap not tried yet; None without one."""
        if best.dropped:
            return None
        clusters = best.centroids, best.variance, best.counts
        for swap in possible(*clusters):
            start = swapped(*clusters, swap)
            if not any(np.array_equal(start, tried) for tried in self.tried):
                self.tried.append(start)
                return start
        return None

    def _settle(self, rounds: Iterator[int], counted: bool) -> Found:
        """Continue the rounds until they end; return the result."""
        self.converged = False
        self._go(rounds, counted)
        counts = self._drop_small().counts
        return replace(self._found(counts), moving=self.moving, converged=self.converged)

    def _found(self, counts: Array) -> Found:
        return Found(
            self.at, counts, self.variance, self.inertia, self.done, False, 0,
            self.k - len(self.at), tuple(self.fed.sites),
        )  # fmt: skip

    def _go(self, rounds: Iterator[int], counted: bool) -> None:
        for _ in rounds:
            cells = self._next()
            if cells is not None:
                cells = self._separated(cells)
            if cells is None:
                self.converged = True
                return
            shift = self._sum(cells)
            self.done += 1
            self.summed = self._found(self.weight)
            if counted:
                self.fed.record(inertia=self.inertia)
            if self.tol > 0 and shift <= self.tol * float(self.variance.mean()):
                self.converged = True
                return

    def _check_rows(self) -> None:
        """Check the number of rows."""
        now = Cells.around(self.at[:1])
        near = self.fed.sum(
            count_near, path=now.path, moves=now.moves, before=now.path[:0],
            moves_before=now.moves, **self.space.given,
        )  # fmt: skip
        check_all_answered(self.fed)
        if near.rows < self.least:
            raise DataError(
                f"{int(near.rows)} rows in all are too few to cluster; sums need {self.least}. "
                f"Add sites."
            )

    def _next(self) -> Cells | None:
        """Return the partition to sum next; None if none is allowed or needed."""
        if self.asked is None:
            self._drop_small()
            return Cells.around(self.at)
        if len(self.at) < self.k and self.reseeds and (cells := self._split()):
            return cells
        if self.asked.clusters == len(self.at):
            may, flow, held = self._moves(self.asked, self.least)
            if (flow.sum(axis=0) >= self.least).all():
                self.moving = held
                if not (flow - np.diag(flow.diagonal())).any() or self._over_few(flow):
                    return None
                return self.asked.then(self.at, may) if held else Cells.around(self.at)
        flow = self._drop_small().flow
        self.moving = _moving(flow)
        return None if self._over_few(flow) else Cells.around(self.at)

    def _moves(self, asked: Cells, least: int) -> tuple[Array, Array, int]:
        """Return the allowed moves (k, k), the rows by move (k, k), and the number of rows held
        back.

        least : fewest rows of an allowed cut.
        """
        k = len(self.at)
        tried = asked.then(self.at, np.ones((k, k), np.bool_))
        flow = count(self.fed, tried, asked, self.space).flow
        may = allowed(flow, least)
        held = np.where(may, 0, flow)
        return may, flow - held + np.diag(held.sum(axis=1)), int(held.sum())

    def _drop_small(self) -> Near:
        """Drop small clusters until none is left; return the counts."""
        while True:
            near = count(self.fed, Cells.around(self.at), self.asked, self.space)
            small = near.counts < self.least
            if not small.any():
                return near
            kept = np.ones(len(self.at), bool)
            kept[np.argsort(near.counts, kind="stable")[: (int(small.sum()) + 1) // 2]] = False
            self.at, self.variance, self.weight = (
                a[kept] for a in (self.at, self.variance, self.weight)
            )

    def _split(self) -> Cells | None:
        """Return clusters with those of the largest W_j split; None if that is not allowed."""
        self.reseeds -= 1
        at, weight = self.at, self.weight * self.variance.sum(axis=1)
        for big in np.argsort(-weight, kind="stable")[: self.k - len(at)]:
            draw = self.rng.standard_normal(at.shape[1]) * np.sqrt(self.variance[big])
            at = np.vstack([at, at[big] - draw / 2])
            at[big] += draw / 2
        near = count(self.fed, Cells.around(at), self.asked, self.space)
        if (near.counts < self.least).any() or self._over_few(near.flow):
            return None
        self.at = at
        return Cells.around(at)

    def _separated(self, cells: Cells) -> Cells | None:
        """Return clusters whose sums differ from those before the last swap by many rows.

        Otherwise more rows stay than m requires, twice as many each time, so that rows far from a
        swap stay as last summed. None if no move is left.
        """
        if self.least <= 1 or not self.since or self.asked is None:
            return cells
        before, k, held = self.rounds[: self.since], len(self.at), self.least
        base = self.asked if len(self.rounds) > self.since else self.home
        while any(map(self._over_few, count_since(self.fed, cells, before, self.space))):
            held *= 2
            if base is None or base.clusters != k:
                return None
            may, flow, self.moving = self._moves(base, held)
            if (flow.sum(axis=0) < self.least).any() or not (flow - np.diag(flow.diagonal())).any():
                return None
            cells = base.then(self.at, may)
        return cells

    def _over_few(self, flow: Array) -> bool:
        """Return whether these sums, less those before, would be over few rows."""
        return self.least > 1 and least_difference(flow) < self.least

    def _sum(self, cells: Cells) -> float:
        """Ask for sums, move the centroids; return the sum of their squared moves."""
        sums = self.fed.sum(
            sum_near, path=cells.path, moves=cells.moves, about=self.at, unscaled=False,
            **self.space.given,
        )  # fmt: skip
        check_all_answered(self.fed)
        self.asked, was = cells, self.at
        self.rounds.append(cells)
        step = sums.drift / sums.counts[:, None]
        mean = was + step
        self.at = mean if self.centre is None else self.centre(mean)
        self.weight = sums.counts
        self.variance = np.maximum(sums.squares / sums.counts[:, None] - step**2, 0.0)
        off = ((self.at - mean) ** 2).sum(axis=1)
        self.inertia = float(sums.counts @ (self.variance.sum(axis=1) + off))
        return float(((self.at - was) ** 2).sum())


def _moving(flow: Array) -> int:
    """Return the number of rows outside each cluster's largest part, over old or new clusters."""
    kept = min(flow.max(axis=1).sum(), flow.max(axis=0).sum())
    return int(flow.sum() - kept)


def unscaled(fed: Federation, found: Found, space: Space) -> tuple[Array, Array]:
    """Return means and variances (k, d) of the clusters `found`, before the space's scale.

    For the l1 and l2 scales this takes one more sum, over the final clusters.

    Raises
    ------
    SiteUnavailable : a site of the rounds is absent.
    """
    if space.scale == "none":
        return found.centroids, found.variance
    if space.scale == "standard":
        shift, spread = space.frame
        return shift + found.centroids * spread, found.variance * spread**2
    fed = fed.only(found.sites)
    sums = fed.sum(
        sum_near,
        path=found.centroids[None],
        moves=Cells.around(found.centroids).moves,
        about=np.zeros(found.centroids.shape),
        unscaled=True,
        **space.given,
    )
    check_all_answered(fed)
    mean = sums.drift / sums.counts[:, None]
    return mean, np.maximum(sums.squares / sums.counts[:, None] - mean**2, 0.0)
