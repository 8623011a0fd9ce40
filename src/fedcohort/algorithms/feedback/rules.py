"""The rules by which a site finds its own columns off, against what the others voted.

A column's place a and log spread b, in the other sites' sd (eq. (1) of `others`, with the error of
the site's own number added in squares), are off where |a| or |b| is above `far`. What explains them
is what leaves least of D = a² + b²:

    unit      x' = f x + g, of a known pair of units, brings both back: D(x') small          (1)
    swapped   column i looks like the others' column j and j like i, by D and by the
              associations of both with all other columns: D' = Σ (atanh r − others')²/σ²    (2)
    shift     b is as elsewhere, and a is not
    off       nothing of these

    label     with β of the outcome's regression on the features at the other sites, and r the
              correlation of xβ with the outcome here, ζ the same there, by atanh:
              r < 0 and  [(r − ζ)² − (r + ζ)²]/σ² ≥ `TURNED`                                  (3)
    half      the share that is missing is `HALF_EMPTY` above the others' middle, and `FAR` σ
    constant  one value in all rows, of chance below `CHANCE` at the others' share of their
              most common one
    level     a level that no other site uses, although with half its share here the chance that
              none shows `min_cell` rows of it is below `CHANCE`; not where others have own levels
    copies    rows that are copies of others: 1 % and more, and `TIMES` the expected

What a column that a site does not record would add is the fall of the loss 1 − R² of the least
squares fit of the outcome to the recorded features, when it joins them, at the other sites:

    fall = 1 − (1 − R₁²)(n + p₁)/(n − p₁) · (n − p₀)/((1 − R₀²)(n + p₀))                      (4)

(Akaike's final prediction error, Ann. Inst. Statist. Math. 21, 1969), with R² from correlations
within sites, and the interval that of the partial correlation by Fisher's z. Of a category of q > 1
columns, whose R² is above 0 by chance alone, it reaches to the limits for n R²/(1 − R²) as a
noncentral χ² on q degrees as well.

Nothing is revealed here: `steps` says what of this leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy import special

from fedcohort.algorithms.feedback import others, own
from fedcohort.algorithms.feedback.others import Usual
from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded

#: The rules, by number.
SHIFT, UNIT, SWAPPED, OFF, LABEL, HALF, EMPTY, CONSTANT, LEVEL, COPIES = range(10)
#: An explanation leaves at most so much of D for each column.
LEFT = 16.0
#: It takes so much away: `far` squared would be all of a column that is just off.
GAINED = 25.0
#: By so much, in squared standard deviations, the turned sign fits a label better (odds of 20 to
#: 1); so many standard errors r is below 0.
TURNED, BELOW = 6.0, 0.75
#: Missing: the share above the others' middle, and sd; a column without values above `NONE`.
HALF_EMPTY, FAR, NONE = 0.25, 4.5, 0.9
#: What happens by chance so rarely is named.
CHANCE = 1e-4
#: Copies: the least share of rows, and the multiple of what is expected.
COPIED, TIMES = 0.01, 5.0
#: Pairs of columns are known of so many rows at the others, for gains; of so many sites.
ROWS, SITES = 50, 2
#: Least eigenvalue of a matrix of correlations.
LEAST = 0.02


class Finding(NamedTuple):
    """A rule, the column that it is about, the other column, level or factor; and how much.

    Attributes
    ----------
    size, more : of SHIFT the difference of places in the column's unit, and in others' spreads; of
        UNIT, OFF the ratio, or the difference, and that of spreads; of LABEL the AUC, or r; of HALF
        and EMPTY the share missing here and elsewhere; of COPIES, LEVEL the share of rows.
    """

    rule: int
    column: int
    other: int = -1
    size: float = 0.0
    more: float = 0.0


class Gain(NamedTuple):
    """A column that is not recorded, and eq. (4) with its interval."""

    column: int
    fall: float
    low: float
    high: float


@dataclass(frozen=True)
class Here:
    """A site's own columns; p variables, numbers first, then codes; d columns of associations.

    Attributes
    ----------
    rows : of the site.
    known : of each variable (p,), values.
    numbers : place and spread of each number.
    distinct : of each variable, whether it has more than one value.
    counts : of each code, rows by level.
    pairs, x : see `own`.
    two : whether the label is of two kinds.
    copies, expected : rows that are copies, and by chance alone.
    """

    rows: int
    min_cell: int
    known: Array
    numbers: list[own.Known]
    distinct: Array
    counts: list[Array]
    pairs: own.Pairs
    x: Array
    two: bool
    copies: int
    expected: float

    @classmethod
    def of(cls, data: Encoded, x: Array, n_levels: Array, label: Array, min_cell: int) -> Self:
        """Look at a site's rows; x (n, d) are the columns of `own.columns_of`."""
        seen = [v[~np.isnan(v)] for v in data.numbers] + [c[c >= 0] for c in data.codes]
        return cls(
            rows=own.rows_of(data),
            min_cell=min_cell,
            known=np.array([len(v) for v in seen], np.int64),
            numbers=[own.shown(v, min_cell) for v in data.numbers],
            distinct=np.array([bool((v != v[:1]).any()) for v in seen], bool),
            counts=[
                np.bincount(c[c >= 0], minlength=k)
                for c, k in zip(data.codes, n_levels.tolist(), strict=True)
            ],
            pairs=own.pairs(x, min_cell, own.events_of(data, label)),
            x=x,
            two=int(label[0]) == own.CODES,
            copies=own.copies(data),
            expected=own.by_chance(data),
        )


