"""Errors of imputed entries that were hidden, over hospitals, beside imputers of the pooled table.

Breast cancer, wine and diabetes of scikit-learn, and complete rows of the MDS cohort (FILE),
divided among three hospitals. Hidden are 20 or 50 % of the entries completely at random; 30 % of
all columns but the first at random given the first; or, by view, another third of the columns in
each hospital.
The error is the mean square of numbers in standard deviations of the whole table, and of flags the
share that is wrong. Each seed hides other entries of the same rows: seeds show how much the hidden
entries matter, and are no independent tables. So a test has one pair for each table and way of
hiding, the means over seeds: Wilcoxon's signed ranks of the log ratio of errors, two-sided, for
imputers with a result in each. Ways of hiding share a table too: p is a description.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  makes the next one
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
import book

HIDDEN = ("mcar 20", "mcar 50", "mar 30", "view 33")
#: Rows drawn of the MDS cohort, and the smallest share of rows that carry a flag.
ROWS, PREVALENCE = 900, 0.05
CLINICAL = ["age", "bm_blast_pct", "hb", "plt", "anc", "wbc", "monocytes"]
#: Skewed columns of the MDS cohort, of which ln(1 + value) is taken.
SKEWED = ["bm_blast_pct", "plt", "anc", "wbc", "monocytes"]
Imputer = Callable[[list[pd.DataFrame], dict[str, Any], int], np.ndarray]


def tables(mds: Path | None, seed: int) -> dict[str, pd.DataFrame]:
    """Return the complete tables."""
    loads = {"breast": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
    found = {name: load(as_frame=True).data for name, load in loads.items()}
    if mds is not None:
        raw = pd.read_csv(mds, low_memory=False)
        flags = [c for c in raw if c.startswith(("cyto_", "gene_")) and raw[c].isin((0, 1)).all()]
        flags = [c for c in flags if PREVALENCE <= raw[c].mean() <= 1 - PREVALENCE]
        whole = raw[[*CLINICAL, *flags]].apply(pd.to_numeric, errors="coerce").dropna()
        whole[SKEWED] = np.log1p(whole[SKEWED])
        found["mds"] = whole.sample(ROWS, random_state=seed)
    return {name: t.reset_index(drop=True) for name, t in found.items()}


def hidden(table: pd.DataFrame, way: str, rng: np.random.Generator) -> np.ndarray:
    """Return which entries are hidden (n, p); the hospital of row i is i mod 3."""
    n, p = table.shape
    share = float(way.split()[1]) / 100
    if way.startswith("mcar"):
        return rng.random((n, p)) < share
    if way.startswith("mar"):
        first = stats.zscore(table.iloc[:, 0].to_numpy())
        chance = 1 / (1 + np.exp(-1.5 * first))
        out = rng.random((n, p)) < np.minimum(chance / chance.mean() * share, 0.95)[:, None]
        out[:, 0] = False
        return out
    views = np.array_split(rng.permutation(p), 3)
    out = np.zeros((n, p), bool)
    for k, view in enumerate(views):
        out[np.ix_(np.arange(n) % 3 == k, view)] = True
    return out


def over_sites(method: str, **settings: Any) -> Imputer:
    """Return an imputer that is fitted over hospitals."""

    def impute(parts: list[pd.DataFrame], dictionary: dict[str, Any], seed: int) -> np.ndarray:
        sites = {f"h{k}": part for k, part in enumerate(parts)}
        fed = fc.simulate(sites, dictionary=dictionary, seed=seed)
        fit = fc.fit(method, fed, **settings)
        return pd.concat([fit.impute(part) for part in parts])[list(parts[0])].to_numpy(float)

    return impute


def pooled(make: Callable[[int], Any]) -> Imputer:
    """Return an imputer of the pooled table in standard deviations."""

    def impute(parts: list[pd.DataFrame], dictionary: dict[str, Any], seed: int) -> np.ndarray:
        x = pd.concat(parts).to_numpy(float)
        mean, sd = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        return make(seed).fit_transform((x - mean) / sd) * sd + mean

    return impute


def forest(seed: int) -> IterativeImputer:
    """Return missForest, with extremely randomised trees."""
    trees = ExtraTreesRegressor(30, min_samples_leaf=2, random_state=seed)
    return IterativeImputer(trees, max_iter=4, tol=1e-2, random_state=seed)


IMPUTERS: dict[str, Imputer] = {
    "mice": over_sites("mice"),
    "joint_normal": over_sites("joint_normal", draws=0),
    "multiview_ppca": over_sites("multiview_ppca", q=4, rounds=20, internal_epochs=5),
    "vae": over_sites("vae"),
    "dgd": over_sites("dgd", q=4, n_clusters=5),
    "pooled mean": pooled(lambda seed: SimpleImputer()),
    "pooled kNN": pooled(lambda seed: KNNImputer(n_neighbors=10)),
    "pooled missForest": pooled(forest),
    "pooled MICE": pooled(lambda seed: IterativeImputer(max_iter=10, random_state=seed)),
}
#: The imputers with which the others are compared.
REFERENCES = ("mice", "joint_normal")


def errors(table: pd.DataFrame, hide: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Return the mean square of numbers, and the share of flags that is wrong."""
    x = table.to_numpy(float)
    flags = np.array([set(table[c].unique()) <= {0, 1} for c in table])
    off = np.where(hide, (said - x) / x.std(axis=0), 0.0)[:, ~flags]
    found = {"mse": float((off**2).sum() / hide[:, ~flags].sum())}
    if flags.any() and hide[:, flags].any():
        wrong = ((said > 0.5) != (x > 0.5))[:, flags]
        found["wrong"] = float(wrong[hide[:, flags]].mean())
    return found


