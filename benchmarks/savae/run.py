"""SAVAE beside Cox's model and DeepCox: C-index and integrated Brier score on the same folds.

    python benchmarks/savae/run.py --survival FOLDER --mds FOLDER --sets gbsg2,whas500 --seeds 3

FOLDER of `--survival` holds gbsg2.csv and whas500.csv (as in scikit-survival), flchain.csv, and
DeepSurv's support_deepsurv.csv and metabric_deepsurv.csv; that of `--mds` the IWG-PM cohort
(mds_iwgpm_clean.csv.gz). None of them is part of this project.

Five folds, by outcome, with rows of equal covariates in one fold (`StratifiedGroupKFold`): copies
of a row in training and test would be recognised (as in WHAS, see docs). The rows of a fold's
training part are dealt to three sites at random. A seed draws folds, sites and networks.

    cox          exact over sites, missing values by the pooled median
    deepcox      as `fc.fit("deepcox")` by default: fedavg, 60 rounds of 5 epochs
    savae        as `fc.fit("savae")` by default: fedavg, 30 rounds of 5 epochs, batch 64, w 10;
                 on sets of more than 2,000 rows 3 epochs and batches of 128; missing values stay
                 missing
    savae_pooled the same on one table

C is Harrell's; the Brier score is integrated over the tenth to the ninetieth percentile of the
training times of death, with censoring by the training rows. The settings were chosen on GBSG2
(w, on these folds of seed 0) and on three folds of seed 1 of WHAS500 and GBSG2 (dropout, epochs).
Each fit is a line of `--book`, and is not repeated.
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
import torch
from sklearn.model_selection import StratifiedGroupKFold

import fedcohort as fc
from fedcohort.metrics.survival.brier import brier
from fedcohort.metrics.survival.concordance import harrell

sys.path.append(str(Path(__file__).parents[1]))
from book import Book, asks_out, keep

SITES, FOLDS = 3, 5
ARMS: dict[str, dict[str, Any]] = {
    "cox": {"method": "cox"},
    "deepcox": {"method": "deepcox"},
    "savae": {"method": "savae"},
    "savae_pooled": {"method": "savae", "pooled": True},
    "savae_tuned": {"method": "savae", "tuned": True},
}
#: Settings of `savae` on sets of more than 2,000 rows, for their time: a third of the steps.
LARGE = {"internal_epochs": 3, "batch_size": 128}
SWEEP = (0.3, 1.0, 3.0, 10.0, 30.0)
#: Settings of which the arm `savae_tuned` chooses by folds of the training rows.
CHOICES: dict[str, dict[str, Any]] = {
    "as it is": {}, "w 3": {"weight": 3.0}, "beta 0.3": {"beta": 0.3},
    "anneal": {"anneal": "linear", "anneal_rounds": 15}, "piecewise": {"time": "piecewise"},
    "rate 0.001": {"learning_rate": 0.001}, "hidden 64": {"hidden": [64]},
    "w 30": {"weight": 30.0}, "no dropout": {"dropout": 0.0},
    "rate 0.01": {"learning_rate": 0.01},
}  # fmt: skip
INNER = 2


def gbsg2(folders: dict[str, Path]) -> pd.DataFrame:
    """Return GBSG2."""
    return pd.read_csv(folders["survival"] / "gbsg2.csv").rename(columns={"cens": "event"})


def whas500(folders: dict[str, Path]) -> pd.DataFrame:
    """Return WHAS500."""
    frame = pd.read_csv(folders["survival"] / "whas500.csv")
    return frame.rename(columns={"lenfol": "time", "fstat": "event"})


def flchain(folders: dict[str, Path]) -> pd.DataFrame:
    """Return FLCHAIN, without the cause of death."""
    frame = pd.read_csv(folders["survival"] / "flchain.csv").drop(columns="chapter")
    frame["event"] = (frame.pop("death") == "dead").astype(int)
    frame = frame.rename(columns={"futime": "time"})
    return frame[frame["time"] > 0]


def deepsurv(name: str) -> Callable[[dict[str, Path]], pd.DataFrame]:
    """Return a reader of one of DeepSurv's sets."""

    def read(folders: dict[str, Path]) -> pd.DataFrame:
        frame = pd.read_csv(folders["survival"] / f"{name}_deepsurv.csv").drop(columns="split")
        return frame[frame["time"] > 0]

    return read


def mds(folders: dict[str, Path]) -> pd.DataFrame:
    """Return overall survival of the MDS cohort: clinic, cytogenetics, genes of 30 rows or more."""
    frame = pd.read_csv(folders["mds"] / "mds_iwgpm_clean.csv.gz")
    frame = frame[frame["os_years"] > 0].rename(columns={"os_years": "time", "os_event": "event"})
    clinic = ["age", "sex", "bm_blast_pct", "hb", "plt", "anc", "wbc", "monocytes"]
    flags = [c for c in frame if str(c).startswith(("gene_", "cyto_loss", "cyto_gain", "cyto_i"))]
    parts = ("mono", "multi", "bi", "other")  # of a gene, which add to its own column
    numeric = frame[[c for c in flags if not str(c).endswith(parts)]].select_dtypes("number")
    flags = [str(c) for c in numeric if float(numeric[c].sum()) >= 30]
    return frame[[*clinic, *flags, "time", "event"]]


SETS: dict[str, Callable[[dict[str, Path]], pd.DataFrame]] = {
    "gbsg2": gbsg2, "whas500": whas500, "flchain": flchain, "metabric": deepsurv("metabric"),
    "support": deepsurv("support"), "mds": mds,
}  # fmt: skip


