"""Site steps of `feedback`: votes on a common grid, and each site's comparison with the others.

A site votes on a column only with 4 `min_cell` known values or more, and at least 20. Counts of
patients are 0, or at least `min_cell`, at each site; levels and copies with fewer count as none.
Places and spreads are rounded before votes and comparisons (`own.shown`), whatever the grid. Only
known units are tried, and only clear anomalies are told: a question about other units is refused,
because the best fitting one would tell a place.

A site tells its findings (`compare`) or keeps them as its state (`keep_findings`); then it tells
only whether it had enough rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.algorithms.feedback import gains, others, own, rules
from fedcohort.algorithms.feedback.look import Around, Here
from fedcohort.algorithms.feedback.settings import LEAST_FAR
from fedcohort.algorithms.feedback.words import UNITS
from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.protocol import Keep, Refused, Site, gathered, message, summed

#: Cells of numbers of rows, by powers of two.
SIZES = 40

Table = Site[Encoded, None]


@message
class Scales:
    """Votes on the spread of each of c columns of numbers, (c, cells)."""

    spread: Array


@message
class Places:
    """Votes on the place of each of c columns of numbers, (c, cells)."""

    place: Array


@message
class Votes:
    """Votes for the comparison, summed over sites.

    For c numbers and k categories, p = c + k: ``place`` and ``spread`` (c, cells); ``missing``, the
    missing share, and ``common``, the share of the most common value, (p, cells); sites that use a
    level, ``uses`` (k, most levels), and known rows of each category by powers of two, ``sizes``
    (k, `SIZES`); ``copies`` () of rows, and Σ n² as ``square`` (). For pairs of d columns, (d, d):
    complete rows ``n``, sites ``k``, Σ n r, Σ atanh r and Σ (atanh r)².
    """

    place: Array
    spread: Array
    missing: Array
    common: Array
    uses: Array
    sizes: Array
    copies: Array
    square: Array
    n: Array
    k: Array
    nr: Array
    z: Array
    z2: Array


@message
class Told:
    """A site's findings about itself; only ``few`` () if it has too few rows.

    For f findings, (f,): ``rule``, ``column``, ``other`` (the second column, level or unit), and
    the sizes ``size`` and ``more``. For g unrecorded columns, (g,): ``unrecorded``, the relative
    fall of the loss, ``fall``, with the interval ``low`` to ``high``.
    """

    few: Array
    rule: Array
    column: Array
    other: Array
    size: Array
    more: Array
    unrecorded: Array
    fall: Array
    low: Array
    high: Array


@message
class Heard:
    """Whether a site that keeps its findings has too ``few`` () rows."""

    few: Array


@summed
def vote_scale(site: Table, *, min_cell: int) -> Scales:
    """Vote on the spread of each number."""
    found = [own.known(x, min_cell) for x in site.data.numbers]
    chosen = [others.octave(f.spread) if f.spread > 0 else None for f in found]
    return Scales(others.ballot(chosen, 2 * others.OCTAVES * others.QUARTERS + 1))


@summed
def vote_place(site: Table, *, centre: Array, unit: Array, min_cell: int) -> Places:
    """Vote on the place of each number, in units (c,) from a centre (c,)."""
    return Places(_placed(site.data, centre, unit, min_cell)[0])


@summed
def vote(
    site: Table, *, centre: Array, unit: Array, n_levels: Array, label: Array, min_cell: int
) -> Votes:
    """Vote on all quantities of the comparison.

    Parameters
    ----------
    centre, unit : (c,) of the grids of places and spreads.
    n_levels, label : see `own.columns_of`.
    """
    return votes_of(site.data, centre, unit, n_levels, label, min_cell)


def votes_of(
    data: Encoded, centre: Array, unit: Array, n_levels: Array, label: Array, min_cell: int
) -> Votes:
    """Return the votes of one site's rows."""
    place, spread = _placed(data, centre, unit, min_cell)
    n, m = own.rows_of(data), max(min_cell, 1)
    every = [*(np.isnan(x) for x in data.numbers), *(c < 0 for c in data.codes)]
    gone = [int(g.sum()) for g in every]
    if own.enough(n, m):
        missing = [others.share_cell(own.shown_share(g, n, m)) for g in gone]
    else:
        missing = [None] * len(gone)
    common: list[int | None] = []
    for x, g in zip((*data.numbers, *data.codes), gone, strict=True):
        if not own.enough(n - g, m):
            common.append(None)
            continue
        seen = x[~np.isnan(x)] if x.dtype.kind == "f" else x[x >= 0]
        most = int(np.unique(seen, return_counts=True)[1].max())
        common.append(others.share_cell(own.shown_share(most, n - g, m)))
    uses = np.zeros((len(data.codes), max([0, *n_levels.tolist()])), np.int64)
    sizes: list[int | None] = []
    for j, codes in enumerate(data.codes):
        counts = np.bincount(codes[codes >= 0], minlength=uses.shape[1])
        uses[j] = counts >= m
        total = int(counts.sum())
        sizes.append(total.bit_length() - 1 if own.enough(total, m) else None)
    twice = own.copies(data) if own.enough(n, m) else 0
    x = own.columns_of(data, n_levels, label, m)
    linked = own.pairs(x, m, own.events_of(data, label))
    z, k = own.fisher(linked.r), linked.n > 0
    return Votes(
        place=place,
        spread=spread,
        missing=others.ballot(missing, others.SHARES + 1),
        common=others.ballot(common, others.SHARES + 1),
        uses=uses,
        sizes=others.ballot(sizes, SIZES),
        copies=np.array(twice - twice % m),
        square=np.array(float(n - n % m) ** 2),
        n=linked.n,
        k=k.astype(np.int64),
        nr=linked.n * linked.r,
        z=np.where(k, z, 0.0),
        z2=np.where(k, z * z, 0.0),
    )