def main() -> None:
    """Run all cells, then print the table with paired tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mds", nargs="?", type=Path, help="mds_iwgpm_clean.csv.gz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lines", type=Path, required=True, help="finished cells, to go on from")
    parser.add_argument("--only", nargs="*", default=list(IMPUTERS), choices=list(IMPUTERS))
    parser.add_argument("--tables", nargs="*", help="of breast, wine, diabetes, mds; else all")
    book.asks_out(parser)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = book.Book(asked.lines)
    for seed in range(asked.seeds):
        for name, table in tables(asked.mds, seed).items():
            if asked.tables and name not in asked.tables:
                continue
            flags = {c: set(table[c].unique()) <= {0, 1} for c in table}
            kinds = {c: {"type": "binary" if f else "number"} for c, f in flags.items()}
            for way in HIDDEN:
                for imputer in asked.only:
                    of = {"table": name, "hidden": way, "imputer": imputer, "seed": seed}
                    if not lines.lacks(of):
                        continue
                    hide = hidden(table, way, np.random.default_rng((seed, HIDDEN.index(way))))
                    order = np.argsort(np.arange(len(table)) % 3, kind="stable")
                    holes = table.mask(hide)
                    parts = [holes.iloc[k::3].reset_index(drop=True) for k in range(3)]
                    begin = time.process_time()
                    try:
                        said = IMPUTERS[imputer](parts, {"variables": kinds}, seed)
                    except fc.FedcohortError as error:
                        print(of, error, flush=True)
                        continue
                    took = time.process_time() - begin
                    found = errors(table.iloc[order], hide[order], said)
                    lines.write(of, {**found, "seconds": round(took, 2)})
    figures = summary(list(_read(asked.lines)))
    book.keep(asked.out, figures)


def _read(path: Path) -> list[dict[str, Any]]:
    return list(pd.read_json(path, lines=True).to_dict("records")) if path.exists() else []


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean errors over seeds by table and way, and the tests over tables and ways."""
    frame = pd.DataFrame([{**r["of"], **{k: v for k, v in r.items() if k != "of"}} for r in rows])
    found: dict[str, dict[str, float]] = {}
    for (name, way), part in frame.groupby(["table", "hidden"], sort=False):
        each = part.groupby("imputer")
        group = f"{name}_{way.replace(' ', '_')}"
        found[group] = {}
        for imputer, one in each:
            key = str(imputer).replace(" ", "_")
            found[group][f"{key}_mse"] = round(float(one["mse"].mean()), 4)
            found[group][f"{key}_seeds"] = float(len(one))
            if "wrong" in one and one["wrong"].notna().any():
                found[group][f"{key}_wrong"] = round(float(one["wrong"].mean()), 4)
        print(group, found[group], flush=True)
    means = frame.pivot_table(index=["table", "hidden"], columns="imputer", values="mse")
    for reference in REFERENCES:
        if reference in means:
            found[f"against_{reference}"] = tests(np.log(means), reference)
            print(f"against {reference}", found[f"against_{reference}"], flush=True)
    return found


def tests(logs: pd.DataFrame, reference: str) -> dict[str, float]:
    """Return of each imputer: pairs, those in which it errs less, mean log ratio of errors, p."""
    found: dict[str, float] = {}
    for imputer in logs:
        ratio = (logs[imputer] - logs[reference]).dropna()
        if imputer == reference or len(ratio) < 5:
            continue
        key = str(imputer).replace(" ", "_")
        found[f"{key}_pairs"] = float(len(ratio))
        found[f"{key}_less"] = float((ratio < 0).sum())
        found[f"{key}_log_ratio"] = round(float(ratio.mean()), 4)
        found[f"{key}_p"] = round(float(stats.wilcoxon(ratio).pvalue), 4)
    return found


if __name__ == "__main__":
    main()
