"""Private `bayes_net` beside private `classifier`, `logistic` and `deepcox`, at the same ε.

    python benchmarks/dp_bayes/run.py --data FILE [--seeds 5] [--epsilons 1 3 8 inf]
        [--tables NAME …] [--out FILE]

FILE: the UCI heart disease data as one CSV (`benchmarks/heart`). Four tables: its rows that have
all ten features, at four hospitals; 1,500 simulated rows of two classes, with products and squares
of covariates, at five sites, and as many for testing; scikit-learn's digits, ten classes, a fifth
for testing, at five sites; gbsg2, survival, a quarter for testing, at three sites. Each seed draws
rows, split, sites and noise anew; tests of heart are 30 % of the rows. Bounds are usual values,
from the clinic or the way the table is made. "inf" is the same method without noise.

Each fit is judged by AUC (accuracy of ten classes, C-index of survival), the negative log
predictive density (survival: integrated Brier score), and the expected calibration error of the
likeliest class in ten bins. Intervals are 95 % ones of the mean by Student's t. All settings are
the methods' defaults, but for the prior's standard deviation, 0.3, and the strategy "exact" of
`classifier` and `deepcox`, which needs least noise. The defaults of `bayes_net` were chosen on
seeds 0 to 2 of the first three tables, which are not used here. δ is 1e-5, and a record is
protected.

Accepted: at ε 3, on no table is the AUC, accuracy or C-index of `bayes_net` more than 0.03 below
the best other method's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.datasets import load_digits

import fedcohort as fc
from fedcohort.data.split import partition
from fedcohort.metrics import classes, classification
from fedcohort.metrics.survival.brier import evaluation_times, integrated_brier
from fedcohort.metrics.survival.concordance import harrell

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

FIRST_SEED, DELTA, SMALLEST, BINS, MARGIN = 100, 1e-5, 1e-9, 10, 0.03
SAMPLES = Path(fc.__file__).parent / "data" / "samples"
HEART = {
    "age": [25, 80], "trestbps": [90, 180], "chol": [100, 400], "thalach": [70, 200],
    "oldpeak": [0, 4],
}  # fmt: skip
LEVELS = {"cp": [1, 2, 3, 4], "restecg": [0, 1, 2]}
FLAGS = ("sex", "fbs", "exang")
#: Method → settings with noise, and those without.
FITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bayes_net": ({"prior_scale": 0.3}, {"prior_scale": 0.3}),
    "classifier": ({"strategy": "exact"}, {}),
    "logistic": ({}, {"l2": 0.01}),
    "deepcox": ({"strategy": "exact"}, {}),
}

Split = tuple[dict[str, pd.DataFrame], pd.DataFrame, Any, dict[str, Any]]


def heart(path: Path, seed: int) -> Split:
    """Return sites, test rows, outcome and variables of the heart data."""
    columns = [*HEART, *LEVELS, *FLAGS]
    whole = pd.read_csv(path).dropna(subset=columns)
    whole[[*LEVELS, *FLAGS, "y"]] = whole[[*LEVELS, *FLAGS, "y"]].astype(int)
    tested = np.random.default_rng(seed).random(len(whole)) < 0.3
    train = whole[~tested].groupby("centre")[[*columns, "y"]]
    variables = {c: {"type": "number", "usual": ends} for c, ends in HEART.items()}
    variables |= {c: {"type": "category", "levels": levels} for c, levels in LEVELS.items()}
    variables |= {c: {"type": "binary"} for c in (*FLAGS, "y")}
    sites = {str(c): rows.reset_index(drop=True) for c, rows in train if len(rows) >= 20}
    test = whole[tested][[*columns, "y"]].reset_index(drop=True)
    return sites, test, fc.Binary("y"), variables


def simulated(seed: int) -> Split:
    """Return the same of the simulated table."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3000, 10))
    f = 1.5 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3] + 0.5 * x[:, 4] ** 2 - 0.5
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(10)])
    table["y"] = (rng.random(3000) < 1.0 / (1.0 + np.exp(-f))).astype(int)
    variables = {f"x{j}": {"type": "number", "usual": [-2.5, 2.5]} for j in range(10)}
    variables["y"] = {"type": "binary"}
    sites = partition(table[:1500], "iid", 5, seed, fc.Binary("y"))
    return sites, table[1500:].reset_index(drop=True), fc.Binary("y"), variables