class Around:
    """What the other sites voted, the site's own votes taken off.

    Parameters
    ----------
    votes : the fields of `steps.Votes`; the rest as of `steps.compare`.
    """

    def __init__(
        self,
        votes: Mapping[str, Array],
        centre: Array,
        unit: Array,
        n_levels: Array,
        label: Array,
        feature: Array,
        factors: Array,
        far: float,
    ) -> None:
        self.votes, self.centre, self.unit = votes, centre, unit
        self.far, self.factors, self.labelled = far, factors, int(label[0]) != own.NO_LABEL
        cells = range(len(centre))
        self.place = [others.usual(self._values("place", j), others.PLACE) for j in cells]
        self.spread = [others.usual(self._values("spread", j), others.SPREAD) for j in cells]
        spans = [range(j, j + 1) for j in cells]
        at = len(spans)
        for k in n_levels.tolist():
            spans.append(range(at, at + len(own.levels_of(k))))
            at = spans[-1].stop
        #: The columns of associations of each variable.
        self.spans = spans
        #: Which variables a model may use.
        self.feature = feature

    def _values(self, name: str, j: int) -> Array:
        return others.value_of(others.cast(self.votes[name][j]))

    def shares(self, name: str, j: int) -> Array:
        """Return the other sites' shares (k,) of a variable, ascending."""
        return others.cast(self.votes[name][j]) / others.SHARES

    def off(self, j: int, place: float, spread: float, n: int) -> tuple[float, float]:
        """Return a and b of a place and a spread, seen as if they were of number j."""
        wide = spread / self.unit[j]
        return (
            _in_sd((place - self.centre[j]) / self.unit[j], self.place[j], 1.6 * wide / np.sqrt(n)),
            _in_sd(float(np.log(wide)), self.spread[j], 1.2 / np.sqrt(n)),
        )

    def middle(self, j: int) -> tuple[float, float]:
        """Return the other sites' place and spread of number j, in its unit."""
        place = self.centre[j] + self.unit[j] * self.place[j].middle
        return float(place), float(self.unit[j] * np.exp(self.spread[j].middle))

    @property
    def links(self) -> tuple[Array, Array]:
        """Return mean and variance between sites of atanh r (d, d), NaN of fewer than two sites."""
        k = self.votes["k"].astype(float)
        few = k < 2
        safe = np.where(few, 2.0, k)
        mean = self.votes["z"] / safe
        own_part = np.maximum(self.votes["z2"] - safe * mean**2, 0.0)
        variance = (others.PRIOR * others.LINK**2 + own_part) / (others.PRIOR + safe - 1)
        return np.where(few, np.nan, mean), variance

    @property
    def tells(self) -> Array:
        """Return the columns (d,) whose association with the label enough rows and sites tell."""
        return (self.votes["n"][-1] >= ROWS) & (self.votes["k"][-1] >= SITES)

    @property
    def r(self) -> Array:
        """Correlations within the other sites, (d, d); 0 where there are none."""
        n = self.votes["n"]
        found = np.divide(self.votes["nr"], n, out=np.zeros(n.shape), where=n > 0)
        np.fill_diagonal(found, 1.0)
        return found


def _in_sd(value: float, among: Usual, error: float) -> float:
    return float((value - among.middle) / np.hypot(among.sd, error))


def findings(here: Here, around: Around) -> list[Finding]:
    """Return all that is off at a site, by column."""
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
    """Yield what is off in the values of numbers: unit, swapped columns, shift, or neither."""
    usable = [
        j
        for j, v in enumerate(here.numbers)
        if v.spread > 0 and around.unit[j] > 0 and around.place[j].k >= SITES
    ]
    offs = {j: around.off(j, *_apart(here.numbers[j])) for j in usable}
    explained: set[int] = set()
    for i, j in swapped(here, around, offs):
        explained |= {i, j}
        yield Finding(SWAPPED, i, j)
    for j in usable:
        a, b = offs[j]
        if j in explained or (abs(a) <= around.far and abs(b) <= around.far + 1):
            continue
        yield _named(here, around, j, a, b)


def _apart(v: own.Known) -> tuple[float, float, int]:
    return v.place, v.spread, v.n


def _named(here: Here, around: Around, j: int, a: float, b: float) -> Finding:
    """Name what is off in number j: the explanation that leaves least."""
    place, spread, n = _apart(here.numbers[j])
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
    """Return a number to two digits that matter."""
    return float(f"{value:.2g}")


def coarse(share: float) -> float:
    """Return a share to a twentieth."""
    return round(20 * share) / 20


