"""`huber` over sites minimises the pooled loss: the reference is a general minimiser."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import fedcohort as fc


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal([50, 0], [10, 1], (n, 2))
    y = 0.1 * x[:, 0] - x[:, 1] + rng.standard_t(2, n)
    return pd.DataFrame({"age": x[:, 0], "marker": x[:, 1], "y": y, "site": np.arange(n) % 3})


def test_coefficients_are_those_of_the_pooled_loss():
    frame = table()
    fed = fc.simulate(frame, sites="site", outcome=fc.Continuous("y"))
    fit = fc.fit("huber", fed)
    x, y = frame[["age", "marker"]].to_numpy(), frame["y"].to_numpy()
    z, k = np.column_stack([np.ones(len(y)), (x - x.mean(axis=0)) / x.std(axis=0)]), 1.345 * y.std()

    def slope(gamma):
        return -z.T @ np.clip(y - z @ gamma, -k, k)

    def loss(gamma):
        r = np.abs(y - z @ gamma)
        return np.where(r <= k, r**2 / 2, k * r - k**2 / 2).sum()

    best = minimize(loss, np.zeros(3), jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(fit.model.coefficients * x.std(axis=0), best[1:], rtol=1e-6)
    np.testing.assert_allclose(fit.predict(frame), z @ best, rtol=1e-6)
    assert (np.diff(fit.history["loss"]) <= 1e-12).all()


def test_collinear_covariates_are_named():
    frame = table().assign(twice=lambda t: 2 * t["age"])
    fed = fc.simulate(frame, sites="site", outcome=fc.Continuous("y"))
    with pytest.raises(fc.FedcohortError, match="'age', 'twice' are collinear"):
        fc.fit("huber", fed)
