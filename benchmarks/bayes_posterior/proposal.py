"""What the correction of `run.py` would reveal, and what rounding its sums would cost.

    python benchmarks/bayes_posterior/proposal.py [--seeds 3] [--out FILE]

For simulated tables (`run.py`) at four sites. Each site would send the log likelihood of its rows
at 4,096 points, rounded to a multiple of `STEPS`, and the sum over sites is read.

    mean, sd   largest difference from importance sampling with 200,000 draws, in posterior sd, and
               of the ratio of standard deviations from 1
    known      number of directions in the n p numbers of all rows along which a change of 0.1
               standard deviations changes the sums by more than their rounding error; the classes
               and all else about the rows are taken as known, and the sums as linear in the change

At `known` = n p the sums determine the rows, if somebody can solve them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import multivariate_t, qmc

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep
from run import POINTS, REFERENCE, WIDER, Case, Target, target_of, weighted

#: Roundings of a site's sums; 0: none, with the error of double precision.
STEPS = (0.0, 0.01, 0.25, 1.0)
SITES, DOUBLE, CHANGE = 4, 1e-12, 0.1
CASES = (("moderate", 100), ("strong", 100), ("moderate", 300), ("strong", 300))


def rounded(target: Target, g: np.ndarray, step: float) -> np.ndarray:
    """Return the log density (S,) at points g, each site's log likelihood rounded."""
    total = -0.5 * (g * g) @ target.prior
    for k in range(SITES):
        at = slice(k, None, SITES)
        part = replace(target, z=target.z[at], sign=target.sign[at], prior=0 * target.prior)
        told = part.log(g)
        total = total + (np.round(told / step) * step if step else told)
    return total


def known(target: Target, g: np.ndarray, error: float) -> int:
    """Return the number of directions of the rows that the sums tell, see the header."""
    r = target.sign * expit(-target.sign * (g @ target.z.T))
    slopes = (r[:, :, None] * g[:, None, 1:]).reshape(len(g), -1)
    slopes -= slopes.mean(axis=0)
    found = np.sqrt(np.maximum(np.linalg.eigvalsh(slopes.T @ slopes), 0.0))
    return int((CHANGE * found > error).sum())


def measured(case: Case, seed: int) -> dict[str, Any]:
    """Return errors and what is known, by rounding."""
    target = target_of(*case.drawn(seed))
    law = multivariate_t(target.mean, 1.15 * target.cov, 6, seed=np.random.default_rng(seed))
    far = np.asarray(law.rvs(REFERENCE))
    _, true, spread = weighted(far, target.log(far) - law.logpdf(far))
    u = ndtri(qmc.Sobol(len(target.mean), seed=seed).random(POINTS))
    g = target.mean + WIDER * u @ np.linalg.cholesky(target.cov).T
    out = {"unknown": len(target.z) * (target.z.shape[1] - 1)}
    for step in STEPS:
        logs = rounded(target, g, step) + 0.5 * (u * u).sum(axis=1)
        _, mean, sd = weighted(g, logs)
        name = f"{step:g}".replace(".", "_")
        out[f"mean_{name}"] = float(np.abs((mean - true) / spread).max())
        out[f"sd_{name}"] = float(np.abs(sd / spread - 1.0).max())
        error = np.sqrt(SITES / 12.0) * step or DOUBLE
        out[f"known_{name}"] = known(target, g, error)
    return out


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    asks_out(parser)
    given = parser.parse_args()
    for kind, rows in CASES:
        found = [measured(Case("", kind, rows), seed) for seed in range(given.seeds)]
        most = {name: round(float(max(one[name] for one in found)), 4) for name in found[0]}
        print(kind, rows, most, flush=True)
        keep(given.out, {f"proposal_{kind}_{rows}": {"seeds": given.seeds, **most}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
