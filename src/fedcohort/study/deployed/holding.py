"""How good settings are that are tried: sums that each site keeps until all its folds are judged.

With centre-kfold one site at a time is judged, so that a sum over the sites of a fold would be of
one site. Each site therefore keeps what its folds add up to, and all are asked once, at the end.

Revealed: `Held`, once a candidate, only as a sum over sites; before that, that a site has kept it.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import Binary, Survival
from fedcohort.metrics import classification
from fedcohort.metrics.concordance import comparable_pairs
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Keep, Site, summed
from fedcohort.study.deployed.judging import Judged, Rows

#: Stands for all rows, where a whole site is left out.
WHOLE = -1


@message
class Noted:
    """How many sites have kept what they were asked to: ()."""

    done: Array


@message
class Held:
    """Of r models: pairs ``right`` and in all, squared errors, rows ``lost`` (r,); y's sums ().

    ``pairs`` are of rows of one site and fold; ``rows``, ``y``, ``yy`` are of the left-out rows.
    """

    right: Array
    pairs: Array
    squares: Array
    lost: Array
    rows: Array
    y: Array
    yy: Array


def nothing(models: int) -> Held:
    """Return the sums of no rows."""
    r = np.zeros(models)
    return Held(r, r, r, r, np.array(0.0), np.array(0.0), np.array(0.0))


@summed
def hold(
    site: Site[Judged, Held | None], *, fold: int, model: int, models: int
) -> Keep[Noted, Held]:
    """Keep how one model does on the rows of a fold."""
    d, held = site.data, site.state or nothing(models)
    mine = np.ones(len(d.risk), bool) if fold == WHOLE else d.fold == fold
    right, pairs, squares = _sums(d, mine)
    at = np.arange(models) == model
    first = float(model == 0)
    y = d.y[mine]
    lost = float(d.lost > 0)
    kept = Held(
        held.right + at * right,
        held.pairs + at * pairs,
        held.squares + at * squares,
        held.lost + at * lost,
        held.rows + first * len(y),
        held.y + first * y.sum(),
        held.yy + first * float(y @ y),
    )
    return Keep(Noted(np.array(1)), kept)


@summed
def tell_held(site: Site[Rows, Held | None], *, models: int) -> Held:
    """What the site has kept of all its folds.

    Raises
    ------
    ReplyRejected : it has kept none, or of too few rows. Zeros would leave the other sites' sums to
        fewer of them, or to one.
    """
    held = site.state
    if held is None or held.rows < site.data.least or len(held.right) != models:
        raise ReplyRejected(
            f"site {site.name!r} has not kept folds of {site.data.least} rows or more of "
            f"{models} models, and is in no sum of what sites have kept."
        )
    return held


STEPS = (hold, tell_held)


def scores(kind: str, held: Held) -> list[float]:
    """Return C-index, AUC or R² of each model; chance where no pair tells, −inf where one fails."""
    if kind in (Survival.kind, Binary.kind):
        parts = zip(held.right.tolist(), held.pairs.tolist(), strict=True)
        found = [right / pairs if pairs else 0.5 for right, pairs in parts]
    else:
        rows = max(1.0, float(held.rows))
        spread = float(held.yy) - float(held.y) ** 2 / rows
        found = [1.0 - s / spread if spread > 0 else 0.0 for s in held.squares.tolist()]
    return [-math.inf if lost else s for s, lost in zip(found, held.lost.tolist(), strict=True)]


def _sums(d: Judged, mine: Array) -> tuple[float, float, float]:
    """Return right pairs, pairs and squared errors among some rows."""
    if not mine.any():
        return 0.0, 0.0, 0.0
    if d.kind == Survival.kind:
        found = comparable_pairs(d.risk[mine], d.time[mine], np.asarray(d.event[mine], bool))
        return float(np.sum(found.lower + 0.5 * found.tied)), float(found.comparable.sum()), 0.0
    y, f = d.y[mine], d.f[mine]
    if d.kind == Binary.kind:
        pairs = float(y.sum() * (len(y) - y.sum()))
        return (float(classification.auc(y, f)) * pairs if pairs else 0.0), pairs, 0.0
    return 0.0, 0.0, float(np.sum((y - f) ** 2))
