"""Tables with classes, and fits over sites, for the tests of `multinomial` and `ordinal`."""

from __future__ import annotations

from functools import cache

import numpy as np
import statsmodels.api as sm
from statsmodels.miscmodels.ordinal_model import OrderedModel

from fedcohort.algorithms.multinomial import METHOD, ORDINAL
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

METHODS = {"multinomial": METHOD, "ordinal": ORDINAL}
#: McCullagh & Nelder, "Generalized Linear Models", 2nd ed. 1989, table 5.1: tasters of four cheeses
#: by nine categories of response, from strong dislike to excellent.
CHEESES = [
    [0, 0, 1, 7, 8, 8, 19, 8, 1],
    [6, 9, 12, 11, 7, 6, 1, 0, 0],
    [1, 1, 6, 8, 23, 7, 5, 1, 0],
    [0, 0, 0, 1, 3, 7, 14, 16, 11],
]


@cache
def election():
    """Return the American national election study of 1996: seven parties' identifications."""
    data = sm.datasets.anes96.load_pandas().data
    x = data[["logpopul", "selfLR", "age", "educ", "income"]].to_numpy(float)
    return LabelledTable(x, data["PID"].to_numpy(int))


@cache
def cheeses():
    rows = [
        (k == np.arange(3), c) for k in range(4) for c in range(9) for _ in range(CHEESES[k][c])
    ]
    return LabelledTable(np.array([x for x, _ in rows], float), np.array([c for _, c in rows]))


def simulated(n=300, seed=0, classes=4, spread=0.8, weights=False):
    """Return ordered classes by cumulative logits; covariates in large units, normal and 0/1."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=n), rng.normal(size=n), rng.random(n) < 0.4])
    score = spread * (x @ [0.6, -0.4, 0.7]) + rng.logistic(size=n)
    y = np.searchsorted(np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1] ** 1.3), score)
    x[:, 0] = 1e4 + 500 * x[:, 0]
    return LabelledTable(x, y, rng.integers(1, 4, n) * 1.0 if weights else None)


def scattered(table, n_sites, seed=0):
    where = np.random.default_rng(seed).integers(0, n_sites, len(table.y))
    return split(table, where)


def split(table, where):
    """Return one table a site; `where` gives each record's site."""
    return [
        LabelledTable(*(None if c is None else c[where == k] for c in table))
        for k in np.unique(where)
    ]


def fit(method, parts, levels=None, features=None, min_cell=5, **settings):
    """Fit a method over tables, one a site."""
    entry = METHODS[method]
    features = features or tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    top = max(int(part.y.max()) for part in parts if len(part.y))
    task = Task(
        kind="classification", features=tuple(features), min_cell=min_cell, outcome="ordinal",
        levels=levels or tuple(f"c{k}" for k in range(top + 1)),
    )  # fmt: skip
    hosts = [Host(f"site-{k}", part, entry.steps) for k, part in enumerate(parts)]
    return entry.fit(local(hosts), entry.configure(settings), task)


def repeated(table):
    """Return each record as often as its weight says."""
    times = table.weight.astype(int)
    return LabelledTable(np.repeat(table.x, times, axis=0), np.repeat(table.y, times))


def standardised(table):
    """Return z, and the way back (k, k) for an intercept and coefficients of z."""
    centre, scale = table.x.mean(axis=0), table.x.std(axis=0)
    back = np.diag(np.r_[1.0, 1.0 / scale])
    back[0, 1:] = -centre / scale
    return (table.x - centre) / scale, back


def with_mnlogit(table):
    """Return statsmodels' (b, β) by class (K − 1, p + 1), its covariance, and ℓ."""
    z, back = standardised(table)
    found = sm.MNLogit(table.y, sm.add_constant(z)).fit(disp=0, maxiter=100, tol=1e-15)
    m = found.params.shape[1]
    turn = np.kron(np.eye(m), back)
    covariance = turn @ np.asarray(found.cov_params()) @ turn.T
    return np.asarray(found.params).T @ back.T, covariance, found.llf


def with_ordered_model(table):
    """Return statsmodels' thresholds, β, standard errors of β, and ℓ."""
    z, back = standardised(table)
    model = OrderedModel(table.y, z, distr="logit")
    rough = model.fit(method="bfgs", disp=0, maxiter=500, gtol=1e-8)
    found = model.fit(start_params=rough.params, method="newton", disp=0, maxiter=20)
    p = z.shape[1]
    scale = np.diag(back)[1:]
    beta = found.params[:p] * scale
    inner = model.transform_threshold_params(found.params)[1:-1]
    return inner - back[0, 1:] @ found.params[:p], beta, found.bse[:p] * scale, found.llf
