"""Three ways to a private posterior over sites, at the same ε: why `bayes_net` takes the first.

    python benchmarks/dp_bayes/ways.py [--seeds 3] [--epsilons 1 8] [--out FILE]

Heikkilä et al., "Differentially private partitioned variational inference", TMLR 2023, on the
tables "simulated" and "digits" of `run.py`, with columns divided by their usual range, 32 hidden
units, a prior N(0, 0.3²), and the record as the unit, δ 1e-5:

summed   one clipped slope for each record in each of T rounds, noise shared by the sites: the
         mathematics of `algorithms.bayes_net.private`, which is called here
local    "DP optimisation": each site makes 6 such steps in each of 10 rounds with its own factor's
         cavity, with all of the noise in each, and sends the damped change
parts    "virtual clients": each site divides its rows in 5 parts; each part makes 10 steps without
         noise, and its change of means and of logarithms of precisions is clipped as a whole. One
         record changes one part, from one vector of norm ≤ C to another: the sensitivity of the sum
         is 2 C. Shared noise, 10 rounds

A figure is the share of right answers. Rates and clips of "parts" were tried on a grid
(`PARTS`) and the best one at each ε is shown, which favours it.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net import METHOD, BayesNetModel, private
from fedcohort.algorithms.bayes_net.records import clipped_sums
from fedcohort.algorithms.bayes_net.steps import places_of, posterior_at_start
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.privacy.accounting import calibrate
from fedcohort.protocol import Dp, Release
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Natural
from fedcohort.training.rows import rows_of

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from book import asks_out, keep
from run import DELTA, FIRST_SEED, digits, simulated

CLIP, RATE, PRIOR = 1.0, 4.0, 0.3**-2.0
ROUNDS, STEPS, WITHIN, PARTS_OF_A_SITE = 10, 6, 10, 5
#: Clip and rate of "parts".
PARTS = ((0.1, 1.0), (0.1, 4.0), (1.0, 1.0), (1.0, 4.0))


def tables_of(draw: Any, seed: int) -> tuple[list[LabelledTable], LabelledTable]:
    """Return the sites' tables and the test's, scaled by usual ranges."""
    sites, test, _, variables = draw(seed)

    def table(frame: Any) -> LabelledTable:
        names = [c for c in frame if c != "y"]
        low, high = np.array([variables[c]["usual"] for c in names], float).T
        x = np.clip((frame[names].to_numpy(float) - low) / (high - low) * 2 - 1, -1, 1)
        return LabelledTable(x, frame.y.to_numpy().astype(float))

    return [table(s) for s in sites.values()], table(test)


def noise_of(epsilon: float, count: int) -> float:
    """Return the noise multiplier of so many releases."""
    return calibrate(
        lambda z: (Release(step="it", noise=z, count=count),), Dp(epsilon=epsilon, delta=DELTA)
    )


class Slopes:
    """Sums over one table's records at a posterior, with noise."""

    def __init__(self, plan: Plan, seed: int):
        self.plan, self.at = plan, places_of(plan.network)
        self.rng = np.random.default_rng(seed)

    def __call__(self, table: LabelledTable, q: Natural, clip: float, sd: float) -> Any:
        """Return slopes (W,), squares (W,) and the share of the likelihood that is left."""
        sums = clipped_sums(
            q.into(self.at), rows_of(table, self.plan, (0, 0)), self.plan, self.rng, clip=clip,
            squares=private.SQUARES, mark=private.MARK * clip,
        )  # fmt: skip
        sums = sums + sd * self.rng.normal(size=len(sums))
        w = len(self.at.mean)
        left = sums[-1] / (private.MARK * clip * len(table.x))
        return sums[:w], sums[w:-1] / private.SQUARES, float(np.clip(left, private.LEAST_LEFT, 1))


def summed(slopes: Slopes, sites: list[LabelledTable], epsilon: float, start: Natural) -> Natural:
    """Return the posterior of `private.climbed`, with noise that two thirds of the sites share."""
    config = METHOD.configure({"prior_scale": PRIOR**-0.5})
    dp = Dp(epsilon=epsilon, delta=DELTA, clip=CLIP)
    counted, release = private.releases(config, dp)
    extra = math.sqrt(len(sites) / math.ceil(2 * len(sites) / 3))

    class Fed:
        def __init__(self):
            self.answered = [str(k) for k in range(len(sites))]

        def sum(self, step: Any, *, theta: Array | None = None, **_: Any) -> Any:
            n = float(sum(len(s.x) for s in sites))
            if theta is None:
                return SimpleNamespace(
                    records=np.array([n + extra * counted.noise * slopes.rng.normal()])
                )
            sums = sum_of(
                clipped_sums(
                    theta, rows_of(s, slopes.plan, (0, 0)), slopes.plan, slopes.rng, clip=CLIP,
                    squares=private.SQUARES, mark=private.MARK * CLIP,
                )
                for s in sites
            )  # fmt: skip
            noise = extra * release.noise * CLIP * slopes.rng.normal(size=len(sums))
            return SimpleNamespace(sums=sums + noise)

        def rounds(self, most: int) -> Any:
            return range(most)

        def record(self, **_: float) -> None:
            pass

    fed: Any = Fed()
    return private.climbed(fed, config, slopes.plan, start, release, CLIP)


def sum_of(arrays: Any) -> Array:
    """Return the sum of arrays."""
    return np.add.reduce(list(arrays))


