"""The correction of `bayes_logistic` for skewness (``skewness: true``) beside importance sampling.

    python benchmarks/bayes_posterior/skewness.py --data FOLDER --out FILE

The tables are those of `run`. For each coefficient: |difference of means| in posterior standard
deviations, |ratio of standard deviations − 1|, and the same of the ends of the 95 % interval, in
standard deviations; the largest over coefficients and seeds. The reference is importance sampling
from Student's t on 6 degrees of freedom about the fit, which shares no code with it; `error_sd` is
its own largest Monte Carlo error of a standard deviation. `numbers` is how many numbers the sum
has, and `numbers_of_rounds` how many the rounds of the same fit.

Accepted: means and standard deviations within 2 %. The exit code is 1 where not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.special import logit
from scipy.stats import multivariate_t

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep
from run import FEWER, REFERENCE, WITHIN, Case, cases, fitted, quantiles, target_of, weighted


def measured(case: Case, seed: int) -> dict[str, float]:
    """Return the largest differences over coefficients of one fit, without and with correction."""
    drawn = case.drawn(seed)
    target = target_of(*drawn)
    law = multivariate_t(target.mean, 1.15 * target.cov, 6, seed=np.random.default_rng(seed))
    g = np.asarray(law.rvs(REFERENCE if len(target.z) < 1000 else FEWER))
    w, true, spread = weighted(g, target.log(g) - law.logpdf(g))
    ends = quantiles(g, w)
    out = {
        "rows": len(target.z),
        "coefficients": len(target.mean),
        "error_sd": float((np.sqrt((w**2) @ ((g - true) ** 2 / spread**2 - 1) ** 2) / 2).max()),
    }
    k = len(target.mean)
    out["numbers"] = k * (k + 1) * (k + 2) // 6 + k * (k + 1) // 2 + 2
    out["numbers_of_rounds"] = (target.rounds + 1) * (k * (k + 1) // 2 + k + 3)
    x = drawn[0]
    for name in ("plain", "corrected"):
        model = fitted(*drawn, skewness=name == "corrected")
        columns = [x.columns.get_loc(one) for one in model.features]
        unit = x.to_numpy()[:, columns].std(axis=0)
        rows = model.summary()
        middle = x.to_numpy()[:, columns].mean(axis=0)[None]  # the intercept is there
        mean = np.r_[model.decision(middle), model.coefficients * unit]
        spread_of = [row["standard_error"] for row in rows] * unit
        sd = np.r_[np.sqrt(model.spread(middle)), spread_of]
        own = np.array([[row[end] for row in rows] for end in ("low", "high")]) * unit
        own = np.column_stack([logit(model.intervals(middle, 0.95)[0]), own])
        out[f"{name}_mean"] = float(np.abs((mean - true) / spread).max())
        out[f"{name}_sd"] = float(np.abs(sd / spread - 1).max())
        out[f"{name}_ends"] = float(np.abs((own - ends) / spread).max())
    return out


def main() -> int:
    """Measure and print; return 1 where the corrected fit is not within 2 %."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with heart/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    asks_out(parser)
    given = parser.parse_args()
    missed = False
    for case in cases(given.data):
        if (given.only and case.name not in given.only) or case.rows > 1000:
            continue
        found = [measured(case, seed) for seed in range(given.seeds)]
        most = {name: round(max(one[name] for one in found), 4) for name in found[0]}
        print(case.name, most, flush=True)
        missed |= max(most["corrected_mean"], most["corrected_sd"]) > WITHIN
        keep(given.out, {f"skewness_{case.name}": {"seeds": given.seeds, **most}})
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
