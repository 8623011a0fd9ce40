"""Regression forests beside linear models and networks, of a value and of survival, five hospitals.

    python benchmarks/regression_forest/run.py [--repeats 4] [--out FILE]

Value: Friedman's first function (Ann. Stat. 19(1), 1991) of ten covariates, noise 1, 1,000 training
rows at five hospitals of unequal size and 1,000 new ones; NRMSE, the root mean square error divided
by that of the mean. The noise alone has 0.2. Survival: exponential times whose log hazard is the
same function, standardised and doubled, a third censored; Harrell's C of new patients.

Claims: the forest is better than the linear model by three standard deviations over repeats, by
averaging and by `exact`; and `exact` over five hospitals is what one with all rows has (1e-6).
Leaves with 1 if one does not hold. A network without trees, and a forest that stops early, are
measured without a claim.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sksurv.metrics import concordance_index_censored

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

ROWS, SHARES = 1000, (0.35, 0.25, 0.2, 0.12, 0.08)
FOREST = {"method": "regression_forest", "hidden": (32,), "rounds": 100}
STOPPED = {
    **FOREST, "lr_rule": "plateau", "lr_patience": 4, "patience": 8, "patience_by": "count",
}  # fmt: skip
VALUES = {
    "ridge": {"method": "ridge"},
    "regressor": {"method": "regressor", "hidden": (32,), "rounds": 100, "internal_epochs": 1},
    "forest": FOREST,
    "normal": {**FOREST, "leaf_start": "normal"},
    "stopped": STOPPED,
    "exact": {**FOREST, "strategy": "exact", "rounds": 300, "leaf_iterations": 3},
}
TIMES = {
    "cox": {"method": "cox"},
    "deepcox": {"method": "deepcox", "hidden": (32,), "rounds": 100},
    "forest": FOREST,
    "stopped": STOPPED,
}

#: Arms that must be better than the linear model.
CLAIMED = ("forest", "normal", "exact")


def table(seed: int, *, survival: bool) -> pd.DataFrame:
    x, y = make_friedman1(2 * ROWS, 10, noise=0.0 if survival else 1.0, random_state=seed)
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(10)])
    rng = np.random.default_rng(seed)
    frame["site"] = rng.choice([f"h{k}" for k in range(len(SHARES))], 2 * ROWS, p=SHARES)
    if not survival:
        return frame.assign(y=y)
    time = 100.0 * rng.exponential(size=2 * ROWS) * np.exp(-2.0 * (y - y.mean()) / y.std())
    censored = np.quantile(time, 0.8) * rng.uniform(0.0, 2.0, 2 * ROWS)
    return frame.assign(time=np.minimum(time, censored), event=(time <= censored).astype(int))


def fitted(
    frame: pd.DataFrame, arm: dict[str, Any], seed: int, *, survival: bool, pooled: bool = False
) -> fc.Fit:
    outcome = fc.Survival("time", "event") if survival else fc.Continuous("y")
    settings = {k: v for k, v in arm.items() if k != "method"}
    train = frame[:ROWS].assign(site="all") if pooled else frame[:ROWS]
    fed = fc.simulate(train, sites="site", outcome=outcome, seed=seed)
    return fc.fit(arm["method"], fed, **settings)


def score(found: fc.Fit, new: pd.DataFrame, *, survival: bool) -> float:
    if survival:
        event, time = new["event"].to_numpy(bool), new["time"].to_numpy()
        return float(concordance_index_censored(event, time, found.predict(new))[0])
    y = new["y"].to_numpy()
    return float(np.sqrt(np.mean((found.predict(new) - y) ** 2)) / y.std())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=4)
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    figures: dict[str, dict[str, float]] = {}
    wrong = 0
    for survival, arms, linear in ((False, VALUES, "ridge"), (True, TIMES, "cox")):
        found: dict[str, list[float]] = {name: [] for name in arms}
        for seed in range(given.repeats):
            frame = table(seed, survival=survival)
            for name, arm in arms.items():
                made = fitted(frame, arm, seed, survival=survival)
                found[name].append(score(made, frame[ROWS:], survival=survival))
        sign = 1 if survival else -1
        for name, scores in found.items():
            gains = sign * (np.array(scores) - found[linear])
            spread = float(np.std(gains, ddof=1)) if given.repeats > 1 else 0.0
            mean, sd = float(np.mean(scores)), float(np.std(scores, ddof=1))
            kind = "survival" if survival else "value"
            figures[f"{kind}_{name}"] = {"mean": round(mean, 4), "sd": round(sd, 4)}
            fine = name not in CLAIMED or float(gains.mean()) > 3 * spread
            wrong += not fine
            print(f"{kind:9} {name:15} {mean:.3f} ± {sd:.3f}{'' if fine else '  not by 3 sd'}")
    frame = table(0, survival=False)
    short = {**VALUES["exact"], "rounds": 20, "leaf_rows": 5.0}
    split, pooled = (fitted(frame, short, 0, survival=False, pooled=one) for one in (False, True))
    gap = float(np.abs(split.predict(frame) - pooled.predict(frame)).max())
    figures["exact"] = {"gap": gap}
    print(f"exact over five hospitals and over one: predictions differ by {gap:.1e} at most")
    keep(given.out, figures)
    return int(wrong > 0 or gap > 1e-6)


if __name__ == "__main__":
    sys.exit(main())