def folds_of(
    frame: pd.DataFrame, seed: int, number: int = FOLDS
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return train and test rows of each fold."""
    x = frame.drop(columns=["time", "event"])
    copies = x.groupby(list(x.columns), dropna=False, sort=False).ngroup().to_numpy()
    folds = StratifiedGroupKFold(number, shuffle=True, random_state=seed)
    return list(folds.split(x, frame["event"], copies))


def judged(
    arm: dict[str, Any], train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> dict[str, float]:
    """Return C, the integrated Brier score and the seconds of one fit."""
    asked = {k: v for k, v in arm.items() if k not in ("method", "pooled", "tuned")}
    at = np.random.default_rng(seed).permutation(np.arange(len(train)) % SITES)
    names = np.array(["one"] * len(train) if arm.get("pooled") else [f"s{k}" for k in at])
    fed = fc.simulate(
        train.assign(site=names), sites="site", outcome=fc.Survival("time", "event"), seed=seed
    )
    start = time.process_time()
    fit = fc.fit(arm["method"], fed, seed=seed, **asked)
    seconds = time.process_time() - start
    risk = np.asarray(fit.predict(test), float)
    died = train["time"][train["event"] == 1]
    last = min(float(np.quantile(died, 0.9)), float(test["time"].max()) * 0.999)
    times = np.linspace(float(np.quantile(died, 0.1)), last, 50)
    curves = fit.predict_survival(test, times)
    t, e = (test[c].to_numpy(float) for c in ("time", "event"))
    u, d = (train[c].to_numpy(float) for c in ("time", "event"))
    score = brier(u, d.astype(bool), t, e.astype(bool), np.asarray(curves), times)
    ibs = float(np.trapezoid(score, times) / (times[-1] - times[0]))
    return {"c": harrell(risk, t, e.astype(bool)), "ibs": ibs, "seconds": seconds}


def chosen(
    book: Book, train: pd.DataFrame, key: dict[str, Any], arm: dict[str, Any], names: list[str]
) -> tuple[str, dict[str, Any]]:
    """Return the name and settings of these `CHOICES` with the best mean C over inner folds."""
    means: dict[str, float] = {}
    for choice in names:
        asked = {**arm, **CHOICES[choice]}
        found: list[float] = []
        for k, (own, held) in enumerate(folds_of(train, key["seed"] + 100, INNER)):
            one = {**key, "arm": f"inner {choice}", "inner": k, **asked}
            if book.lacks(one):
                book.write(one, judged(asked, train.iloc[own], train.iloc[held], key["seed"]))
            found += [line["c"] for line in book.rows(**one)]
        means[choice] = float(np.mean(found))
    best = max(means, key=lambda choice: means[choice])
    text = ", ".join(f"{choice} {value:.4f}" for choice, value in means.items())
    print(f"{key['set']} fold {key['fold']}: {best} of {text}", flush=True)
    return best, {**arm, **CHOICES[best]}


def main() -> None:
    """Fit every arm on every fold, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--survival", type=Path, required=True)
    parser.add_argument("--mds", type=Path)
    parser.add_argument("--sets", default="gbsg2,whas500")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sweep", action="store_true", help="weights w instead of the arms")
    parser.add_argument("--choices", default=",".join(CHOICES), help="of savae_tuned")
    parser.add_argument("--book", type=Path, default=Path("savae.jsonl"))
    asks_out(parser)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folders = {"survival": args.survival, "mds": args.mds}
    arms = {name: ARMS[name] for name in args.arms.split(",")}
    if args.sweep:
        arms = {f"w {w:g}": {**ARMS["savae"], "weight": w} for w in SWEEP}
    names = args.choices.split(",")
    book = Book(args.book)
    table: dict[str, dict[str, float]] = {}
    for name in args.sets.split(","):
        frame = SETS[name](folders).reset_index(drop=True)
        for arm, given in arms.items():
            large = len(frame) > 2000 and given["method"] == "savae"
            asked = {**given, **LARGE} if large else given
            found: list[dict[str, float]] = []
            for seed in range(args.seeds):
                for k, (train, test) in enumerate(folds_of(frame, seed)):
                    key, here = {"set": name, "arm": arm, "seed": seed, "fold": k}, asked
                    if given.get("tuned"):
                        best, here = chosen(book, frame.iloc[train], key, asked, names)
                        key["chosen"] = best
                    key |= here
                    if book.lacks(key):
                        book.write(key, judged(here, frame.iloc[train], frame.iloc[test], seed))
                    found += book.rows(**key)
            c, ibs = (np.array([line[m] for line in found]) for m in ("c", "ibs"))
            table[f"{name}_{arm}".replace(" ", "_")] = {
                "c": float(c.mean()), "c_sd": float(c.std()), "ibs": float(ibs.mean()),
                "ibs_sd": float(ibs.std()), "fits": len(found),
                "seconds": float(np.mean([line["seconds"] for line in found])),
            }  # fmt: skip
            row = table[f"{name}_{arm}".replace(" ", "_")]
            print(f"{name:10}{arm:14} C {row['c']:.4f} ±{row['c_sd']:.3f}  IBS {row['ibs']:.4f} "
                  f"{row['seconds']:6.1f} s  ({len(found)})", flush=True)  # fmt: skip
    keep(args.out, table)


if __name__ == "__main__":
    main()
