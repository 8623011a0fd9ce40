"""An attack on Table 1 by columns that are missing together: one tells what others hide.

Patients lack whole panels, such as all genes. So a hidden count of missing values is guessed as the
commonest one that is told at the site, and of all sites, as the commonest one of theirs. Each
variable is a table of sites by its missing values and levels, with the column of all sites; shown
counts and right guesses are known, and linear programs give the least and the largest value of each
count of 1 to 4. It is recovered where they are the same.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from fedcohort.data.describe import OTHERS, STEPS, describe
from fedcohort.data.variable import Variable
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

LEVELS = ("0", "1", "2")


def panels(seed, columns=12):
    """Return four to eight hospitals, whose patients lack either panel, or few values."""
    rng = np.random.default_rng((seed, 61))
    shares = [rng.dirichlet([12.0, 2.0, 0.6][: rng.integers(2, 4)]) for _ in range(columns)]
    frames = {}
    for s in range(rng.integers(4, 9)):
        n = int(rng.choice([rng.integers(6, 20), rng.integers(20, 160)]))
        lack = rng.random((2, n)) < rng.choice([0.0, 0.1, 0.4], (2, 1))
        made = {}
        for j, p in enumerate(shares):
            column = rng.choice(np.array(LEVELS[: len(p)], object), n, p=p)
            column[lack[j % 2]] = None
            if j % 5 == 4:
                column[rng.random(n) < 0.03] = None
            made[f"g{j}"] = column
        frames[f"h{s}"] = pd.DataFrame(made)
    variables = [
        Variable(f"g{j}", "category", levels=LEVELS[: len(p)]) for j, p in enumerate(shares)
    ]
    return frames, variables


def table_one(frames, variables, min_cell=5):
    """Return what is published of them."""
    fed = local([Host(s, f, STEPS) for s, f in frames.items()])
    return describe(fed, variables, min_cell=min_cell).summaries


def _cells(frame, v):
    column = frame[v.name]
    return np.array([column.isna().sum(), *((column == k).sum() for k in v.levels)])


def attack(frames, variables, found):
    """Return how many counts of 1 to 4 there are, and how many are recovered: levels, missing."""
    sites = sorted(frames)
    told = {(s.variable.name, s.site): s for s in found}
    common = {}
    for site in (None, *sites):
        seen = Counter(
            told[v.name, site].missing for v in variables
            if (v.name, site) in told and told[v.name, site].missing is not None
        )  # fmt: skip
        common[site] = seen.most_common(1)[0][0] if seen else None
    n, recovered = np.zeros(2, int), np.zeros(2, int)
    for v in variables:
        truth = np.array([_cells(frames[s], v) for s in sites])
        k = truth.shape[1]
        known, values = [], []

        def tell(names, cells, value, k=k, truth=truth, known=known, values=values):
            if value is None:
                return
            mask = np.zeros((len(sites), k), bool)
            mask[np.ix_([sites.index(s) for s in names], cells)] = True
            assert truth[mask].sum() == value
            known.append(mask.ravel())
            values.append(value)

        named = {s for name, s in told if name == v.name and s in sites}
        for site in (None, OTHERS, *sorted(named)):
            s = told.get((v.name, site))
            if s is None:
                continue
            names = sites if site is None else [x for x in sites if x not in named]
            names = [site] if site in named else names
            tell(names, range(k), s.rows)
            for i, count in enumerate((s.missing, *s.counts)):
                tell(names, [i], count)
            guess = common.get(site)
            right = truth[[sites.index(x) for x in names], 0].sum() == guess
            if s.missing is None and right:
                tell(names, [0], guess)
        a, b = np.array(known, float), np.array(values, float)
        for s, i in np.argwhere((truth > 0) & (truth < 5)).tolist():
            kind = int(i == 0)
            n[kind] += 1
            c = np.zeros(truth.size)
            c[s * k + i] = 1.0
            ends = [linprog(w * c, A_eq=a, b_eq=b, method="highs").fun for w in (1, -1)]
            recovered[kind] += -ends[1] - ends[0] < 0.99
    return n, recovered