def swapped(
    here: Here, around: Around, offs: Mapping[int, tuple[float, float]]
) -> list[tuple[int, int]]:
    """Return pairs of numbers that look like each other, eq. (2); each column at most once."""
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
                *around.off(j, *_apart(here.numbers[i])),
                *around.off(i, *_apart(here.numbers[j])),
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
    """Yield levels that nobody else uses."""
    c = len(here.numbers)
    for j, counts in enumerate(here.counts):
        sizes = 2.0 ** others.cast(around.votes["sizes"][j])
        uses = around.votes["uses"][j][: len(counts)]
        total = int(counts.sum())
        if len(sizes) < SITES or not own.enough(total, here.min_cell):
            continue
        if 3 * int((uses == 1).sum()) >= len(sizes):
            continue  # sites have levels of their own, such as a ward
        for level in np.flatnonzero((counts >= here.min_cell) & (uses == 0)).tolist():
            share = own.shown_share(int(counts[level]), total, here.min_cell)
            none = float(np.prod(special.bdtr(here.min_cell - 1, sizes, share / 2)))
            if none < CHANCE:
                yield Finding(LEVEL, c + j, level, coarse(share))


def of_copies(here: Here, around: Around) -> Iterator[Finding]:
    """Yield that rows are copies of others."""
    square = float(around.votes["square"])
    if square <= 0:
        return
    expected = max(float(around.votes["copies"]) / square * here.rows**2, here.expected)
    least = max(here.min_cell, COPIED * here.rows, TIMES * expected)
    if here.copies >= least:
        yield Finding(COPIES, -1, -1, max(coarse(here.copies / here.rows), 0.01))


# the outcome --------------------------------------------------------------------------


def of_label(here: Here, around: Around) -> Iterator[Finding]:
    """Yield that the outcome goes with the features the other way round, eq. (3)."""
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
        # of a column that the site does not vote on, a score would tell what its vote does not
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
    """Return the share of pairs of a 1 and a 0 of y (n,) that the score (n,) has in order."""
    order = np.unique(score, return_inverse=True)[1]
    ones = np.bincount(order, y == 1)
    zeros = np.bincount(order, y != 1)
    below = np.cumsum(zeros) - zeros / 2
    return float(ones @ below / (ones.sum() * zeros.sum()))


def gains(here: Here, around: Around) -> list[Gain]:
    """Return what each column that the site does not record would add, eq. (4)."""
    if not around.labelled:
        return []
    recorded: list[int] = []
    lacking: list[tuple[int, list[int]]] = []
    of_y = around.votes["n"][-1]
    for j, span in enumerate(around.spans):
        told = [a for a in span if around.tells[a]]
        if not around.feature[j] or not told:
            continue
        if 2 * here.known[j] >= here.rows:
            recorded += told
        elif here.known[j] <= (1 - NONE) * here.rows:
            lacking.append((j, told))
    r = around.r
    out: list[Gain] = []
    for j, more in lacking:
        n = float(of_y[more].min())
        p0, p1 = len(recorded), len(recorded) + len(more)
        without, with_it = unexplained(r, recorded), unexplained(r, [*recorded, *more])
        if n <= p1 + 3 or not 0 < with_it <= without:
            continue
        error = (n + p1) / (n - p1) * (n - p0) / (n + p0)
        low, high = interval(1 - with_it / without, n, p1, len(more))
        fall = 1 - with_it / without * error
        out.append(Gain(j, float(round(fall, 3)), float(round(low, 3)), float(round(high, 3))))
    return sorted(out, key=lambda g: -g.fall)


def interval(part: float, n: float, p: int, q: int) -> tuple[float, float]:
    """Return 95 % limits of the share of the rest that q of p columns explain, seen as `part`."""
    z, half = float(own.fisher(np.sqrt(np.array(part)))), 1.96 / np.sqrt(n - p - 3)
    low, high = np.tanh(max(z - half, 0.0)) ** 2, np.tanh(z + half) ** 2
    if q > 1:
        x = (n - p - 1) * part / (1 - part)
        ends = [
            float(special.chndtrinc(x, q, level)) if special.chdtr(q, x) > level else 0.0
            for level in (0.975, 0.025)
        ]
        low, high = min(low, ends[0] / (ends[0] + n)), max(high, ends[1] / (ends[1] + n))
    return float(low), float(high)


def unexplained(r: Array, used: list[int]) -> float:
    """Return 1 − R² of the last column on some of the others, from correlations r (d, d)."""
    if not used:
        return 1.0
    part = proper(r, [*used, len(r) - 1])
    of_y = part[:-1, -1]
    return float(1 - np.linalg.solve(part[:-1, :-1], of_y) @ of_y)


def proper(r: Array, used: list[int]) -> Array:
    """Return the correlations of some columns, made those of some table.

    Each was of other rows, and of other sites, so that together they may be those of none:
    eigenvalues below `LEAST` are lifted to it.
    """
    value, vector = np.linalg.eigh(r[np.ix_(used, used)])
    if value[0] >= LEAST:
        return r[np.ix_(used, used)]
    found = (vector * np.maximum(value, LEAST)) @ vector.T
    sd = np.sqrt(np.diag(found))
    return found / np.outer(sd, sd)
