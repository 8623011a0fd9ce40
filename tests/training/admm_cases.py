"""Problems, splits and pooled optima by CVXPY, for the tests of consensus ADMM."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import cvxpy as cp
import numpy as np

from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.admm import STEPS, AdmmSettings, Penalty, consensus


class Problem(NamedTuple):
    """A loss and a penalty."""

    loss: str
    l1: float
    l2: float


PROBLEMS = {
    "ridge": Problem("squared", 0.0, 0.1),
    "lasso": Problem("squared", 0.1, 0.0),
    "elastic_net": Problem("squared", 0.05, 0.05),
    "logistic": Problem("logistic", 0.0, 0.01),
    "svm": Problem("hinge", 0.0, 0.1),
}


@cache
def simulated(loss, n=150, p=5, seed=3):
    """Return a table with correlated covariates, one of them far from 0 and in large units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x[:, 1] = 0.7 * x[:, 0] + 0.7 * x[:, 1]
    y = x @ rng.normal(size=p) * 0.7 + rng.normal(size=n)
    x[:, 0] = 50 + 10 * x[:, 0]
    return LabelledTable(x, y + 3 if loss == "squared" else (y > 0).astype(float))


def split(table, sites, how, seed=0):
    """Return one table a site.

    ``balanced``; ``unbalanced``, each with half the rows of the one before; ``class``, one site of
    a single class (or of the largest outcomes); ``few``, one with fewer rows than columns.
    """
    n, p = table.x.shape
    order = np.random.default_rng(seed).permutation(n)
    if sites == 1 or how == "balanced":
        parts = np.array_split(order, sites)
    elif how == "unbalanced":
        sizes = 0.5 ** np.arange(sites)
        parts = np.split(
            order, np.ceil(np.cumsum(sizes) / sizes.sum() * (n - sites)).astype(int)[:-1]
        )
    elif how == "class":
        order = order[np.argsort(-table.y[order], kind="stable")]
        first, rest = order[: n // 6], order[n // 6 :]
        rest = np.random.default_rng(seed).permutation(rest)
        parts = [first, *np.array_split(rest, sites - 1)]
    else:
        parts = [order[: p - 2], *np.array_split(order[p - 2 :], sites - 1)]
    return [LabelledTable(table.x[rows], table.y[rows]) for rows in parts]


def federation(parts, **options):
    hosts = [Host(f"site-{k:02d}", part, STEPS) for k, part in enumerate(parts)]
    return local(hosts, **options)


def solve(
    parts, problem, fed=None, min_cell=5, intercept=False, offset=False, smoothed=None, **settings
):
    """Run consensus ADMM over tables, one a site; of hinge loss from a smoothed start."""
    smoothed = problem.loss == "hinge" if smoothed is None else smoothed
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    task = Task(kind="any", features=names, min_cell=min_cell, offset=offset)
    penalty = Penalty(l1=problem.l1, l2=problem.l2, intercept=intercept)
    fed = fed or federation(parts)
    config = AdmmSettings(**settings)
    smoothed = smoothed and config.local == "exact"
    return consensus(fed, problem.loss, penalty, config, task, smoothed=smoothed)


def objective(table, problem, intercept, beta, penalised=False):
    """Return the averaged loss plus the penalty, straight from its definition."""
    f = intercept + table.x @ beta
    sign = 2 * table.y - 1
    loss = {
        "squared": lambda: np.square(f - table.y),
        "logistic": lambda: np.logaddexp(0, -sign * f),
        "hinge": lambda: np.maximum(1 - sign * f, 0),
    }[problem.loss]()
    inside = np.r_[intercept, beta] if penalised else beta
    return loss.mean() + problem.l1 * np.abs(inside).sum() + problem.l2 / 2 * inside @ inside


@cache
def optimum(name, penalised=False):
    """Return the least objective of a problem on its pooled table, by CVXPY with Clarabel."""
    problem = PROBLEMS[name]
    return clarabel(simulated(problem.loss), problem, penalised)


def clarabel(table, problem, penalised=False):
    n, sd, mean = len(table.y), table.x.std(axis=0), table.x.mean(axis=0) * (not penalised)
    gamma, b = cp.Variable(table.x.shape[1]), cp.Variable()
    f, sign = ((table.x - mean) / sd) @ gamma + b, 2 * table.y - 1
    loss = {
        "squared": lambda: cp.sum_squares(f - table.y),
        "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(sign, f))),
        "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(sign, f))),
    }[problem.loss]()
    inside = cp.multiply(gamma, 1 / sd)
    inside = cp.hstack([b, inside]) if penalised else inside
    penalty = problem.l1 * cp.norm1(inside) + problem.l2 / 2 * cp.sum_squares(inside)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    cp.Problem(cp.Minimize(loss / n + penalty)).solve("CLARABEL", **tight)
    beta = gamma.value / sd
    return objective(table, problem, b.value - mean @ beta, beta, penalised)


def gap(solution, table, problem, least, penalised=False):
    """Return how far a solution is above the least objective, relative to it."""
    found = objective(table, problem, solution.intercept, solution.coefficients, penalised)
    return found / least - 1


class Spy:
    """A federation that notes every call of a step with its reply."""

    def __init__(self, fed, step, notes):
        self._fed, self._step, self._notes = fed, step, notes

    def __getattr__(self, name):
        return getattr(self._fed, name)

    def only(self, sites):
        return Spy(self._fed.only(sites), self._step, self._notes)

    def awaiting(self, fewest=None):
        return Spy(self._fed.awaiting(fewest), self._step, self._notes)

    def sum(self, step, **given_):
        reply = self._fed.sum(step, **given_)
        if step.name == self._step:
            self._notes.append((given_, reply))
        return reply