def digits(seed: int) -> Split:
    """Return the same of scikit-learn's digits."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    table = pd.DataFrame(x[order], columns=[f"x{j}" for j in range(64)])
    table["y"] = y[order].astype(str)
    ends: dict[str, Any] = {"type": "number", "usual": [0, 16]}
    variables = {f"x{j}": ends for j in range(64)}
    variables["y"] = {"type": "category", "levels": [str(k) for k in range(10)]}
    n = len(y) // 5
    sites = partition(table[n:].reset_index(drop=True), "iid", 5, seed, fc.Category("y"))
    return sites, table[:n].reset_index(drop=True), fc.Category("y"), variables


def gbsg2(seed: int) -> Split:
    """Return the same of gbsg2; its packaged dictionary has the variables."""
    import yaml

    table = pd.read_csv(SAMPLES / "gbsg2.csv")
    order = np.random.default_rng(seed).permutation(len(table))
    n = len(table) // 4
    test, train = (table.iloc[part].reset_index(drop=True) for part in (order[:n], order[n:]))
    variables = yaml.safe_load((SAMPLES / "gbsg2.yaml").read_text())["variables"]
    outcome = fc.Survival("time", "cens")
    return partition(train, "iid", 3, seed, outcome), test, outcome, variables


def judged(
    fit: Any, sites: dict[str, pd.DataFrame], test: pd.DataFrame, outcome: Any
) -> list[float]:
    """Return discrimination, the loss of the prediction, and its calibration error."""
    if isinstance(outcome, fc.Survival):
        seen = pd.concat(sites.values())
        train, at = (seen.time.to_numpy(), seen.cens.to_numpy()), test.time.to_numpy()
        event = test.cens.to_numpy()
        times = evaluation_times(*train, at, event)
        surv = np.asarray(fit.predict_survival(test, times))
        brier = integrated_brier(*train, at, event, surv, times)
        return [harrell(fit.predict(test), at, event), brier, np.nan]
    p = np.clip(np.asarray(fit.predict(test), float), SMALLEST, 1.0 - SMALLEST)
    y = test.y.to_numpy().astype(int)
    if p.ndim == 1:
        discrimination = float(classification.auc(y, p))
        p = np.column_stack([1.0 - p, p])
    else:
        discrimination = float(classes.accuracy(y, p))
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [(bins == k).mean() * abs(sure[bins == k].mean() - right[bins == k].mean())
            for k in np.unique(bins)]  # fmt: skip
    return [discrimination, float(loss), float(sum(gaps))]


def measured(draw: Callable[[int], Split], method: str, epsilon: float, seeds: int) -> list[Any]:
    """Return mean and half width (3, 2) of the three judgements over seeds."""
    noisy, plain = FITS[method]
    found: list[list[float]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        sites, test, outcome, variables = draw(seed)
        fed = fc.simulate(sites, outcome=outcome, seed=seed, dictionary={"variables": variables})
        dp, given = {"epsilon": epsilon, "delta": DELTA}, noisy
        if np.isinf(epsilon):
            dp, given = None, plain
        found.append(judged(fc.fit(method, fed, dp=dp, seed=seed, **given), sites, test, outcome))
    values = np.array(found)
    half = student.ppf(0.975, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)
    return np.column_stack([values.mean(axis=0), half]).round(4).tolist()


def main(path: Path, seeds: int, epsilons: list[float], chosen: list[str], out: Path | None) -> int:
    """Fit, judge, tell one line for each table, method and ε; return 1 where a claim fails."""
    tables: dict[str, tuple[Callable[[int], Split], tuple[str, ...]]] = {
        "heart": (lambda seed: heart(path, seed), ("bayes_net", "classifier", "logistic")),
        "simulated": (simulated, ("bayes_net", "classifier", "logistic")),
        "digits": (digits, ("bayes_net", "classifier")),
        "gbsg2": (gbsg2, ("bayes_net", "deepcox")),
    }
    names, failed = ("discrimination", "loss", "calibration"), 0
    for table in chosen or tables:
        draw, methods = tables[table]
        at_three: dict[str, float] = {}
        for method in methods:
            figures: dict[str, float] = {}
            for epsilon in epsilons:
                found = measured(draw, method, epsilon, seeds)
                for name, (mean, half) in zip(names, found, strict=True):
                    if np.isfinite(mean):
                        figures |= {f"{name}_{epsilon:g}": mean, f"{name}_{epsilon:g}_half": half}
                if epsilon == 3:
                    at_three[method] = found[0][0]
                shown = "  ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in found)
                print(f"{table:<10} {method:<11} ε {epsilon:>3g}  {shown}", flush=True)
            keep(out, {f"{table}_{method}": figures})
        if at_three and at_three["bayes_net"] < max(at_three.values()) - MARGIN:
            print(f"{table}: bayes_net is more than {MARGIN} below the best at ε 3")
            failed = 1
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the heart disease CSV")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0, np.inf])
    parser.add_argument("--tables", nargs="+", default=[], help="all, if left out")
    asks_out(parser)
    given = parser.parse_args()
    sys.exit(main(given.data, given.seeds, given.epsilons, given.tables, given.out))