def local(slopes: Slopes, sites: list[LabelledTable], epsilon: float, start: Natural) -> Natural:
    """Return the posterior of noisy steps within the sites."""
    k, q = len(sites), start
    sd = CLIP * noise_of(epsilon, ROUNDS * STEPS)
    prior = Natural(np.full(len(q.shift), PRIOR), np.zeros(len(q.shift)))
    factors = [q.less(prior).times(1.0 / k)] * k
    h, left, later = [f.precision for f in factors], [1.0] * k, list[Natural]()
    for number in range(ROUNDS):
        changes: list[Natural] = []
        for j, table in enumerate(sites):
            cavity, own, eta = q.less(factors[j]), q, RATE / (len(table.x) * CLIP)
            for _ in range(STEPS):
                g, square, share = slopes(table, own, CLIP, sd)
                left[j] += private.FRESH * (share - left[j])
                mu = own.shift / own.precision
                mu = mu + eta * (g + left[j] * cavity.shift)
                mu = mu / (1.0 + eta * left[j] * cavity.precision)
                h[j] = h[j] + private.FRESH * (square / left[j] - h[j])
                precision = cavity.precision + np.maximum(h[j], 0.0)
                own = Natural(precision, precision * mu)
            change = own.less(q).times(1.0 / k)
            least = -0.9 / k * q.precision
            changes.append(Natural(np.maximum(change.precision, least), change.shift))
        factors = [f.plus(c) for f, c in zip(factors, changes, strict=True)]
        for change in changes:
            q = q.plus(change)
        later += [q] * (number >= ROUNDS // 2)
    return mean_of(later)


def parts(
    slopes: Slopes, sites: list[LabelledTable], epsilon: float, start: Natural, clip: float,
    rate: float,
) -> Natural:  # fmt: skip
    """Return the posterior of clipped changes of parts of the rows."""
    some = [
        LabelledTable(s.x[at], s.y[at])
        for s in sites
        for at in np.array_split(np.arange(len(s.x)), PARTS_OF_A_SITE)
    ]
    extra = math.sqrt(len(sites) / math.ceil(2 * len(sites) / 3))
    sd = 2 * clip * extra * noise_of(epsilon, ROUNDS)
    eta = rate / sum(len(s.x) for s in some)
    q, v, later = start, len(some), list[Natural]()
    for number in range(ROUNDS):
        factor = Natural((q.precision - PRIOR) / v, q.shift / v)
        total = sd * slopes.rng.normal(size=2 * len(q.shift))
        for table in some:
            cavity, own, h = q.less(factor), q, factor.precision
            for _ in range(WITHIN):
                g, square, _left = slopes(table, own, 1e9, 0.0)
                mu = own.shift / own.precision
                mu = (mu + eta * (g + cavity.shift)) / (1.0 + eta * cavity.precision)
                h = h + 0.3 * (square - h)
                precision = cavity.precision + np.maximum(h, 0.0)
                own = Natural(precision, precision * mu)
            moved = own.shift / own.precision - q.shift / q.precision
            wider = private.SQUARES * np.log(own.precision / q.precision)
            change = np.concatenate([moved, wider])
            total += change * min(1.0, clip / np.linalg.norm(change))
        moved, wider = np.split(total / v, 2)
        precision = q.precision * np.exp(np.clip(wider / private.SQUARES, -1.0, 1.0))
        precision = np.maximum(precision, PRIOR)
        q = Natural(precision, precision * (q.shift / q.precision + moved))
        later += [q] * (number >= ROUNDS // 2)
    return mean_of(later)


def mean_of(posteriors: list[Natural]) -> Natural:
    """Return the posterior with the mean of the means and of the precisions."""
    precision = np.mean([q.precision for q in posteriors], axis=0)
    mu = np.mean([q.shift / q.precision for q in posteriors], axis=0)
    return Natural(precision, precision * mu)


def right(q: Natural, plan: Plan, test: LabelledTable) -> float:
    """Return the share of right answers."""
    several = plan.loss.startswith("softmax")
    model = BayesNetModel(
        features=(), levels=("0", "1"), model="softmax" if several else "logistic",
        network=plan.network, thetas=q.into(places_of(plan.network))[None], weights=np.ones(1),
        centre=0.0, scale=1.0, times=np.zeros(0), rounds=0, samples=32, seed=0, level=0.9,
    )  # fmt: skip
    p = model.predict(test.x)
    return float(((p.argmax(axis=1) if several else p > 0.5) == test.y).mean())


def main(seeds: int, epsilons: list[float], out: Path | None) -> None:
    """Measure and tell."""
    ways: dict[str, Any] = {"summed": summed, "local": local}
    for clip, rate in PARTS:
        ways[f"parts {clip:g} {rate:g}"] = partial(parts, clip=clip, rate=rate)
    for name, draw in (("simulated", simulated), ("digits", digits)):
        figures: dict[str, float] = {}
        for epsilon in epsilons:
            found: dict[str, list[float]] = {way: [] for way in ways}
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                sites, test = tables_of(draw, seed)
                loss, outputs = ("softmax 10", 10) if name == "digits" else ("logistic", 1)
                config = METHOD.configure({"hidden": (32,)})
                plan = config.plan(sites[0].x.shape[1], loss, outputs)
                start = posterior_at_start(plan.network, seed)
                for way, fit in ways.items():
                    q = fit(Slopes(plan, seed), sites, epsilon, start)
                    found[way].append(right(q, plan, test))
            means = {way: float(np.mean(values)) for way, values in found.items()}
            best = max(v for way, v in means.items() if way.startswith("parts"))
            told = {"summed": means["summed"], "local": means["local"], "parts": best}
            figures |= {f"{way}_{epsilon:g}": round(v, 3) for way, v in told.items()}
            print(
                f"{name:<10} ε {epsilon:g}", {k: round(v, 3) for k, v in means.items()}, flush=True
            )
        keep(out, {f"ways_{name}": figures})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 8.0])
    asks_out(parser)
    given = parser.parse_args()
    main(given.seeds, given.epsilons, given.out)
