"""Tables at sites that differ, fits of `mixed` over them, and the same fits by other means.

`dense` has the whole covariance matrix of all rows and finds θ where the derivative of the
likelihood is 0; `brute_log_likelihood` integrates over each site's effect by Simpson's rule on a
fine grid, and `brute_slopes` differences it. None shares a line with the code under test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.integrate import simpson
from scipy.optimize import brentq
from scipy.special import expit, gammaln
from scipy.stats import norm

from fedcohort.algorithms.mixed import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

KINDS = {"gaussian": "continuous", "binomial": "binary", "poisson": "count"}


def simulated(sizes, tau, seed, family="gaussian", p=2):
    """Return one table a site, whose intercepts differ with standard deviation τ."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        x = rng.normal(size=(n, p)) + rng.normal(size=p) * 0.3
        eta = 0.3 + x @ np.linspace(0.5, -0.4, p) + tau * rng.normal()
        draw = {
            "gaussian": lambda eta=eta, n=n: eta + rng.normal(size=n),
            "binomial": lambda eta=eta, n=n: (rng.random(n) < expit(eta)).astype(float),
            "poisson": lambda eta=eta: rng.poisson(np.exp(eta)).astype(float),
        }
        parts.append(LabelledTable(x, draw[family]()))
    return parts


def federation(parts, **options):
    hosts = [Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)]
    return local(hosts, **options)


def task_of(parts, family="gaussian", features=None, min_cell=1, offset=False):
    p = parts[0].x.shape[1]
    return Task(
        kind="classification" if family == "binomial" else "regression",
        features=tuple(features or (f"x{j}" for j in range(p))),
        outcome=KINDS[family],
        min_cell=min_cell,
        offset=offset,
    )


def fit(parts, family="gaussian", fed=None, features=None, min_cell=1, offset=False, **settings):
    """Fit `mixed` over tables, one a site; by default no site is too small to take part."""
    task = task_of(parts, family, features, min_cell, offset)
    return METHOD.fit(fed or federation(parts), METHOD.configure(settings), task)


def stacked(parts):
    """Return x, y and the number of each row's site."""
    sizes = [len(part.y) for part in parts]
    return (
        np.vstack([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.repeat(np.arange(len(parts)), sizes),
    )


class Dense(NamedTuple):
    """A linear mixed model from the covariance matrix of all rows."""

    tau2: float
    sigma2: float
    coefficients: np.ndarray
    errors: np.ndarray
    log_likelihood: float


def dense(parts, likelihood):
    """Return the maximum of the (restricted) likelihood; covariance σ²(I + θG), G same site."""
    x, y, site = stacked(parts)
    design = np.column_stack([np.ones(len(y)), x])
    n, k = design.shape
    same = (site[:, None] == site[None, :]).astype(float)
    reml = likelihood == "reml"
    freedom = n - k if reml else n

    def pieces(theta):
        inverse = np.linalg.inv(np.eye(n) + theta * same)
        a = design.T @ inverse @ design
        beta = np.linalg.solve(a, design.T @ inverse @ y)
        rest = inverse @ (y - design @ beta)
        return inverse, a, beta, rest, float((y - design @ beta) @ rest)

    def score(theta):
        inverse, a, _, rest, q = pieces(theta)
        trace = np.trace(inverse @ same)
        if reml:
            trace -= np.trace(np.linalg.solve(a, design.T @ inverse @ same @ inverse @ design))
        return float(freedom * (rest @ same @ rest) / q - trace) / 2

    theta = brentq(score, 0, 1e3, xtol=1e-14, rtol=1e-14) if score(0) > 0 else 0.0
    _, a, beta, _, q = pieces(theta)
    sigma2 = q / freedom
    value = freedom * (1 + np.log(2 * np.pi * sigma2))
    value += np.linalg.slogdet(np.eye(n) + theta * same)[1]
    value += np.linalg.slogdet(a)[1] if reml else 0.0
    errors = np.sqrt(sigma2 * np.diag(np.linalg.inv(a)))
    return Dense(theta * sigma2, sigma2, beta, errors, -value / 2)


def brute_log_likelihood(parts, family, beta, tau):
    """Return Σ_j log ∫ Π_i p(y | u) N(u; 0, τ²) du, by Simpson's rule on 6001 points."""
    u = np.linspace(-9 * tau, 9 * tau, 6001)[:, None]
    total = 0.0
    for x, y, _ in parts:
        eta = beta[0] + x @ beta[1:] + u
        if family == "binomial":
            height = (y * eta - np.logaddexp(0, eta)).sum(axis=1)
        else:
            height = (y * eta - np.exp(eta) - gammaln(y + 1)).sum(axis=1)
        height += norm.logpdf(u[:, 0], scale=tau)
        total += np.log(simpson(np.exp(height - height.max()), x=u[:, 0])) + height.max()
    return total


def brute_slopes(parts, family, point, h=1e-3):
    """Return the gradient and second derivative of `brute_log_likelihood` at (β, τ).

    By central differences of fourth order: their own error is below 1e-7 here.
    """

    def at(step):
        moved = point + step
        return brute_log_likelihood(parts, family, moved[:-1], moved[-1])

    axes, middle = h * np.eye(len(point)), at(0)
    near = np.array([[at(e), at(-e)] for e in axes])
    far = np.array([[at(2 * e), at(-2 * e)] for e in axes])
    slope = (8 * (near[:, 0] - near[:, 1]) - (far[:, 0] - far[:, 1])) / (12 * h)
    bend = np.diag((16 * near.sum(axis=1) - far.sum(axis=1) - 30 * middle) / (12 * h**2))
    for i, j in zip(*np.triu_indices(len(point), 1), strict=True):
        a, b = axes[i], axes[j]
        bend[i, j] = (at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * h**2)
        bend[j, i] = bend[i, j]
    return slope, bend
