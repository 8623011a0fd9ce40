"""The attack on a description: all its numbers as equations, and linear programs for each count.

The attacker has every table that is published of the same patients: by site, by group of one
column, by group of another. Unknown are the rows of each site by both columns and a third one, with
missing values: every published count is a sum of these. A count of 1 to 4 is recovered where the
least and the largest value that the equations allow it are the same whole number.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pandas as pd
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from fedcohort.data.describe.agreed import OTHERS
from fedcohort.data.dictionary import Dictionary
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.groups import hidden_levels
from fedcohort.study.api import Cohort

LEVELS = {"a": ("p", "q"), "b": ("u", "v", "w"), "c": ("I", "II", "III")}
DICTIONARY = {k: {"type": "category", "levels": list(v)} for k, v in LEVELS.items()}
SHAPE = tuple(len(v) + 1 for v in LEVELS.values())


def random_sites(seed):
    """Return two or three sites of 6 to 90 rows, with levels and missing values that are rare."""
    rng = np.random.default_rng((seed, 29))
    frames = {}
    for s in range(rng.integers(2, 4)):
        n = int(rng.choice([rng.integers(6, 25), rng.integers(25, 90)]))
        columns = {}
        for name, levels in LEVELS.items():
            p = rng.dirichlet(np.full(len(levels), rng.choice([0.6, 3.0])))
            column = rng.choice(np.array(levels, object), n, p=p)
            column[rng.random(n) < rng.choice([0.0, 0.03, 0.12])] = None
            columns[name] = column
        frames[f"s{s}"] = pd.DataFrame(columns)
    return frames


def cohort(frames):
    """Return sites in this process, without the checks that `simulate` makes."""
    return Cohort(frames, Dictionary.from_dict(DICTIONARY), None, 0)


def coded(frame):
    """Return each row's place among the unknowns of its site; missing values are the last level."""
    codes = [
        [len(levels) if v is None else levels.index(v) for v in frame[name]]
        for name, levels in LEVELS.items()
    ]
    return np.ravel_multi_index(codes, SHAPE)


class Attack:
    """Equations in the rows of each site by a, b and c; the test alone knows the true values."""

    def __init__(self, frames):
        self.sites = sorted(frames)
        size = int(np.prod(SHAPE))
        self.truth = np.concatenate(
            [np.bincount(coded(frames[s]), minlength=size) for s in self.sites]
        )
        self.told = {}

    def mask(self, sites, **where):
        """Return which unknowns a count sums."""
        cells = np.zeros((len(self.sites), *SHAPE), bool)
        at = [slice(None) if k not in where else where[k] for k in LEVELS]
        for s in sites:
            cells[(self.sites.index(s), *at)] = True
        return cells.ravel()

    def tell(self, mask, value):
        if value is not None and not pd.isna(value):
            assert self.truth[mask].sum() == value
            self.told[mask.tobytes()] = (mask, float(value))

    def read(self, model):
        """Learn every count of a description."""
        shown_alone = {x["site"] for x in model.table if x["group"] is None}
        others = [s for s in self.sites if s not in shown_alone]
        left_out = {r["site"] for r in model.refusals if r["what"] == "groups over all sites"}
        for line in model.table:
            name, group, levels = line["variable"], line["group"], LEVELS[line["variable"]]
            sites = self.sites if line["site"] is None else [line["site"]]
            sites = others if line["site"] == OTHERS else sites
            fixed = {} if group is None else {model.by: LEVELS[model.by].index(group)}
            if group is not None and line["site"] is None:
                sites = [s for s in sites if s not in left_out]
            self.tell(self.mask(sites, **fixed), line["n"])
            self.tell(self.mask(sites, **fixed, **{name: len(levels)}), line["missing"])
            at = {name: levels.index(line["level"])}
            self.tell(self.mask(sites, **fixed, **at), line["count"])

    def targets(self):
        """Yield every count of 1 to 4 that a description might show."""
        for s in self.sites:
            for x, y in itertools.permutations(LEVELS, 2):
                for i in range(len(LEVELS[x]) + 1):
                    yield self.mask([s], **{x: i})
                    for j in range(len(LEVELS[y]) + 1):
                        yield self.mask([s], **{x: i, y: j})

    def recovered(self):
        """Return how many counts of 1 to 4 there are, and how many are recovered.

        Solutions in random directions show most counts to have several values at once; of the
        others the least and the largest value are found.
        """
        cells = np.array([m for m, _ in self.told.values()], float).reshape(-1, len(self.truth))
        known = {"A_eq": csr_matrix(cells), "b_eq": np.array([v for _, v in self.told.values()])}
        targets = {m.tobytes(): m for m in self.targets() if 0 < self.truth[m].sum() < 5}
        masks = np.array(list(targets.values()), float).reshape(-1, len(self.truth))
        values = masks @ self.truth
        rng = np.random.default_rng(0)
        doubt = np.zeros(len(masks), bool)
        for _ in range(4):
            seen = linprog(rng.normal(size=len(self.truth)), **known, method="highs").x
            doubt |= np.abs(masks @ seen - values) > 0.99
        for i in np.flatnonzero(~doubt):
            ends = [linprog(sign * masks[i], **known, method="highs").fun for sign in (-1, 1)]
            doubt[i] = -ends[0] > values[i] + 0.99 or ends[1] < values[i] - 0.99
        return len(masks), int((~doubt).sum())


# by enumeration -------------------------------------------------------------------------


def compositions(n, k):
    """Return every way to write n as k counts from 0."""
    if k == 1:
        return [(n,)]
    return [(i, *rest) for i in range(n + 1) for rest in compositions(n - i, k - 1)]


def published(table, m):
    """Return all that is shown of a table: rows, levels, groups and cells; −1 where hidden."""
    levels, groups = hidden_levels(table, m)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    parts = [
        np.where(hidden(rows, m), -1, rows),
        np.where(hidden(columns, m), -1, columns),
        np.where(levels[:, None] | groups, -1, table).ravel(),
    ]
    n = int(table.sum())
    return (n if not 0 < n < m else -1, *np.concatenate(parts).tolist())


def enumerated(m, levels, groups, largest):
    """Return the counts of 1 … m − 1 in all tables of up to so many rows, and how many are told.

    The attacker has what is published and knows the rule: he can tell a count which is the same in
    all tables that would have looked so.
    """
    worlds = defaultdict(list)
    for n in range(1, largest + 1):
        for cells in compositions(n, levels * groups):
            worlds[published(np.reshape(cells, (levels, groups)), m)].append(cells)
    small = pinned = 0
    for tables in map(np.array, worlds.values()):
        few = (tables > 0) & (tables < m)
        small += int(few.sum())
        pinned += int((few[0] & (tables == tables[0]).all(axis=0)).sum())
    return small, pinned
