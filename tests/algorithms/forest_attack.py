"""An attack on the sums of `forest`, by who knows the covariates of all rows.

Each sum is over a share of the rows of a region, so its mean times the rows there is near the
region's total. All totals are one linear system in the outcomes.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr

from algorithms.forest_cases import fit, split
from fedcohort.numerics.trees.nodes import Trees
from overheard import listen


def asked_sums(monkeypatch, table, **options):
    """Fit three sites; return the splits that sums were told of: rows left and right, and both."""
    with monkeypatch.context() as patch:
        heard = listen(patch)
        model = fit(split(table, np.arange(len(table.x)) % 3), "classification", **options)
    counts, found = np.zeros(0), []
    x = table.x.astype(np.float32)
    for told in heard:
        if told.step == "count_sides":
            counts = told.reply["counts"]
        if told.step != "sum_sides":
            continue
        q = told.question
        trees = Trees(
            roots=q["roots"], feature=q["feature"], threshold=q["threshold"], left=q["left"],
            right=q["right"], missing_left=q["goes_left"], value=np.zeros((len(q["feature"]), 0)),
        )  # fmt: skip
        leaves = trees.leaves(x)
        tree_of = np.empty(len(q["feature"]), int)
        for t, column in enumerate(leaves.T):
            tree_of[column] = t
        for f, node in enumerate(q["nodes"]):
            inside = leaves[:, tree_of[node]] == node
            for k in np.flatnonzero(q["asked"][f]):
                left = x[:, q["covariate"][f, k]] < q["cut"][f, k]
                for side, rows in enumerate((inside & left, inside & ~left)):
                    n, s = counts[f, k, side], told.reply["sums"][f, k, side, 1]
                    found.append((rows, int(n), int(s)))
    return found, model


def solved(found, n, share):
    """Return the outcomes (n,) that fit the sums best, by who knows all covariates."""
    once = list({(rows.tobytes(), n_, s): (rows, n_, s) for rows, n_, s in found}.values())
    size = np.array([rows.sum() for rows, _, _ in once], float)
    drawn, total = (np.array([one[k] for one in once], float) for k in (1, 2))
    error = np.sqrt(size**2 / drawn * 0.25 * max(1 - share, 1e-9)) + 1e-3
    row, column = np.nonzero(np.array([rows for rows, _, _ in once]))
    a = csr_matrix((1 / error[row], (row, column)), shape=(len(once), n))
    b = (total / drawn - 0.5) * size / error
    return lsqr(a, b, damp=2.0 if share < 1 else 1e-6, iter_lim=300)[0] > 0


def told_by_model(model, x, share, sites=None):
    """Return the same of a saved model: rows of each leaf, and sums made of its value.

    sites : (n,) site of each row, whose trees follow each other, for a union; else None.
    """
    leaves = model.trees.leaves(x)
    found = []
    for t, column in enumerate(leaves.T):
        own = np.ones(len(x), bool)
        if sites is not None:
            own = sites == t * (sites.max() + 1) // leaves.shape[1]
        for leaf in np.unique(column[own]):
            rows = own & (column == leaf)
            drawn = max(10.0, share * rows.sum())
            found.append((rows, drawn, drawn * model.trees.value[leaf, 0]))
    return found
