"""Multiple imputation by chained equations, from sums over sites.

Van Buuren, Groothuis-Oudshoorn, J. Stat. Softw. 45(3), 2011; equations in
`data.imputing.conditionals`. M chains run side by side. A sweep takes the columns in turn: of
the records that have column j, the sites sum what its regression on the other columns needs, with
missing entries as last drawn; the coordinator draws the coefficients from their posterior, and the
sites draw the missing entries. The draws of the last `KEPT` sweeps are the model: a row of any
table is completed by them (`data.imputing.chained`).
Numbers take one sum a sweep. Levels and counts take Newton's steps, from the coefficients of the
sweep before. Columns without missing entries are regressed in the last sweep alone.

Columns that single out few records of the table are refused (`data.imputing.disclosure`). Sums
over two sets of records reveal their difference, so with several sites:

    sets     of two sets, as many records as `min_cell` or none are in one alone; if not, both
             become the records that have both columns, and so on                          (1)
    entries  missing entries of a column that fewer than `min_cell` records lack, or no more than x
             has features, are not drawn in the chains, and stay in the middle: a sum whose few
             entries change shows the other entries of their records                       (2)
    levels   a level that fewer than `min_cell` records of a set have, or have not, takes no part
             in that set's regression                                                      (3)

Whether the chains have settled is seen from the draws. With d_mk the mean of coefficient k of chain
m over the last w sweeps, less that over the w before, w a third of all sweeps, and s_k the standard
deviation of coefficient k between chains,

    drift    D = M Σ_k (mean_m d_mk)²/s_k² / Σ_k var_m(d_mk)/s_k²                          (4)

D is about 1 at rest, and larger while all chains move one way.

Drawn entries change from call to call by amounts that no one outside the site knows. Still, many
sums of the same records reveal more than one does.

Revealed, only as sums over all sites: `Isolation` once; `Present`, once or until (1) holds;
`Slopes`, each call: for k coefficients and M chains, 1 + M (1 + k + k²) numbers. Sites learn all
draws of coefficients.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.mice.model import MiceModel
from fedcohort.algorithms.mice.settings import MiceSettings
from fedcohort.algorithms.mice.steps import Slopes, chain_sums, compare_sets, packed
from fedcohort.arrays import Array
from fedcohort.data.imputing import conditionals
from fedcohort.data.imputing.chained import Chain
from fedcohort.data.imputing.disclosure import checked, heads_of
from fedcohort.data.prepare import Head
from fedcohort.protocol import DataError, Federation, NothingToLearn, Task

#: Newton's steps in the first and in later sweeps, and the change at which they end.
STEPS_FIRST, STEPS_LATER, SETTLED = 12, 2, 1e-4
#: Sweeps whose draws are kept, at most.
KEPT = 5


@dataclass(frozen=True)
class Sets:
    """The records of each column's regression.

    Attributes
    ----------
    groups : (H, H), by column the columns that its records must have.
    uses : (H, p), the features that its regression uses.
    missing : (H,), records without the column.
    records : at all sites.
    """

    groups: Array
    uses: Array
    missing: Array
    records: int


class Trace:
    """Draws of the latest sweeps: (coefficients by column (M, k), spread (M, H)) of each."""

    def __init__(self, most: int):
        self._sweeps = deque[tuple[list[Array], Array]](maxlen=most)

    def add(self, coefficients: Sequence[Array], spread: Array) -> None:
        """Keep the draws of a sweep."""
        self._sweeps.append(([c.copy() for c in coefficients], spread.copy()))

    def drift(self, w: int, columns: Sequence[int]) -> float:
        """Return eq. (4) over windows of w sweeps; NaN for w = 0 and for no columns."""
        if not w or not columns:
            return math.nan
        made = [np.concatenate([c[j] for j in columns], axis=1) for c, _ in self._sweeps]
        d = np.mean(made[-w:], axis=0) - np.mean(made[-2 * w : -w], axis=0)
        wide = np.maximum(made[-1].std(axis=0, ddof=1), 1e-12)
        moved, noise = d.mean(axis=0) / wide, d.std(axis=0, ddof=1) / wide
        return float(len(d) * np.square(moved).sum() / max(np.square(noise).sum(), 1e-12))

    def kept(self, last: Sequence[Array], spread: Array, moving: Array) -> tuple[Any, Array]:
        """Return coefficients by column (M, S, k) and spread (M, S, H) of the last S sweeps.

        Columns that are regressed in the last sweep alone have its draws in all.
        """
        sweeps = list(self._sweeps)[-KEPT:]
        coefficients = tuple(
            np.stack([c[j] if moving[j] else one for c, _ in sweeps], axis=1)
            for j, one in enumerate(last)
        )
        return coefficients, np.stack([np.where(moving, s, spread) for _, s in sweeps], axis=1)


def limit(columns: int, chains: int) -> float:
    """Return the drift above which chains have not settled: 4 sd above 1, of eq. (4) at rest."""
    return 1 + 4 * math.sqrt(2 / max(columns, 1) * (1 + 1 / (chains - 1)))


def fit(fed: Federation, config: MiceSettings, task: Task) -> MiceModel:
    """Fit the regressions on all sites that answer the first call.

    Raises
    ------
    DataError : fewer than two columns.
    NothingToLearn : too few records, or too few have a group of columns together.
    SiteUnavailable : a site left during the fit.
    """
    heads = heads_of(task)
    if len(heads) < 2:
        raise DataError("chained equations need two columns or more; name another column.")
    rounds = fed.rounds(config.sweeps)
    next(rounds)
    there, least = checked(fed, task)
    sets = compared(there, heads, least)
    rng, p, chains = task.rng, len(task.features), config.draws
    moving = sets.missing > 0
    if least > 1:
        moving &= sets.missing >= max(least, p)
    common = {**packed(heads), "groups": sets.groups, "regressed": sets.uses}
    common["moving"] = moving.astype(np.int64)
    uses = tuple(np.flatnonzero(row) for row in sets.uses)
    at = [
        np.tile(conditionals.start(h, use), (chains, 1)) for h, use in zip(heads, uses, strict=True)
    ]
    drawn, spread = [a.copy() for a in at], np.ones((chains, len(heads)))
    trace = Trace(max(KEPT, 2 * (config.sweeps // 3)))
    drift, last = math.nan, -1
    for sweep in range(config.sweeps):
        if sweep:
            next(rounds)
        end, moved = sweep == config.sweeps - 1, 0.0
        for j, head in enumerate(heads):
            if not (moving[j] or end):
                continue
            before = drawn[j].mean(axis=0)
            first = not sweep or (end and not moving[j])
            sums = None
            for _ in range(_steps(head, first=first)):
                sums = there.sum(
                    chain_sums, **common, chains=chains, drawn=last,
                    coefficients=drawn[last] if last >= 0 else np.zeros((0, 0)),
                    noises=spread[:, last] if last >= 0 else np.zeros(0),
                    asked=j, at=at[j],
                )  # fmt: skip
                last = -1
                if conditionals.family(head) == "number":
                    break
                step = _stepped(head, sums, at[j])
                at[j] = at[j] + step
                if np.abs(step).max() < SETTLED:
                    break
            assert sums is not None
            for m, found in enumerate(_terms(sums)):
                drawn[j][m], spread[m, j] = conditionals.posterior(head, found, at[j][m], rng)
            if moving[j]:
                moved = max(moved, float(np.abs(drawn[j].mean(axis=0) - before).max()))
            last = j if moving[j] else -1
        trace.add(drawn, spread)
        drift = trace.drift((sweep + 1) // 3, np.flatnonzero(moving).tolist())
        known = {} if math.isnan(drift) else {"drift": drift}
        fed.record(change=moved, **known)
    coefficients, kept = trace.kept(drawn, spread, moving)
    return MiceModel(
        features=task.features,
        chain=Chain(heads, uses, coefficients, kept),
        sweeps=config.sweeps,
        drift=drift,
        limit=limit(int(moving.sum()), chains),
        rows=sets.records,
        seed=task.seed,
        still=tuple(
            h.name
            for h, moves, n in zip(heads, moving, sets.missing, strict=True)
            if n and not moves
        ),
    )


def _steps(head: Head, *, first: bool) -> int:
    """Return the largest number of sums for a column in one sweep."""
    if conditionals.family(head) == "number":
        return 1
    return STEPS_FIRST if first else STEPS_LATER


def _terms(sums: Slopes) -> list[conditionals.Terms]:
    """Return the sums of each chain."""
    n = float(sums.records)
    parts = zip(sums.score, sums.information, sums.extra.tolist(), strict=True)
    return [conditionals.Terms(n, *one) for one in parts]


def _stepped(head: Head, sums: Slopes, at: Array) -> Array:
    """Return the steps (M, k) of all chains from `at` (M, k)."""
    pairs = zip(_terms(sums), at, strict=True)
    return np.array([conditionals.newton(head, found, theta) for found, theta in pairs])


def compared(fed: Federation, heads: Sequence[Head], least: int) -> Sets:
    """Return the records of each column's regression by rule (1), and its features by rule (3).

    Raises
    ------
    NothingToLearn : too few records have a group of columns together; the message names them.
    """
    first = np.array([h.at[0] for h in heads], np.int64)
    groups = np.eye(len(heads), dtype=np.int64)
    told = fed.sum(compare_sets, first=first, groups=groups)
    there, missing = fed.only(fed.answered).awaiting(), told.apart[-1, :-1]
    while True:
        merged = _merged(groups, told.apart, least)
        if (merged == groups).all():
            break
        groups = merged
        told = there.sum(compare_sets, first=first, groups=groups)
    records = int(told.records) - told.apart[-1, :-1]
    for j in np.flatnonzero(records < max(least, 2)).tolist():
        names = ", ".join(repr(heads[i].name) for i in np.flatnonzero(groups[j]).tolist())
        raise NothingToLearn(
            f"fewer than {max(least, 2)} records have {names}, at all sites together. Leave out "
            f"a column with many missing values, or add records."
        )
    uses = np.ones((len(heads), told.above.shape[1]), np.int64)
    for j, head in enumerate(heads):
        if conditionals.family(head) == "levels":
            for k in head.at:
                few = np.minimum(told.above[:, k], told.known[:, k] - told.above[:, k])
                uses[(few > 0) & (few < least), k] = 0
        uses[j, list(head.at)] = 0
    return Sets(groups, uses, missing, int(told.records))


def _merged(groups: Array, apart: Array, least: int) -> Array:
    """Return the groups (H, H) after one step of rule (1)."""
    close = apart + apart.T
    few = (close > 0) & (close < least)
    merged = groups.copy()
    whole = np.flatnonzero(apart[-1, :-1] == 0).tolist()  # sets of all records
    for j in range(len(groups)):
        for i in np.flatnonzero(few[j, :-1]).tolist():
            merged[j] |= groups[i]
        if few[j, -1]:
            for i in whole:
                merged[i] |= groups[j]
    return merged
