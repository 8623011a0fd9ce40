"""Rules by which a site finds anomalies in its own columns, compared with the others' votes.

A column's place a and log spread b, in the other sites' sd (eq. (1) of `others`, with the squared
error of the site's own number added), are anomalous if |a| or |b| is above `far`. The explanation
with the least D = a² + b² is chosen:

    unit      x' = f x + g, of a known pair of units, brings both back: D(x') small          (1)
    swapped   column i looks like the others' column j and j like i, by D and by the
              associations of both with all other columns: D' = Σ (atanh r − others')²/σ²    (2)
    shift     b is usual, but a is not
    off       none of these

    label     with β of the outcome's regression on the features at the other sites, and r the
              correlation of xβ with the outcome here, ζ the same there, by atanh:
              r < 0 and  [(r − ζ)² − (r + ζ)²]/σ² ≥ `TURNED`                                  (3)
    half      the missing share is `HALF_EMPTY` and `FAR` σ above the others' median
    constant  one value in all rows; the chance of that is below `CHANCE` at the others' share
              of their most common value
    level     a level that no other site uses; with half its share here, the chance that none
              shows `min_cell` rows of it is below `CHANCE`; not if others have own levels
    copies    copied rows: at least 1 %, and `TIMES` the expected number

Revealed: see `steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from fedcohort.algorithms.feedback import others, own
from fedcohort.algorithms.feedback.look import NONE, SITES, Around, Here, proper
from fedcohort.arrays import Array

#: The rules, by number.
SHIFT, UNIT, SWAPPED, OFF, LABEL, HALF, EMPTY, CONSTANT, LEVEL, COPIES = range(10)
#: Largest D left by an explanation, per column.
LEFT = 16.0
#: Least decrease of D by an explanation; a column just at `far` has D = far².
GAINED = 25.0
#: Least improvement with the label's sign reversed, in squared standard deviations (odds of 20 to
#: 1); least distance of r below 0, in standard errors.
TURNED, BELOW = 6.0, 0.75
#: Missing: least share above the others' median, and least number of sd.
HALF_EMPTY, FAR = 0.25, 4.5
#: Chance below which an event is reported.
CHANCE = 1e-4
#: Copies: least share of rows, and least multiple of the expected number.
COPIED, TIMES = 0.01, 5.0


class Finding(NamedTuple):
    """A rule, its column, the other column, level or factor; and the size.

    Attributes
    ----------
    size, more : for SHIFT the difference of places in the column's unit, and in others' spreads;
        for UNIT, OFF the ratio, or the difference, and that of spreads; for LABEL the AUC, or r;
        for HALF and EMPTY the missing share here and elsewhere; for COPIES, LEVEL the share of
        rows.
    """

    rule: int
    column: int
    other: int = -1
    size: float = 0.0
    more: float = 0.0


def findings(here: Here, around: Around) -> list[Finding]:
    """Return all anomalies of a site, by column."""
    found = [
        *of_values(here, around),
        *of_gaps(here, around),
        *of_levels(here, around),
        *of_copies(here, around),
        *of_label(here, around),
    ]
    return sorted(found, key=lambda f: (f.column, f.rule))


# numbers ------------------------------------------------------------------------------


def of_values(here: Here, around: Around) -> Iterator[Finding]:
    """Yield anomalies in the values of numbers: unit, swapped columns, shift, or none of these."""
    usable = [
        j
        for j, v in enumerate(here.numbers)
        if v.spread > 0 and around.unit[j] > 0 and around.place[j].k >= SITES
    ]
    offs = {j: around.off(j, *_measures(here.numbers[j])) for j in usable}
    explained: set[int] = set()
    for i, j in swapped(here, around, offs):
        explained |= {i, j}
        yield Finding(SWAPPED, i, j)
    for j in usable:
        a, b = offs[j]
        if j in explained or (abs(a) <= around.far and abs(b) <= around.far + 1):
            continue
        yield _named(here, around, j, a, b)


def _measures(v: own.Known) -> tuple[float, float, int]:
    return v.place, v.spread, v.n


def _named(here: Here, around: Around, j: int, a: float, b: float) -> Finding:
    """Return the finding for number j: its best explanation."""
    place, spread, n = _measures(here.numbers[j])
    usual_place, usual_spread = around.middle(j)
    ways: list[tuple[float, int]] = []
    for i, (f, g) in enumerate(around.factors.tolist()):
        if g == 0 and (place <= 0 or usual_place <= 0):
            continue
        left = sum(v * v for v in around.off(j, f * place + g, f * spread, n))
        if left <= LEFT and a * a + b * b - left >= GAINED / 2:
            ways.append((left + 2.0, i))
    shift = (b * b, -1) if abs(a) > around.far else (np.inf, -1)
    best = min([*ways, shift])
    if best[1] >= 0:
        f, g = around.factors[best[1]].tolist()
        return Finding(UNIT, j, best[1], two_digits(1 / f), two_digits(place / usual_place))
    moved = two_digits(place - usual_place)
    if shift[0] <= LEFT:
        return Finding(SHIFT, j, -1, moved, two_digits((place - usual_place) / usual_spread))
    return Finding(OFF, j, -1, moved, two_digits(spread / usual_spread))


def two_digits(value: float) -> float:
    """Return a number rounded to two significant digits."""
    return float(f"{value:.2g}")


def coarse(share: float) -> float:
    """Return a share rounded to a twentieth."""
    return round(20 * share) / 20


def swapped(
    here: Here, around: Around, offs: Mapping[int, tuple[float, float]]
) -> list[tuple[int, int]]:
    """Return pairs of numbers that look exchanged, eq. (2); each column at most once."""
    mean, variance = around.links
    link = own.fisher(here.pairs.r)
    error = variance + 1.1 / np.maximum(here.pairs.n - 3.0, 1.0)
    there = here.pairs.n > 0
    tried: list[tuple[float, int, int]] = []
    for i in offs:
        for j in offs:
            if j <= i or around.unit[i] == 0:
                continue
            before = sum(v * v for v in (*offs[i], *offs[j]))
            crossed = (
                *around.off(j, *_measures(here.numbers[i])),
                *around.off(i, *_measures(here.numbers[j])),
            )
            after = sum(v * v for v in crossed)
            linked = 0.0
            for one, other in ((i, j), (j, i)):
                use = there[one] & ~np.isnan(mean[one]) & ~np.isnan(mean[other])
                use[[i, j]] = False
                now = (link[one] - mean[one]) ** 2 - (link[one] - mean[other]) ** 2
                linked += float((now[use] / error[one][use]).sum())
            # The others' associations of one column are not independent of each other.
            linked *= 0.5
            gain = before - after + linked
            if after > 2 * LEFT or gain < GAINED:
                continue
            alone = sum(min(v[0] ** 2, around.far**2) + v[1] ** 2 for v in (offs[i], offs[j]))
            if linked + alone - after > 0:
                tried.append((gain, i, j))
    taken: set[int] = set()
    out: list[tuple[int, int]] = []
    for _, i, j in sorted(tried, reverse=True):
        if not {i, j} & taken:
            taken |= {i, j}
            out.append((i, j))
    return sorted(out)


# gaps, levels, copies -----------------------------------------------------------------


def of_gaps(here: Here, around: Around) -> Iterator[Finding]:
    """Yield columns that are half empty, empty, or constant."""
    for j, known in enumerate(here.known.tolist()):
        shares = around.shares("missing", j)
        gone = here.rows - known
        if len(shares) >= SITES and gone >= here.min_cell:
            among = others.usual(shares, others.SHARE)
            share = own.shown_share(gone, here.rows, here.min_cell)
            sd = np.hypot(among.sd, np.sqrt(share * (1 - share) / here.rows))
            far = share - among.middle
            if far >= HALF_EMPTY and far >= FAR * sd:
                rule = EMPTY if share >= NONE else HALF
                yield Finding(rule, j, -1, coarse(share), coarse(among.middle))
        common = around.shares("common", j)
        if len(common) < SITES or here.distinct[j] or not own.enough(known, here.min_cell):
            continue
        upper = float(np.quantile(common, 0.75 if len(common) > 3 else 0.5, method="higher"))
        share = special.expit(special.logit(min(upper + 0.5 / others.SHARES, 0.999)) + 1.0)
        if share**known < CHANCE:
            yield Finding(CONSTANT, j)


def of_levels(here: Here, around: Around) -> Iterator[Finding]:
    """Yield levels that no other site uses."""
    c = len(here.numbers)
    for j, counts in enumerate(here.counts):
        sizes = 2.0 ** others.cast(around.votes["sizes"][j])
        uses = around.votes["uses"][j][: len(counts)]
        total = int(counts.sum())
        if len(sizes) < SITES or not own.enough(total, here.min_cell):
            continue
        if 3 * int((uses == 1).sum()) >= len(sizes):
            continue  # sites have their own levels, such as a ward
        for level in np.flatnonzero((counts >= here.min_cell) & (uses == 0)).tolist():
            share = own.shown_share(int(counts[level]), total, here.min_cell)
            none = float(np.prod(special.bdtr(here.min_cell - 1, sizes, share / 2)))
            if none < CHANCE:
                yield Finding(LEVEL, c + j, level, coarse(share))


def of_copies(here: Here, around: Around) -> Iterator[Finding]:
    """Yield a finding if rows are copies of others."""
    square = float(around.votes["square"])
    if square <= 0:
        return
    expected = max(float(around.votes["copies"]) / square * here.rows**2, here.expected)
    least = max(here.min_cell, COPIED * here.rows, TIMES * expected)
    if here.copies >= least:
        yield Finding(COPIES, -1, -1, max(coarse(here.copies / here.rows), 0.01))


# the outcome --------------------------------------------------------------------------


def of_label(here: Here, around: Around) -> Iterator[Finding]:
    """Yield a finding if the outcome's association with the features is reversed, eq. (3)."""
    y = here.x[:, -1]
    seen = ~np.isnan(y)
    n = int(seen.sum())
    if not around.labelled or not own.enough(n, here.min_cell):
        return
    values, counts = np.unique(y[seen], return_counts=True)
    if len(values) < 2 or (len(values) == 2 and counts.min() < max(here.min_cell, 5)):
        return
    used = [
        a
        for j, span in enumerate(around.spans)
        for a in span
        if around.feature[j]
        and 2 * here.known[j] >= here.rows
        and around.tells[a]
        # with a column that the site does not vote on, the score would tell more than its votes
        and here.pairs.n[a, -1] > 0
    ]
    if not used:
        return
    r = proper(around.r, [*used, len(around.r) - 1])
    of_y = r[:-1, -1]
    beta = np.linalg.solve(r[:-1, :-1], of_y)
    there = np.sqrt(float(beta @ of_y))
    weight = np.abs(beta * of_y)
    between = float(weight @ around.links[1][used, -1] / weight.sum()) if weight.any() else 0.0
    x = here.x[:, used]
    known = ~np.isnan(x)
    n_known = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, x, 0.0).sum(axis=0) / n_known
    sd = np.sqrt(np.where(known, (x - mean) ** 2, 0.0).sum(axis=0) / n_known)
    z = np.where(known & (sd > 0), (x - mean) / np.where(sd > 0, sd, 1.0), 0.0)
    score = (z @ beta)[seen]
    if not score.std() > 0:
        return
    r_here = float(np.corrcoef(score, y[seen])[0, 1])
    zeta, z_here = own.fisher(np.array([there, r_here])).tolist()
    error = 1 / (n - 3)
    turned = -4 * zeta * z_here / (error + max(between, others.LINK**2))
    if z_here < -BELOW * np.sqrt(error) and turned >= TURNED:
        size = auc(score, y[seen]) if here.two else r_here
        yield Finding(LABEL, -1, -1, coarse(size))


def auc(score: Array, y: Array) -> float:
    """Return the share of pairs of a 1 and a 0 of y (n,) that the score (n,) ranks correctly."""
    order = np.unique(score, return_inverse=True)[1]
    ones = np.bincount(order, y == 1)
    zeros = np.bincount(order, y != 1)
    below = np.cumsum(zeros) - zeros / 2
    return float(ones @ below / (ones.sum() * zeros.sum()))
