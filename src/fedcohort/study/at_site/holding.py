"""Scores of tried settings: sums that each site keeps until all its folds are evaluated.

With centre-kfold one site at a time is evaluated, so a sum over the sites of a fold would be of one
site. Each site therefore keeps the sum over its folds, and all are asked once, at the end.

Revealed: `Held`, once a candidate, only as a sum over sites; before that, that a site has kept it.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Keep, Site, summed
from fedcohort.study.at_site.judging import Judged, Rows
from fedcohort.study.judge.leading import LEADING

H = TypeVar("H")
#: Fold number of all rows, if a whole site is left out.
WHOLE = -1


@message
class Noted:
    """Number of sites that have kept their sums: ()."""

    done: Array


@message
class Held:
    """For r models: concordant pairs ``right``, all pairs, squared errors, ``lost`` rows (r,).

    ``pairs`` are of rows of one site and fold; of K classes ``right`` and ``pairs`` (r K,) have
    those of each against the rest, model by model. ``rows``, ``y``, ``yy`` () are number, sum and
    sum of squares of the left-out outcomes.
    """

    right: Array
    pairs: Array
    squares: Array
    lost: Array
    rows: Array
    y: Array
    yy: Array


def nothing(models: int, classes: int) -> Held:
    """Return the sums of no rows; `classes` is 1 but of several classes."""
    r, pairs = np.zeros(models), np.zeros(models * classes)
    return Held(pairs, pairs, r, r, np.array(0.0), np.array(0.0), np.array(0.0))


@summed
def hold(
    site: Site[Judged, Held | None], *, fold: int, model: int, models: int
) -> Keep[Noted, Held]:
    """Keep the scores of one model on the rows of a fold."""
    d = site.data
    mine = np.ones(len(d.risk), bool) if fold == WHOLE else d.fold == fold
    sums = LEADING[d.kind].sums(d.risk[mine], d.seen.at(mine))
    right, pairs = sums[:-1].reshape(2, -1)
    held = site.state or nothing(models, len(pairs))
    at = np.arange(models) == model
    first = float(model == 0)
    y = d.y[mine]
    lost = float(d.lost > 0)
    after = Held(
        held.right + np.outer(at, right).ravel(),
        held.pairs + np.outer(at, pairs).ravel(),
        held.squares + at * sums[-1],
        held.lost + at * lost,
        held.rows + first * len(y),
        held.y + first * y.sum(),
        held.yy + first * float(y @ y),
    )
    return Keep(Noted(np.array(1)), after)


@summed
def tell_held(site: Site[Rows, Held | None], *, models: int) -> Held:
    """Tell the sums that the site has kept over all its folds.

    Raises
    ------
    ReplyRejected : it has kept none, or of too few rows. Zeros would leave the sum to fewer other
        sites, or to one.
    """
    return kept(site, models)


def kept(site: Site[Any, H | None], models: int) -> H:
    """Return what a site has kept over all folds; raises as `tell_held`."""
    held: Any = site.state
    if held is None or held.rows < site.data.least or len(held.lost) != models:
        raise ReplyRejected(
            f"site {site.name!r} has not kept folds of {site.data.least} rows or more for "
            f"{models} models, so it cannot join the sum over sites."
        )
    return held


STEPS = (hold, tell_held)


def scores(kind: str, held: Held) -> list[float]:
    """Return C-index, AUC or R² of each model; −inf if a model fails on a row."""
    about = (float(held.rows), float(held.y), float(held.yy))
    models = len(held.lost)
    right, pairs = held.right.reshape(models, -1), held.pairs.reshape(models, -1)
    each = np.column_stack([right, pairs, held.squares])
    found = [LEADING[kind].score(sums, *about) for sums in each]
    return [-math.inf if lost else s for s, lost in zip(found, held.lost.tolist(), strict=True)]
