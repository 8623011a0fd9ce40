"""Virtual patients on three cohorts: likeness, use, and what they reveal, by method.

    python benchmarks/virtual/run.py --data FOLDER [--out FILE] [--repeats 10] [--only gbsg2]
        [--methods vae savae …] [--book FILE]

FOLDER holds ``mds/mds_iwgpm_clean.csv.gz`` and ``heart/heart_4centres.csv``; gbsg2 is packaged.
Each repeat halves the rows: one half trains over sites (gbsg2 3, MDS 5, dealt at random; heart
its 4 hospitals), the other half is blind. Every method draws four times as many rows as it had
training rows, at most 4,000. Figures are means over repeats with 95 % intervals (Student's t).
``savae`` needs a survival outcome; each site's model of ``radialgan`` draws its share of the rows.
``--methods`` measures these alone; the file keeps the others. ``--book`` holds finished repeats, so
that a stopped run goes on.

Accepted: utility of the best model at least 0.97 of the training rows' on each cohort; with
differential privacy (ε = 3) the interval of the membership AUC lies below 0.55. With all methods
it leaves with 1 if not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import fedcohort as fc
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.read import sources
from fedcohort.study.virtual.comparing import Comparison, interpolated
from fedcohort.study.virtual.drawing import Drawing

sys.path.append(str(Path(__file__).parents[1]))
from book import Book, asks_out, keep

#: Largest number of drawn rows, and as many as training rows times this.
MOST, TIMES = 4_000, 4
#: Least utility of the best model, and the end of the interval of the membership AUC.
USE, SEEN = 0.97, 0.55
#: ε of private fits, and δ.
EPSILON, DELTA = 3.0, 1e-4
#: Settings that `savae` has by default.
BATCHES: Mapping[str, Any] = {"hidden": (32,), "batch_size": 64, "learning_rate": 0.003}
#: Methods: name → method and settings; private ones have noise. `vae_whole` takes all rows of a
#: site in one step, `vae` 64.
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "copula": ("copula", {}),
    "multiview_ppca": ("multiview_ppca", {"q": 5}),
    "vae": ("vae", {"q": 8, "rounds": 60, "internal_epochs": 5} | BATCHES),
    "vae_whole": ("vae", {"q": 8, "rounds": 60, "internal_epochs": 4}),
    "savae": ("savae", {}),
    "dgd": ("dgd", {}),
    "radialgan": ("radialgan", {}),
    "deep_clustering": ("deep_clustering", {"n_clusters": 4, "rounds": 10}),
    "copula_private": ("copula", {"dp": True}),
    "multiview_ppca_private": ("multiview_ppca", {"q": 5, "dp": True}),
}
#: Methods whose models have the outcome beside the columns.
BESIDE = ("savae", "radialgan")
#: What stands beside the methods.
BESIDES = ("smote", "training_rows")
GENES = 14


@dataclass(frozen=True)
class Cohort:
    """A table, its dictionary and outcome, and the division into sites."""

    frame: pd.DataFrame
    dictionary: Dictionary
    outcome: Outcome
    sites: Callable[[pd.DataFrame, np.random.Generator], dict[str, pd.DataFrame]]


def _dealt(n: int) -> Callable[[pd.DataFrame, np.random.Generator], dict[str, pd.DataFrame]]:
    def sites(frame: pd.DataFrame, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
        order = np.array_split(rng.permutation(len(frame)), n)
        return {f"s{i}": frame.iloc[np.sort(r)].reset_index(drop=True) for i, r in enumerate(order)}

    return sites


def gbsg2(folder: Path) -> Cohort:
    """Return the packaged cohort, with usual ranges from the literature."""
    del folder
    found = sources.load("sample:gbsg2", Path())
    assert found.dictionary is not None
    assert found.outcome is not None
    assert isinstance(found.frames, pd.DataFrame)
    usual = {
        "age": (20, 85), "tsize": (1, 100), "pnodes": (1, 30), "progrec": (0, 1000),
        "estrec": (0, 600), "time": (1, 2700),
    }  # fmt: skip
    variables = {
        k: replace(v, usual=usual[k]) if k in usual else v
        for k, v in found.dictionary.variables.items()
    }
    dictionary = replace(found.dictionary, variables=variables)
    return Cohort(found.frames, dictionary, found.outcome, _dealt(3))


def mds(folder: Path) -> Cohort:
    """Return clinical columns, cytogenetic flags and the most frequent genes of the MDS cohort."""
    table = pd.read_csv(folder / "mds" / "mds_iwgpm_clean.csv.gz", low_memory=False)
    table = table[table.os_years > 0].reset_index(drop=True)
    numbers = {
        "age": (18, 100, "integer"), "bm_blast_pct": (0, 30, "number"), "wbc": (0, 40, "number"),
        "anc": (0, 20, "number"), "hb": (4, 16, "number"), "plt": (0, 600, "number"),
    }  # fmt: skip
    flags = [c for c in table.columns if c.startswith("cyto_") and set(table[c].dropna()) <= {0, 1}]
    flags = [c for c in flags if table[c].sum() >= 60]
    genes = [c for c in table.columns if c.startswith("gene_") and set(table[c].dropna()) <= {0, 1}]
    genes = sorted(genes, key=lambda c: -table[c].sum())[:GENES]
    out = table[[*numbers, "sex", "cyto_ipssr", *flags, *genes]].copy()
    out["age"] = out["age"].round()
    out["time"], out["event"] = table.os_years.round(4), table.os_event
    risk = ["Very-Good", "Good", "Intermediate", "Poor", "Very-Poor"]
    out["cyto_ipssr"] = out["cyto_ipssr"].where(out["cyto_ipssr"].isin(risk))
    spec: dict[str, Any] = {
        name: {"type": kind, "usual": [low, high]} for name, (low, high, kind) in numbers.items()
    }
    spec |= {"sex": {"type": "category", "levels": ["F", "M"]}}
    spec |= {"cyto_ipssr": {"type": "category", "levels": risk}}
    spec |= {name: {"type": "binary"} for name in [*flags, *genes]}
    spec |= {"time": {"type": "time", "usual": [0.01, 12], "unit": "years"}}
    spec |= {"event": {"type": "event"}}
    out = out[out["event"].notna()].reset_index(drop=True)
    return Cohort(out, Dictionary.from_dict(spec), fc.Survival("time", "event"), _dealt(5))


def heart(folder: Path) -> Cohort:
    """Return FLamby's heart data: four hospitals, many missing values."""
    table = pd.read_csv(folder / "heart" / "heart_4centres.csv")
    numbers = {
        "age": (25, 80), "trestbps": (80, 200), "chol": (100, 450), "thalach": (60, 205),
        "oldpeak": (-1, 5),
    }  # fmt: skip
    levels = {"cp": "1234", "restecg": "012", "slope": "123", "thal": "367"}
    binary = ["sex", "fbs", "exang", "y"]
    table.loc[table.chol == 0, "chol"] = np.nan
    table.loc[table.trestbps == 0, "trestbps"] = np.nan
    out = table[["centre", *numbers, *binary, *levels]].copy()
    for name in levels:
        out[name] = out[name].map(lambda v: None if pd.isna(v) else str(int(v)))
    spec: dict[str, Any] = {n: {"type": "number", "usual": [*ends]} for n, ends in numbers.items()}
    spec |= {name: {"type": "binary"} for name in binary}
    spec |= {n: {"type": "category", "levels": [*known]} for n, known in levels.items()}

    def sites(frame: pd.DataFrame, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
        del rng
        parts = frame.groupby("centre")
        return {str(k): f.drop(columns="centre").reset_index(drop=True) for k, f in parts}

    return Cohort(out, Dictionary.from_dict(spec), fc.Binary("y"), sites)


COHORTS = {"gbsg2": gbsg2, "mds": mds, "heart": heart}


def measured(
    virtual: pd.DataFrame, train: pd.DataFrame, blind: pd.DataFrame, cohort: Cohort, seed: int
) -> dict[str, float]:
    """Return the figures of virtual rows."""
    wide = virtual.reindex(columns=[*cohort.dictionary.variables])
    c = Comparison.of(wide, train, blind, cohort.dictionary, cohort.outcome, seed)
    used, real = c.score(c.virtual_model), c.score(c.training_model)
    p = c.privacy
    near, calibrated = p.attacks.values()
    return {
        "marginal_error": float(c.marginal_errors().mean()),
        "association_error": float(c.association_errors(np.ones((1, len(blind))))[0]),
        "utility": used.value, "real": real.value, "utility_ratio": used.value / real.value,
        "log_rank_p": np.nan if c.log_rank is None else c.log_rank.p,
        "distance_ratio": p.ratio, "copies": p.copied / p.rows,
        "alike": p.alike / p.blind,
        "membership_auc": near.value, "calibrated_auc": calibrated.value,
    }  # fmt: skip


def halved(cohort: Cohort, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, np.random.Generator]:
    """Return training and blind rows of one repeat, and the generator of what follows."""
    rng = np.random.default_rng((seed, 0x76))
    order = rng.permutation(len(cohort.frame))
    half = len(order) // 2
    train, blind = (
        cohort.frame.iloc[np.sort(part)].reset_index(drop=True)
        for part in (order[:half], order[half:])
    )
    return train, blind, rng


def repeat(cohort: Cohort, seed: int, name: str) -> dict[str, float]:
    """Return the figures of one method in one repeat; none if it refuses."""
    train, blind, rng = halved(cohort, seed)
    frames = cohort.sites(train, rng)
    n = min(TIMES * len(train), MOST)
    if name == "smote":
        known = [c for c in train.columns if c in cohort.dictionary]
        rows = interpolated(train[known], cohort.dictionary, n, seed)
        return measured(rows, train, blind, cohort, seed)
    if name == "training_rows":
        again = train.iloc[rng.integers(len(train), size=len(train))].reset_index(drop=True)
        return measured(again, train, blind, cohort, seed)
    fed = fc.simulate(frames, outcome=cohort.outcome, dictionary=cohort.dictionary, seed=seed)
    method, given = MODELS[name][0], dict(MODELS[name][1])
    if given.pop("dp", False):
        given["dp"] = {"epsilon": EPSILON, "delta": DELTA}
    if name not in BESIDE:
        given["task"] = "synthesis"
    began = time.process_time()
    try:
        fit = fc.fit(method, fed, seed=seed, **given)
        rows = drawn(fit, {site: len(frame) for site, frame in frames.items()}, n, seed)
    except fc.FedcohortError as error:
        print(f"  {name}: {error}")
        return {}
    took = time.process_time() - began
    return measured(rows, train, blind, cohort, seed) | {"seconds": took}


def drawn(fit: fc.Fit, sizes: Mapping[str, int], n: int, seed: int) -> pd.DataFrame:
    """Return n rows of a fit; of models that stay at their site, a share of each by its rows."""
    if not fit.sites:
        return Drawing.of(fit.parts).table(n, seed)
    parts = [
        Drawing.of(fit.of(site).parts).table(round(n * rows / sum(sizes.values())), seed + k)
        for k, (site, rows) in enumerate(sizes.items())
    ]
    return pd.concat(parts, ignore_index=True)


def summed(found: list[dict[str, float]]) -> dict[str, float]:
    """Return mean and ends of the 95 % interval of each figure."""
    out: dict[str, float] = {}
    for name in found[0]:
        values = np.array([f[name] for f in found])
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        out[name] = float(values.mean())
        if len(values) > 1:
            half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            out |= {f"{name}_low": out[name] - half, f"{name}_high": out[name] + half}
    return {k: round(v, 4) for k, v in out.items()} | {"repeats": len(found)}


def main() -> int:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the cohorts")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", choices=[*COHORTS], nargs="+", default=[*COHORTS])
    parser.add_argument("--methods", choices=[*MODELS, *BESIDES], nargs="+")
    parser.add_argument("--book", type=Path, help="file of finished repeats, to go on with")
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    book = Book(given.book or Path(tempfile.mkdtemp()) / "book.jsonl")
    missed = 0
    for name in given.only:
        cohort = COHORTS[name](given.data)
        n, p = cohort.frame.shape
        print(f"{name}: {n} rows, {p} columns")
        table: dict[str, dict[str, float]] = {}
        for method in given.methods or (*MODELS, *BESIDES):
            if method == "savae" and cohort.outcome.kind != "survival":
                continue
            found = book.of_seeds(
                {"cohort": name, "method": method}, given.repeats,
                lambda seed, method=method, cohort=cohort: repeat(cohort, seed, method),
            )  # fmt: skip
            if not (found := [row for row in found if row]):
                continue
            row = table[method] = summed(found)
            shown = ("marginal_error", "association_error", "utility_ratio", "distance_ratio")
            print(
                f"  {method:24}" + "".join(f" {k} {row.get(k, np.nan):.3f}" for k in shown)
                + f" membership {row['membership_auc']:.3f} "
                f"({row.get('membership_auc_low', np.nan):.3f}–"
                f"{row.get('membership_auc_high', np.nan):.3f})", flush=True,
            )  # fmt: skip
            keep(given.out, {f"{name}_{method}": row})
        if given.methods:
            continue
        models = [m for m in table if m in MODELS]
        best = max(table[m].get("utility_ratio", 0.0) for m in models)
        private = [m for m in models if m.endswith("_private")]
        seen = max(table[m].get("membership_auc_high", 1.0) for m in private)
        fine = best >= USE and seen < SEEN
        print(f"  best utility {best:.3f} (at least {USE}); private membership up to {seen:.3f}")
        missed += not fine
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
