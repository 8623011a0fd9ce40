"""`bayes_logistic` beside samples of the posterior that it approximates.

    python benchmarks/bayes_posterior/run.py --sampler PYTHON [--data FOLDER] [--seeds 5]
        [--only NAME ...] [--book FILE] [--out FILE]

PYTHON: an interpreter with numpyro, for `sampler.py`. FOLDER: with heart/. Tables, each over four
sites: heart (ten features of the four hospitals' complete rows, levels apart; a seed draws three
quarters of the rows), and simulated ones of five normal covariates with log odds
b₀ + xᵀβ, a new table for each seed:

    moderate   β = (1, −1, 0.5, 0, 0.25), b₀ = 0
    strong     3 β: nearly separated classes
    rare       β, b₀ = −3: 7 % of class 1
    separated  strong, with outcomes 1(xᵀβ > 0): no maximum of the likelihood exists

Coefficients are of standardised covariates, with the method's own priors. For each coefficient:
|difference of means| in posterior standard deviations, |ratio of standard deviations − 1|, and the
same of the ends of the 95 % interval, in standard deviations. References: NUTS, with its own Monte
Carlo errors, and importance sampling from Student's t on 6 degrees of freedom about the fit,
200,000 draws (40,000 of 1,000 rows or more): a check of both that shares no code with either.

`corrected` is a proposal, not the product: the fit's normal distribution is weighted by the exact
posterior at 4,096 points (a scrambled Sobol sequence, the standard deviations widened by a tenth),
for which sites would have to send one sum, of the log likelihood at each point. Pareto's k of the
weights says whether to believe it (Vehtari et al., JMLR 25, 2024: below 0.7).

Accepted: means and standard deviations within 2 % of NUTS's. The exit code is 1 where not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit, ndtri
from scipy.stats import genpareto, multivariate_t, qmc

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
from book import Book, asks_out, keep

BETA = np.array([1.0, -1.0, 0.5, 0.0, 0.25])
KINDS = {"moderate": (1.0, 0.0), "strong": (3.0, 0.0), "rare": (1.0, -3.0), "separated": (3.0, 0.0)}
SIMULATED = (
    ("moderate", 100), ("strong", 100), ("rare", 300), ("separated", 100), ("moderate", 300),
    ("strong", 300), ("moderate", 1000), ("strong", 1000), ("moderate", 5000), ("strong", 5000),
)  # fmt: skip
CHAINS, WARMUP, DRAWS = 16, 500, 5000
POINTS, WIDER = 4096, 1.1
#: Draws of the second reference: fewer of long tables.
REFERENCE, FEWER = 200_000, 40_000
WITHIN = 0.02
TEN = "age sex cp trestbps chol fbs restecg thalach exang oldpeak".split()


@dataclass(frozen=True)
class Case:
    """A table by seed: covariates x (n, p), classes y (n,), sites (n,)."""

    name: str
    kind: str
    rows: int
    folder: Path | None = None

    def drawn(self, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Return the covariates, the classes and the sites."""
        rng = np.random.default_rng(seed)
        if self.folder is not None:
            raw = pd.read_csv(self.folder / "heart" / "heart_4centres.csv").dropna(subset=TEN)
            raw = raw.iloc[np.sort(rng.permutation(len(raw))[: 3 * len(raw) // 4])]
            x = pd.get_dummies(raw[TEN], columns=["cp", "restecg"], drop_first=True, dtype=float)
            x.columns = [name.replace(".", "_") for name in x.columns]
            return x.reset_index(drop=True), raw.y.to_numpy(float), raw.centre.to_numpy(str)
        times, intercept = KINDS[self.kind]
        x = rng.normal(size=(self.rows, len(BETA)))
        f = intercept + times * x @ BETA
        yes = f > 0 if self.kind == "separated" else rng.random(self.rows) < expit(f)
        sites = np.array([f"site-{k % 4}" for k in range(self.rows)])
        names = [f"x{j}" for j in range(len(BETA))]
        return pd.DataFrame(x, columns=names), yes.astype(float), sites


def cases(data: Path | None) -> Iterator[Case]:
    """Yield the tables."""
    if data is not None:
        yield Case("heart", "heart", 0, data)
    for kind, rows in SIMULATED:
        yield Case(f"{kind}_{rows}", kind, rows)


@dataclass(frozen=True)
class Target:
    """A posterior: z (n, k), signs (n,), prior precisions (k,), and the fit N(m, V)."""

    z: np.ndarray
    sign: np.ndarray
    prior: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    rounds: int

    def log(self, g: np.ndarray) -> np.ndarray:
        """Return the log density (S,) at points g (S, k), up to a constant."""
        rows = [log_expit(self.sign * (part @ self.z.T)).sum(axis=1)
                for part in np.array_split(g, 1 + len(g) * len(self.z) // 2_000_000)]  # fmt: skip
        return np.concatenate(rows) - 0.5 * (g * g) @ self.prior


def fitted(x: pd.DataFrame, y: np.ndarray, sites: np.ndarray, **settings: Any) -> Any:
    """Return the model of a fit with these settings."""
    frame = x.assign(y=y.astype(int))
    tables = {s: frame[sites == s].reset_index(drop=True) for s in sorted(set(sites))}
    kinds = dict.fromkeys(x.columns, "number")
    known = {"variables": {**kinds, "y": "binary"}}
    fed = fc.simulate(tables, outcome=fc.Binary("y"), dictionary=known)
    return fc.fit("bayes_logistic", fed, min_cell=1, **settings).model


def target_of(x: pd.DataFrame, y: np.ndarray, sites: np.ndarray) -> Target:
    """Fit, and return the posterior of standardised coefficients."""
    model = fitted(x, y, sites)
    columns = [x.columns.get_loc(name) for name in model.features]
    values = x.to_numpy()[:, columns]
    middle, sd = values.mean(axis=0), values.std(axis=0)
    turn = np.diag(np.r_[1.0, sd])
    turn[0, 1:] = middle
    return Target(
        z=np.column_stack([np.ones(len(y)), (values - middle) / sd]),
        sign=2.0 * y - 1.0,
        prior=np.r_[10.0**-2, np.full(len(sd), 2.5**-2)],
        mean=turn @ np.r_[model.intercept, model.coefficients],
        cov=turn @ model.covariance @ turn.T,
        rounds=int(model.rounds),
    )


def nuts(sampler: Path, target: Target, seed: int) -> dict[str, np.ndarray]:
    """Return what `sampler.py` says."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given, z=target.z, y=(target.sign + 1) / 2, prior=target.prior, seed=seed,
            chains=CHAINS, warmup=WARMUP, draws=DRAWS, start=target.mean, spread=target.cov,
        )  # fmt: skip
        cache = {"JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir()) / "bayes_posterior")}
        script = str(Path(__file__).with_name("sampler.py"))
        asked = [str(sampler), script, str(given), str(found)]
        subprocess.run(asked, check=True, env={**os.environ, **cache})
        with np.load(found) as out:
            return dict(out)


def weighted(g: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights (S,), and the mean and standard deviation (k,) under them."""
    w = np.exp(logs - logs.max())
    w /= w.sum()
    mean = w @ g
    return w, mean, np.sqrt(w @ (g - mean) ** 2)


def quantiles(g: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return quantiles 2.5 and 97.5 % (2, k) of weighted draws."""
    out: list[np.ndarray] = []
    for column in g.T:
        order = np.argsort(column)
        below = np.cumsum(w[order]) - w[order] / 2.0
        out.append(np.interp([0.025, 0.975], below, column[order]))
    return np.array(out).T


def pareto_k(w: np.ndarray) -> float:
    """Return k of the generalised Pareto distribution of the largest weights."""
    most = int(min(len(w) / 5, 3 * np.sqrt(len(w))))
    top = np.sort(w)[-most - 1 :]
    return float(genpareto.fit(top[1:] - top[0], floc=0.0)[0])


def corrected(target: Target, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return mean and sd (k,), quantiles (2, k) and Pareto's k of the corrected posterior."""
    u = ndtri(qmc.Sobol(len(target.mean), seed=seed).random(POINTS))
    g = target.mean + WIDER * u @ np.linalg.cholesky(target.cov).T
    w, mean, sd = weighted(g, target.log(g) + 0.5 * (u * u).sum(axis=1))
    return mean, sd, quantiles(g, w), pareto_k(w)


def measured(case: Case, sampler: Path, seed: int) -> dict[str, float]:
    """Return the largest differences over coefficients of one fit."""
    target = target_of(*case.drawn(seed))
    true = nuts(sampler, target, seed)
    sd = np.sqrt(np.diag(target.cov))
    normal = target.mean + np.outer([-1.0, 1.0], 1.959964 * sd)
    law = multivariate_t(target.mean, 1.15 * target.cov, 6, seed=np.random.default_rng(seed))
    g = np.asarray(law.rvs(REFERENCE if len(target.z) < 1000 else FEWER))
    w, other, other_sd = weighted(g, target.log(g) - law.logpdf(g))
    better = corrected(target, seed)

    def apart(mean: np.ndarray, spread: np.ndarray, ends: np.ndarray | None) -> dict[str, float]:
        out = {
            "mean": np.abs((mean - true["mean"]) / true["sd"]).max(),
            "sd": np.abs(spread / true["sd"] - 1.0).max(),
            "sd_signed": (spread / true["sd"] - 1.0).mean(),
        }
        if ends is not None:
            out["ends"] = np.abs((ends - true["quantiles"]) / true["sd"]).max()
        return out

    found = {f"ep_{k}": v for k, v in apart(target.mean, sd, normal).items()}
    found |= {f"corrected_{k}": v for k, v in apart(*better[:3]).items()}
    found |= {f"is_{k}": v for k, v in apart(other, other_sd, quantiles(g, w)).items()}
    found |= {
        "pareto_k": better[3],
        "nuts_mean_error": (true["mean_error"] / true["sd"]).max(),
        "nuts_sd_error": (true["sd_error"] / true["sd"]).max(),
        "r_hat": true["r_hat"].max(),
        "size": true["size"].min(),
        "rounds": target.rounds,
        "rows": len(target.z),
        "coefficients": len(target.mean),
    }
    return {name: float(value) for name, value in found.items()}


def main() -> int:
    """Measure; return 1 where the fit is not within 2 %."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sampler", type=Path, required=True, help="python with numpyro")
    parser.add_argument("--data", type=Path, help="folder with heart/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--book", type=Path, default=Path("runs/bayes_posterior.jsonl"))
    asks_out(parser)
    given = parser.parse_args()
    given.book.parent.mkdir(parents=True, exist_ok=True)
    book, missed = Book(given.book), list[str]()
    names = (
        "ep_mean", "ep_sd", "ep_ends", "corrected_mean", "corrected_sd", "corrected_ends",
        "nuts_mean_error", "nuts_sd_error", "is_mean", "is_sd", "pareto_k", "r_hat",
    )  # fmt: skip
    print(f"{'largest over seeds':16}" + " ".join(f"{name[-12:]:>12}" for name in names))
    for case in cases(given.data):
        if given.only and case.name not in given.only:
            continue
        rows = book.of_seeds(
            {"case": case.name}, given.seeds, partial(measured, case, given.sampler)
        )
        table = pd.DataFrame(rows)
        out: dict[str, Any] = {"seeds": len(rows)}
        out |= {name: round(float(table[name].max()), 4) for name in names}
        for name in ("ep_mean", "ep_sd", "ep_sd_signed", "corrected_sd"):
            out[f"{name}_average"] = round(float(table[name].mean()), 4)
        out |= {name: int(table[name].max()) for name in ("rounds", "rows", "coefficients")}
        out["size"] = int(table["size"].min())
        print(f"{case.name:18}" + " ".join(f"{out[name]:12.4f}" for name in names))
        if max(out["ep_mean"], out["ep_sd"]) > WITHIN:
            missed.append(f"{case.name}: not within {WITHIN:.0%} of NUTS")
        keep(given.out, {case.name: out})
    print("\n".join(missed) or "all claims hold")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
