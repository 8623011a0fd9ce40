"""Five mechanisms, each with a way to judge draws of it: variance, and Kolmogorov–Smirnov.

Discrete draws are judged through U = F(x − 1) + V·P(x) with V uniform, which is uniform exactly
when x has the law; the expected law is summed here, from its definition, in another order than it
is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedcohort.privacy import mechanisms
from fedcohort.privacy.noise import Source

Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def discrete(weight: Callable[[np.ndarray], np.ndarray], reach: int) -> Law:
    """Return (P(X < x), P(X = x)) of the law with these weights on −reach … reach."""
    support = np.arange(-reach, reach + 1)
    p = weight(support)
    p = p / p.sum()
    below = np.concatenate([[0.0], np.cumsum(p)])

    def law(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return below[x + reach], p[x + reach]

    return law


def laws() -> dict[str, Law]:
    """Return the two discrete laws, at a scale where the grid matters."""
    return {
        "discrete gaussian": discrete(lambda x: np.exp(-(x**2) / (2 * 1.7**2)), 600),
        "discrete laplace": discrete(lambda x: np.exp(-np.abs(x) / 1.3), 600),
    }


@dataclass(frozen=True)
class Case:
    """A mechanism: how it is drawn, and the variance and fourth moment of its law."""

    name: str
    draw: Callable[[Source, int], np.ndarray]
    variance: float
    kurtosis: float
    uniform: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def judge(self, source: Source, n: int, scale: float = 1.0) -> tuple[float, float]:
        """Return z of the variance of n draws and p of their law; `scale` spoils the draws."""
        x = self.draw(source, n) * scale
        z = (np.mean(x**2) / self.variance - 1) / math.sqrt((self.kurtosis - 1) / n)
        coins = np.random.default_rng(1).uniform(size=n)
        return float(z), float(stats.kstest(self.uniform(x, coins), "uniform").pvalue)


def _discrete(name: str, draw: Callable[[Source, int], np.ndarray]) -> Case:
    law = laws()[name]
    support = np.arange(-500, 501)
    p = law(support)[1]
    variance = float(p @ support**2)
    kurtosis = float(p @ support.astype(float) ** 4) / variance**2

    def uniform(x: np.ndarray, coins: np.ndarray) -> np.ndarray:
        below, at = law(np.rint(x).astype(int))
        return below + coins * at

    return Case(name, draw, variance, kurtosis, uniform)


def _shares(source: Source, n: int) -> np.ndarray:
    return sum(
        mechanisms.perturb(source, np.zeros(n), sensitivity=1.0, noise=3.0, share=4)
        for _ in range(4)
    )


CASES = (
    Case(
        "gaussian on a grid",
        lambda source, n: mechanisms.gaussian(source, 2.5, n),
        2.5**2,
        3.0,
        lambda x, coins: stats.norm.cdf(x, scale=2.5),
    ),
    Case(
        "laplace on a grid",
        lambda source, n: mechanisms.laplace(source, 0.8, n),
        2 * 0.8**2,
        6.0,
        lambda x, coins: stats.laplace.cdf(x, scale=0.8),
    ),
    _discrete("discrete gaussian", lambda source, n: mechanisms.discrete_gaussian(source, 1.7, n)),
    _discrete("discrete laplace", lambda source, n: mechanisms.discrete_laplace(source, 1.3, n)),
    Case(
        "gaussian in 4 shares",
        _shares,
        9.0,
        3.0,
        lambda x, coins: stats.norm.cdf(x, scale=3.0),
    ),
)
