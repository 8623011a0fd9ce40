"""Tables for every family and link, a fit over sites, and statsmodels' fit of the pooled table."""

from __future__ import annotations

import warnings

import numpy as np
import statsmodels.api as sm

from fedcohort.algorithms.glm import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.families import FAMILIES, Family
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

PAIRS = [(family, link) for family, links in FAMILIES.items() for link in links]
LINKS = {
    "identity": sm.families.links.Identity,
    "log": sm.families.links.Log,
    "logit": sm.families.links.Logit,
    "probit": sm.families.links.Probit,
    "cloglog": sm.families.links.CLogLog,
    "sqrt": sm.families.links.Sqrt,
    "inverse": sm.families.links.InversePower,
}
LAWS = {
    "gaussian": sm.families.Gaussian,
    "binomial": sm.families.Binomial,
    "poisson": sm.families.Poisson,
    "gamma": sm.families.Gamma,
}


def simulated(family, link, n=400, seed=0, offset=False, weights=False):
    """Return records of a family, with a covariate in large units and one that is 0/1.

    With an offset x has it as its last column.
    """
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=n), rng.normal(size=n), rng.random(n) < 0.3])
    shift = rng.uniform(-0.4, 0.4, n) if offset else np.zeros(n)
    intercept = 3.0 if link in ("sqrt", "inverse", "identity") else 0.4
    mean = Family(family, link).inverse(intercept + x @ [0.3, -0.2, 0.4] + shift)
    draw = {
        "gaussian": lambda: mean + 0.7 * rng.normal(size=n),
        "binomial": lambda: (rng.random(n) < mean).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
        "gamma": lambda: rng.gamma(4.0, mean / 4.0),
    }
    y = draw[family]()
    x[:, 0] = 1e4 + 500 * x[:, 0]
    weight = rng.uniform(0.5, 3.0, n) if weights else None
    return LabelledTable(np.column_stack([x, shift]) if offset else x, y, weight)


def scattered(table, n_sites, seed=0):
    where = np.random.default_rng(seed).integers(0, n_sites, len(table.y))
    return [
        LabelledTable(*(None if c is None else c[where == k] for c in table))
        for k in range(n_sites)
    ]


def federation(parts, **options):
    hosts = [Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)]
    return local(hosts, **options)


def outcome_of(family):
    return {"binomial": "binary", "poisson": "count"}.get(family, "continuous")


def fit(parts, family, link="auto", features=None, fed=None, offset=False, **settings):
    """Fit `glm` over tables, one a site."""
    outcome = settings.pop("outcome", outcome_of(family))
    min_cell = settings.pop("min_cell", 5)
    features = features or tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    task = Task(
        kind="classification" if outcome == "binary" else "regression",
        features=tuple(features), outcome=outcome, offset=offset, min_cell=min_cell,
    )  # fmt: skip
    config = METHOD.configure({"family": family, "link": link, **settings})
    return METHOD.fit(fed or federation(parts), config, task)


def with_statsmodels(table, family, link, offset=False):
    """Return statsmodels' fit, in standard deviations on the way, and the way back.

    With starting values near the truth, which some links need, and by a tolerance so small that
    standard errors are of the last coefficients.
    """
    x = table.x[:, :-1] if offset else table.x
    centre, scale = x.mean(axis=0), x.std(axis=0)
    z = sm.add_constant((x - centre) / scale)
    start = np.zeros(z.shape[1])
    start[0] = 3.0 if link in ("sqrt", "inverse", "identity") else 0.4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sm.GLM(
            table.y, z, family=LAWS[family](link=LINKS[link]()),
            offset=table.x[:, -1] if offset else None, var_weights=table.weight,
        )  # fmt: skip
        found = model.fit(start_params=start, maxiter=200, tol=1e-14, tol_criterion="params")
        null = found.null_deviance
    back = np.diag(np.r_[1.0, 1.0 / scale])
    back[0, 1:] = -centre / scale
    covariance = back @ found.cov_params() @ back.T
    return found, back @ found.params, np.sqrt(np.diag(covariance)), null
