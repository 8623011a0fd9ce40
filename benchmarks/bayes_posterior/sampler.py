"""Moments of a logistic regression's posterior by NUTS, for `run.py`, which calls it.

    PYTHON sampler.py IN.npz OUT.npz

PYTHON has numpyro (and so jax); fedcohort is not needed. IN: `z` (n, k), `y` (n,) of 0 and 1,
`prior` (k,) precisions of the coefficients γ, `seed`, `chains`, `warmup` and `draws`, and a point
`start` (k,) with a covariance `spread` (k, k), which only make chains move well: NUTS samples u,
γ = start + L u with L Lᵀ = spread, in double precision. OUT: mean and sd (k,) of γ, their Monte
Carlo standard errors, quantiles 2.5 and 97.5 % (2, k), split R-hat and effective sample size (k,).

Hoffman & Gelman, "The No-U-Turn Sampler", JMLR 15, 2014. The error of a mean is sd/√ESS, with the
effective sample size of all chains (Gelman et al., BDA3, section 11.5); that of an sd is the error
of the mean of (γ − mean)², divided by 2 sd.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import ImproperUniform, constraints
from numpyro.infer import MCMC, NUTS


def model(signed, start, turn, prior):
    """The posterior of u; `signed` (n, k) is ±z by the class."""
    u = numpyro.sample("u", ImproperUniform(constraints.real_vector, (), prior.shape))
    g = start + turn @ u
    fit = -jnp.logaddexp(0.0, -(signed @ g)).sum()
    numpyro.factor("rows_and_prior", fit - 0.5 * (prior * g * g).sum())


def main() -> int:
    """Sample, and write the moments."""
    jax.config.update("jax_enable_x64", True)
    given = np.load(sys.argv[1])
    start, prior = given["start"], given["prior"]
    turn = np.linalg.cholesky(given["spread"])
    signed = given["z"] * np.where(given["y"] > 0, 1.0, -1.0)[:, None]
    chains = int(given["chains"])
    run = MCMC(
        NUTS(model), num_warmup=int(given["warmup"]), num_samples=int(given["draws"]),
        num_chains=chains, chain_method="vectorized", progress_bar=False, jit_model_args=True,
    )  # fmt: skip
    one, two = jax.random.split(jax.random.PRNGKey(int(given["seed"])))
    first = {"u": 2.0 * jax.random.normal(one, (chains, len(prior)))}  # wide, so R-hat can tell
    run.run(two, *map(jnp.asarray, (signed, start, turn, prior)), init_params=first)
    g = start + np.asarray(run.get_samples(group_by_chain=True)["u"]) @ turn.T
    flat = g.reshape(-1, len(prior))
    mean, sd = flat.mean(axis=0), flat.std(axis=0)
    square = (g - mean) ** 2
    size, of_square = (np.asarray(effective_sample_size(v)) for v in (g, square))
    np.savez(
        sys.argv[2],
        mean=mean,
        sd=sd,
        mean_error=sd / np.sqrt(size),
        sd_error=square.reshape(flat.shape).std(axis=0) / np.sqrt(of_square) / (2.0 * sd),
        quantiles=np.quantile(flat, [0.025, 0.975], axis=0),
        size=size,
        r_hat=np.asarray(split_gelman_rubin(g)),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
