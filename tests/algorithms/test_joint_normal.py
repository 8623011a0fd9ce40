"""A multivariate normal over sites: EM's maximum, and draws of its parameters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from algorithms.imputing_cases import cohort, mixed
from fedcohort.algorithms.joint_normal.program import drawn
from fedcohort.numerics import gaussian


def normal(n: int, seed: int, share: float = 0.3) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    root = np.array([[1, 0, 0], [0.7, 0.7, 0], [0.5, 0.2, 0.8]])
    full = pd.DataFrame(rng.standard_normal((n, 3)) @ root.T, columns=list("xyz"))
    return full, full.mask(rng.random(full.shape) < share)


NUMBERS = {c: {"type": "number"} for c in "xyz"}


def test_it_fills_in_as_impute_iterative_does():
    """Both are EM of the same likelihood; that of the preprocessing is tested on its own."""
    _, holes = normal(90, 0, share=0.15)
    fed = cohort(holes, **NUMBERS)
    ours = fc.fit("joint_normal", fed, draws=0).impute(holes)
    design = fc.fit("kmeans", fed, impute="iterative", n_clusters=2).parts.design
    theirs = design.table(design.matrix(holes))
    # both stop at a change of 1e-6 standard deviations, with a rate of at most 0.9
    assert_allclose(ours[list("xyz")].to_numpy(), theirs[list("xyz")].to_numpy(), atol=1e-4)


def test_the_posterior_without_missing_values_has_its_known_moments():
    """Σ ~ W⁻¹(n − 1, n S) has mean n S/(n − p − 2), and μ has covariance E[Σ]/n."""
    full, _ = normal(60, 1)
    x, n, p = full.to_numpy(), 60, 3
    rng = np.random.default_rng(0)
    pairs = [drawn(x.sum(axis=0), x.T @ x, n, rng) for _ in range(1500)]
    scatter = n * np.cov(x.T, bias=True)
    mean = np.mean([c for _, c in pairs], axis=0)
    assert_allclose(mean, scatter / (n - p - 2), atol=0.03)  # five standard errors
    assert_allclose(np.cov(np.array([m for m, _ in pairs]).T), mean / n, atol=0.004)


def test_draws_of_the_mean_spread_as_the_observed_information_says():
    """One column alone lacks values, completely at random: its mean's variance is known."""
    rng = np.random.default_rng(2)
    full, _ = normal(200, 2)
    holes = full.copy()
    holes.loc[rng.random(200) < 0.4, "y"] = np.nan
    fit = fc.fit("joint_normal", cohort(holes, **NUMBERS), draws=80)
    column = fit.parts.design.columns[1]
    spread = fit.model.draws.mean[:, 1].std() * column.scale
    known = holes["y"].notna()
    z = np.column_stack([np.ones(200), full[["x", "z"]]])
    beta = np.linalg.lstsq(z[known], full["y"][known], rcond=None)[0]
    rest = (full["y"][known] - z[known] @ beta).var()
    # Anderson 1957: var of the regression estimate of a mean
    wanted = np.sqrt(rest / known.sum() + (z @ beta).var() / 200)
    assert_allclose(spread, wanted, rtol=0.25)  # 80 draws give an sd to 8 %, of which three


def test_drawn_entries_have_the_conditional_covariance():
    mean = np.array([1.0, -1.0, 0.5])
    covariance = np.array([[1.0, 0.6, 0.3], [0.6, 2.0, 0.5], [0.3, 0.5, 1.5]])
    x = np.tile([np.nan, np.nan, 2.0], (6000, 1))
    found = gaussian.filled(x, mean, covariance, np.random.default_rng(0))
    pull = covariance[:2, 2] / covariance[2, 2]
    assert_allclose(found[:, :2].mean(axis=0), mean[:2] + pull * 1.5, atol=0.07)
    wanted = covariance[:2, :2] - np.outer(pull, covariance[2, :2])
    assert_allclose(np.cov(found[:, :2].T), wanted, atol=0.12)
    assert_allclose(
        gaussian.conditional_sd(x[:1], covariance)[0], [*np.sqrt(np.diag(wanted)), 0.0], atol=1e-12
    )


def test_drawn_values_are_levels_and_whole_numbers(tmp_path):
    _, holes = mixed(100, 3, share=0.15)
    fit = fc.fit("joint_normal", cohort(holes), draws=3)
    x = fit.parts.design.matrix(holes)
    found = fit.model.impute_drawn(x, np.random.default_rng(0))
    assert (found[~np.isnan(x)] == x[~np.isnan(x)]).all()
    hot = found[:, next(h.at for h in fit.model.heads if h.kind == "categorical")]
    assert set(np.unique(hot)) <= {0.0, 1.0} and hot.sum(axis=1).max() <= 1
    fit.save(tmp_path / "m")
    again = fc.load(tmp_path / "m").model.impute_drawn(x, np.random.default_rng(0))
    assert (again == found).all()


def test_without_draws_there_is_no_multiple_imputation_and_too_few_rows_are_named():
    _, holes = normal(60, 4)
    fit = fc.fit("joint_normal", cohort(holes, **NUMBERS), draws=0)
    with pytest.raises(fc.NotSupported, match="draws: 10"):
        fit.model.impute_drawn(fit.parts.design.matrix(holes), np.random.default_rng(0))
    wide = pd.DataFrame(np.random.default_rng(0).standard_normal((12, 14)))
    wide.columns = [f"c{j}" for j in wide]
    with pytest.raises(fc.FedcohortError, match=r"12 rows .* too few for a normal distribution"):
        fc.fit("joint_normal", cohort(wide, 1, **{c: {"type": "number"} for c in wide}))