@gathered
def compare(
    site: Table,
    *,
    place: Array,
    spread: Array,
    missing: Array,
    common: Array,
    uses: Array,
    sizes: Array,
    copies: Array,
    square: Array,
    n: Array,
    k: Array,
    nr: Array,
    z: Array,
    z2: Array,
    centre: Array,
    unit: Array,
    n_levels: Array,
    label: Array,
    feature: Array,
    factors: Array,
    far: float,
    min_cell: int,
) -> Told:
    """Compare the site's rows with the votes of all sites, less its own votes.

    Parameters
    ----------
    place, …, z2 : the fields of `Votes`, summed over the compared sites.
    feature : (p,) bool, variables that a model of the outcome may use.
    factors : (f, 2), a value in another unit is ``factors[i, 0] · x + factors[i, 1]``.
    far : see `FeedbackSettings`.

    Raises
    ------
    Refused : `far` is below its minimum, or a unit is unknown.
    """
    every = Votes(
        place, spread, missing, common, uses, sizes, copies, square, n, k, nr, z, z2
    )  # fmt: skip
    return found_of(
        site.data, every, centre, unit, n_levels, label, feature, factors, far, min_cell
    )


@gathered
def keep_findings(
    site: Table,
    *,
    place: Array,
    spread: Array,
    missing: Array,
    common: Array,
    uses: Array,
    sizes: Array,
    copies: Array,
    square: Array,
    n: Array,
    k: Array,
    nr: Array,
    z: Array,
    z2: Array,
    centre: Array,
    unit: Array,
    n_levels: Array,
    label: Array,
    feature: Array,
    factors: Array,
    far: float,
    min_cell: int,
) -> Keep[Heard, Told]:
    """Compare the site's rows with the votes of all sites, and keep the findings here.

    Parameters and errors are those of `compare`.
    """
    every = Votes(
        place, spread, missing, common, uses, sizes, copies, square, n, k, nr, z, z2
    )  # fmt: skip
    found = found_of(
        site.data, every, centre, unit, n_levels, label, feature, factors, far, min_cell
    )
    return Keep(Heard(found.few), found)


def found_of(
    data: Encoded,
    every: Votes,
    centre: Array,
    unit: Array,
    n_levels: Array,
    label: Array,
    feature: Array,
    factors: Array,
    far: float,
    min_cell: int,
) -> Told:
    """Return a site's findings from the votes of all sites less its own; see `compare`."""
    if not far >= LEAST_FAR:
        raise Refused("far", f"feedback on differences below {LEAST_FAR:g} sd.")
    if not np.array_equal(factors, np.array([u.back for u in UNITS])):
        raise Refused("factors", "feedback on unknown units.")
    m = max(min_cell, 1)
    if not own.enough(own.rows_of(data), m):
        return told(True, [], [])
    mine: dict[str, Any] = vars(votes_of(data, centre, unit, n_levels, label, m))
    rest = {name: total - mine[name] for name, total in vars(every).items()}
    around = Around(rest, centre, unit, n_levels, label, feature, factors, far)
    own_columns = own.columns_of(data, n_levels, label, m)
    here = Here.of(data, own_columns, n_levels, label, m)
    return told(False, rules.findings(here, around), gains.gains(here, around))


def told(few: bool, found: list[rules.Finding], gained: list[gains.Gain]) -> Told:
    """Return the message of findings and gains."""

    def whole(values: list[int]) -> Array:
        return np.array(values, np.int64)

    def real(values: list[float]) -> Array:
        return np.array(values, np.float64)

    return Told(
        few=np.array(few),
        rule=whole([f.rule for f in found]),
        column=whole([f.column for f in found]),
        other=whole([f.other for f in found]),
        size=real([f.size for f in found]),
        more=real([f.more for f in found]),
        unrecorded=whole([g.column for g in gained]),
        fall=real([g.fall for g in gained]),
        low=real([g.low for g in gained]),
        high=real([g.high for g in gained]),
    )


STEPS = (vote_scale, vote_place, vote, compare, keep_findings)


def _placed(data: Encoded, centre: Array, unit: Array, m: int) -> tuple[Array, Array]:
    """Return votes on places and on log spreads, (c, cells) each."""
    places: list[int | None] = []
    spreads: list[int | None] = []
    for x, c, u in zip(data.numbers, centre.tolist(), unit.tolist(), strict=True):
        found = own.shown(x, m)
        fine = found.spread > 0 and u > 0
        places.append(others.cell((found.place - c) / u) if fine else None)
        spreads.append(others.cell(float(np.log(found.spread / u))) if fine else None)
    cells = 2 * others.HALF + 1
    return others.ballot(places, cells), others.ballot(spreads, cells)
