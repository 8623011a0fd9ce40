"""Numbers at risk at deaths, from counts and mean times in cells.

In a cell from a to b, c censored records left at a mean time of a + u (b − a). It is assumed that
they leave evenly over the cell, except a share at one end: 2u − 1 at b if u ≥ ½, otherwise 1 − 2u
at a. By a time t = a + v (b − a) inside,

    left(t) = c [max(1 − 2u, 0) + 2 min(u, 1 − u) v]                                       (1)

The d deaths of a cell are assumed to be spread evenly about their mean time, up to the nearer end.
With N records, and i deaths before the one at t_i,

    n_i = N − i − Σ left(t_i),   S = Π (1 − 1/n_i)                                         (2)

A cell may end after the last follow-up, which is one patient's own time. So a curve ends no later
than the largest mean time of the records that left in a cell, dead or censored.

With cells of one time each, this is the Kaplan-Meier estimate. With wider cells, the estimate from
exact times lies between two curves, for any order within cells: every censored record leaves as
early, or as late, as its cell allows,

    Π (1 − d_j/n_j⁻) ≤ S ≤ Π (1 − d_j/n_j⁺)                                                (3)

because a larger risk set at any death raises S, and d deaths with no censoring between them lower S
by the factor 1 − d/n, tied or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.survival_curves.cells import Cells
from fedcohort.arrays import Array

#: Largest number of steps in which a cell's deaths are taken.
STEPS = 64


@dataclass(frozen=True)
class AtRisk:
    """One group's deaths and numbers at risk.

    Attributes
    ----------
    times : (J,), ends of the cells of deaths.
    deaths : (J,).
    steps : (J,), number of the steps below up to each time.
    step_deaths, step_risk : (P,) deaths of each step, not whole numbers if a cell has many, and n,
        eq. (2).
    least, most : n_j⁻, n_j⁺ (J,), eq. (3).
    followed : (J + 1,), alive and followed after each time, the start first; −1 if cells of deaths
        and of censored records do not end together.
    about : (J + 1,), the same, by eq. (1) if not known.
    """

    times: Array
    deaths: Array
    steps: Array
    step_deaths: Array
    step_risk: Array
    least: Array
    most: Array
    followed: Array
    about: Array

    def until(self, end: float, at: Array) -> AtRisk:
        """Return the same up to `end`, which is inside or after the last cell with a death.

        A cell that `end` cuts may have no death before it: `most` is infinite there. `at` (P,) are
        the times of the steps; those after `end` are left out.
        """
        kept = np.r_[0.0, self.times[:-1]] < end
        both, cut = np.r_[True, kept], self.times[kept] > end
        return AtRisk(
            np.minimum(self.times, end)[kept], self.deaths[kept],
            np.where(cut, np.count_nonzero(at <= end), self.steps[kept]), self.step_deaths,
            self.step_risk, self.least[kept], np.where(cut, np.inf, self.most[kept]),
            self.followed[both], self.about[both],
        )  # fmt: skip


def at_risk(times: Array, died: Cells, left: Cells | None) -> AtRisk:
    """Return the numbers at risk of one group, eqs. (1) to (3).

    Parameters
    ----------
    times : (T,), the common grid.
    left : the censored records; None: no censoring.
    """
    clock = np.r_[0.0, 0.0, times]
    starts, ends = clock[died.edges[:-1]], clock[died.edges[1:]]
    after = np.cumsum(died.counts)
    total = int(after[-1]) + (0 if left is None else int(left.counts.sum()))
    entering = total - after + died.counts
    cell, at, before, share = _spread(died, starts, ends)
    step_risk = entering[cell] - before
    least = most = entering
    followed = about = np.r_[total, total - after]
    if left is not None:
        a, b = _spans(times, left)
        closed = left.edges[1:] > len(times)
        step_risk = step_risk - _gone(at, a, b, (at[:, None] >= b) & ~closed, left)
        least = entering - (a < ends[:, None]) @ left.counts
        most = entering - ((b <= starts[:, None]) & ~closed) @ left.counts
        both_end, by = _common_ends(died, left)
        gone = _gone(ends, a, b, (ends[:, None] >= b) & ~closed, left)
        about = np.where(both_end, followed - by, followed - np.r_[0.0, gone])
        followed = np.where(both_end, followed - by, -1)
    steps = np.searchsorted(cell, np.arange(len(ends)), side="right")
    found = AtRisk(ends, died.counts, steps, share, step_risk, least, most, followed, about)
    means = [died.means, *([] if left is None else [left.means])]
    return found.until(float(np.nanmax(np.concatenate(means))), at)


def exactly(times: Array, deaths: Array, censored: Array) -> AtRisk:
    """Return the numbers at risk of one group at all times of death.

    Parameters
    ----------
    deaths : (T,).
    censored : (T + 1,) by slot (`numerics.survival`), those before the first time first.
    """
    died, left = np.cumsum(deaths), np.cumsum(censored)
    total = int(died[-1] + left[-1])
    risk = total - died + deaths - left[:-1]
    followed = np.r_[total, risk - deaths]
    steps = np.arange(1, len(times) + 1)
    return AtRisk(times, deaths, steps, deaths, risk, risk, risk, followed, followed)


def left_at(times: Array, at: Array, leavers: Cells) -> Array:
    """Return the numbers at risk at the times `at` (J,), from cells of all leavers."""
    a, b = _spans(times, leavers)
    return leavers.counts.sum() - _gone(at, a, b, at[:, None] > b, leavers)


def _spread(died: Cells, starts: Array, ends: Array) -> tuple[Array, Array, Array, Array]:
    """Return of each step (P,): cell, time, deaths before it in the cell, and deaths."""
    sizes = np.minimum(died.counts, STEPS)
    cell = np.repeat(np.arange(len(ends)), sizes)
    i = np.arange(len(cell)) - (np.cumsum(sizes) - sizes)[cell]
    share = died.counts[cell] / sizes[cell]
    mean = np.clip(died.means[cell], starts[cell], ends[cell])
    reach = np.minimum(mean - starts[cell], ends[cell] - mean)
    return cell, mean + reach * ((2 * i + 1) / sizes[cell] - 1), i * share, share


def _spans(times: Array, left: Cells) -> tuple[Array, Array]:
    """Return starts and ends (m,) of cells of censored records or of all leavers."""
    return np.r_[0.0, times][left.edges[:-1]], times[np.minimum(left.edges[1:], len(times)) - 1]


def _gone(at: Array, a: Array, b: Array, all_of: Array, left: Cells) -> Array:
    """Return Σ left(t), eq. (1), at the times `at` (J,); who leaves at t is not yet counted.

    Parameters
    ----------
    a, b : (m,), starts and ends of the cells.
    all_of : (J, m), cells that all have left.
    """
    width = np.where(b > a, b - a, 1.0)
    u = np.clip((np.nan_to_num(left.means) - a) / width, 0.0, 1.0)
    v = np.clip((at[:, None] - a) / width, 0.0, 1.0)
    share = np.maximum(1 - 2 * u, 0.0) + 2 * np.minimum(u, 1 - u) * v
    return np.where(all_of, 1.0, np.where(at[:, None] > a, share, 0.0)) @ left.counts


def _common_ends(died: Cells, left: Cells) -> tuple[Array, Array]:
    """Return at which ends of cells of deaths (J + 1,) the censored are known, and their number."""
    place = np.r_[0, died.edges[1:] - 1]
    at = np.searchsorted(left.edges, place)
    both_end = left.edges[np.minimum(at, len(left.edges) - 1)] == place
    return both_end, np.r_[0, np.cumsum(left.counts)][at]
