"""Numbers at risk at deaths, from cells that tell neither when nor in which order people left.

In a cell from a to b of time, c censored records left at a mean time of a + u (b − a). They are
taken to have left evenly, but for those that the mean tells to have left at an end: a share 2u − 1
at b where u ≥ ½, a share 1 − 2u at a otherwise. By a time t = a + v (b − a) inside,

    left(t) = c [max(1 − 2u, 0) + 2 min(u, 1 − u) v]                                       (1)

The d deaths of a cell are taken to have happened evenly about their mean time, as far from it as
the nearer end is. With N records, and i deaths before the one at t_i,

    n_i = N − i − Σ left(t_i),   S = Π (1 − 1/n_i)                                         (2)

A cell may end behind the last follow-up, which is one patient's own time. A curve ends no later
than the largest mean time of those who left in a cell, dead or censored.

On cells of one time each, this is the Kaplan-Meier estimate. On wider ones, the estimate from the
exact times lies between two curves, whatever the order within cells: that where every censored
record left as late as its cell allows, and that where it left as early,

    Π (1 − d_j/n_j⁻) ≤ S ≤ Π (1 − d_j/n_j⁺)                                                (3)

because a larger risk set at any death raises S, and with nobody leaving between them d deaths
lower S by 1 − d/n, tied or not. Nothing here is known of a single record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.survival_curves.cells import Cells
from fedcohort.arrays import Array

#: The deaths of a cell are taken together in at most so many steps.
STEPS = 64


@dataclass(frozen=True)
class AtRisk:
    """One group's deaths, and who could have died.

    Attributes
    ----------
    times : (J,), where cells of deaths end.
    deaths : (J,).
    steps : (J,), how many of the steps below come up to each time.
    step_deaths, step_risk : (P,) the deaths of each step, a fraction where a cell has many, and n,
        eq. (2).
    least, most : n_j⁻, n_j⁺ (J,), eq. (3).
    followed : (J + 1,), alive and followed after each time, the start first; −1 where cells of
        deaths and of censored records do not end together.
    about : (J + 1,), the same, by eq. (1) where it is not known.
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
        """Return the same up to `end`, inside or behind the last cell that holds a death.

        Inside, the cell's deaths later than that are not in the curve, and whether any was before
        is not known: `most` is without bound there. `at` (P,) are the times of the steps.
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
    left : the censored records; None where none count.
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
        known, by = _known(died, left)
        gone = _gone(ends, a, b, (ends[:, None] >= b) & ~closed, left)
        about = np.where(known, followed - by, followed - np.r_[0.0, gone])
        followed = np.where(known, followed - by, -1)
    steps = np.searchsorted(cell, np.arange(len(ends)), side="right")
    found = AtRisk(ends, died.counts, steps, share, step_risk, least, most, followed, about)
    means = [died.means, *([] if left is None else [left.means])]
    return found.until(float(np.nanmax(np.concatenate(means))), at)


def exactly(times: Array, deaths: Array, censored: Array) -> AtRisk:
    """Return one group's numbers at risk at its deaths (T,), where ``censored`` (T + 1,) leave.

    Parameters
    ----------
    censored : by slot (`numerics.survival`), those before the first time first.
    """
    died, left = np.cumsum(deaths), np.cumsum(censored)
    total = int(died[-1] + left[-1])
    risk = total - died + deaths - left[:-1]
    followed = np.r_[total, risk - deaths]
    steps = np.arange(1, len(times) + 1)
    return AtRisk(times, deaths, steps, deaths, risk, risk, risk, followed, followed)


def left_at(times: Array, at: Array, leavers: Cells) -> Array:
    """Return how many are at risk at each of the times `at` (J,), from cells of all who leave."""
    a, b = _spans(times, leavers)
    return leavers.counts.sum() - _gone(at, a, b, at[:, None] > b, leavers)


def _spread(died: Cells, starts: Array, ends: Array) -> tuple[Array, Array, Array, Array]:
    """Return cell, time, deaths before it in the cell, and deaths of each step (P,)."""
    sizes = np.minimum(died.counts, STEPS)
    cell = np.repeat(np.arange(len(ends)), sizes)
    i = np.arange(len(cell)) - (np.cumsum(sizes) - sizes)[cell]
    share = died.counts[cell] / sizes[cell]
    mean = np.clip(died.means[cell], starts[cell], ends[cell])
    reach = np.minimum(mean - starts[cell], ends[cell] - mean)
    return cell, mean + reach * ((2 * i + 1) / sizes[cell] - 1), i * share, share


def _spans(times: Array, left: Cells) -> tuple[Array, Array]:
    """Return where cells of censored records, or of all who leave, begin and end (m,)."""
    return np.r_[0.0, times][left.edges[:-1]], times[np.minimum(left.edges[1:], len(times)) - 1]


def _gone(at: Array, a: Array, b: Array, all_of: Array, left: Cells) -> Array:
    """Return Σ left(t) at each of the times `at` (J,), eq. (1); who leaves then has not yet left.

    Parameters
    ----------
    a, b : (m,), where the cells begin and end.
    all_of : (J, m), which cells have been left by all.
    """
    width = np.where(b > a, b - a, 1.0)
    u = np.clip((np.nan_to_num(left.means) - a) / width, 0.0, 1.0)
    v = np.clip((at[:, None] - a) / width, 0.0, 1.0)
    share = np.maximum(1 - 2 * u, 0.0) + 2 * np.minimum(u, 1 - u) * v
    return np.where(all_of, 1.0, np.where(at[:, None] > a, share, 0.0)) @ left.counts


def _known(died: Cells, left: Cells) -> tuple[Array, Array]:
    """Return at which ends of cells of deaths (J + 1,) it is known how many had left, and that."""
    place = np.r_[0, died.edges[1:] - 1]
    at = np.searchsorted(left.edges, place)
    known = left.edges[np.minimum(at, len(left.edges) - 1)] == place
    return known, np.r_[0, np.cumsum(left.counts)][at]
