"""Three tables of real columns with views, and what fills a view of them at one place."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from fits import Views
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  makes the next one
from sklearn.impute import IterativeImputer
from sklearn.linear_model import RidgeCV

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read.simulated_views import GROUP, GROUPS

sys.path.append(str(Path(__file__).parents[1] / "d62_survival"))
import tables

#: Of a flag, the least share of rows that carry it.
PREVALENCE = 0.01
#: Skewed columns of the MDS cohort, of which ln(1 + value) is taken.
SKEWED = ("bm_blast_pct", "plt", "anc", "wbc", "monocytes")
#: Rounds of chained equations: columns of a missing view, which see each other, are slow to settle.
ROUNDS = 20
#: Views of the ADNI-like table.
ADNI = {
    "clinical": (
        "CDRSB.bl", "ADAS11.bl", "MMSE.bl", "RAVLT.immediate.bl", "RAVLT.learning.bl",
        "RAVLT.forgetting.bl", "FAQ.bl", "AGE",
    ),
    "mri": ("WholeBrain.bl", "Ventricles.bl", "Hippocampus.bl", "MidTemp.bl", "Entorhinal.bl"),
    "csf": ("ABETA.MEDIAN.bl", "PTAU.MEDIAN.bl", "TAU.MEDIAN.bl"),
}  # fmt: skip


def _described(frame: pd.DataFrame, views: Mapping[str, Sequence[str]], second: pd.Series) -> Views:
    """Return a table of these views; flags are binary, other columns numbers."""
    columns = [name for names in views.values() for name in names]
    variables: dict[str, object] = {}
    for view, names in views.items():
        for name in names:
            flag = frame[name].dropna().isin((0, 1)).all()
            variables[name] = {"type": "binary" if flag else "number", "view": view}
    variables[GROUP] = {"type": "category", "levels": list(GROUPS), "feature": False}
    held = frame[columns].astype(float)
    held[GROUP] = np.where(second, *GROUPS[::-1]).astype(object)
    return Views(held, views, Dictionary.from_dict({"variables": variables}))


def breast_cancer() -> Views:
    """Return scikit-learn's breast cancer table: mean, error and worst of ten measures.

    Group 2 are the malignant ones.
    """
    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.frame.drop(columns="target")
    views = {
        "mean": [c for c in frame if c.startswith("mean ")],
        "error": [c for c in frame if c.endswith(" error")],
        "worst": [c for c in frame if c.startswith("worst ")],
    }
    return _described(frame, views, bunch.target == 0)


def mds(path: Path) -> Views:
    """Return the IWG-PM's MDS cohort: clinical, cytogenetic and gene columns.

    Flags that fewer than 1 % of the rows carry are left out. Single values of the clinical view
    are missing. Group 2 has 5 % blasts or more.
    """
    frame = tables.mds(path)
    frame["sex"] = (frame["sex"] == "M").astype(float)
    for name in SKEWED:
        frame[name] = np.log1p(frame[name])
    kept = [c for c in frame if c.startswith(("cyto_", "gene_")) and frame[c].mean() >= PREVALENCE]
    views = {
        "clinical": [*tables.CLINICAL, "sex"],
        "cytogenetic": [c for c in kept if c.startswith("cyto_")],
        "genes": [c for c in kept if c.startswith("gene_")],
    }
    return _described(frame, views, frame["bm_blast_pct"] >= np.log1p(5))


def adni(path: Path) -> Views:
    """Return the ADNI-like table; group 2 has a clinical dementia rating above 0."""
    frame = pd.read_csv(path, sep=";")
    return _described(frame, ADNI, frame["CDRSB.bl"] > 0)


# what fills a view where all rows are at one place ------------------------------------------
# Rows come in units of a column's standard deviation, missing entries as NaN. `of` is the view of
# each column (p,). A filler takes rows (n, p) without the k-th view, and fills it.

Filler = Callable[[Array, int], Array]


def by_mean(train: Array, of: Array) -> Filler:
    """Fill in each column's mean."""
    del of
    mean = np.nanmean(train, axis=0)
    return lambda rows, k: np.broadcast_to(mean, rows.shape)


def by_ridge(train: Array, of: Array) -> Filler:
    """Fill in ridge regressions of a view on the others.

    They are learnt from training rows with entries of all views, the penalty by leave-one-out;
    single missing values are a column's mean, among covariates and where a view is learnt.
    """
    mean = np.nanmean(train, axis=0)
    there = [(~np.isnan(train[:, of == k])).any(axis=1) for k in np.unique(of)]
    rows_of_all = train[np.all(there, axis=0)]

    def fill(rows: Array, k: int) -> Array:
        known = np.where(np.isnan(rows_of_all), mean, rows_of_all)
        model = RidgeCV(np.logspace(-2, 4, 13)).fit(known[:, of != k], known[:, of == k])
        out = np.where(np.isnan(rows), mean, rows)
        out[:, of == k] = model.predict(out[:, of != k])
        return out

    return fill


def by_chained_equations(train: Array, of: Array) -> Filler:
    """Fill in what scikit-learn's IterativeImputer says: Bayesian ridge, column by column.

    It is fitted to training rows and those to fill together, as chained equations are.
    """
    del of

    def fill(rows: Array, k: int) -> Array:
        del k
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            whole = IterativeImputer(max_iter=ROUNDS, random_state=0).fit_transform(
                np.vstack([train, rows])
            )
        return np.asarray(whole)[len(train) :]

    return fill


AT_ONE_PLACE = {"mean": by_mean, "ridge": by_ridge, "mice": by_chained_equations}
