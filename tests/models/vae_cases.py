"""Variational autoencoders put together from known weights, and rows with missing entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.likelihoods import FLOOR
from fedcohort.models.mcvae import Mcvae
from fedcohort.models.network import FlatNet, initial, network
from fedcohort.models.vae import Vae


def loaded(spec: Vae | Mcvae, theta: Array) -> FlatNet:
    """Return the network at θ (P,)."""
    net = network(spec.spec)
    net.load(theta)
    return net


def some_theta(spec: Vae | Mcvae, seed: int, size: float = 0.3) -> Array:
    """Return a θ (P,) all of whose entries differ from 0."""
    return initial(spec.spec, seed) + size * np.random.default_rng(seed).normal(size=spec.size)


def some_rows(n: int, p: int, seed: int, missing: float = 0.25) -> Array:
    """Return rows (n, p) with missing entries; the last row has none known, the first all."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, p)) < missing, np.nan, rng.normal(size=(n, p)))
    x[0], x[-1] = rng.normal(size=p), np.nan
    return x


def of(net: FlatNet, x: Array, what: Callable[[Any, torch.Tensor], torch.Tensor]) -> Array:
    """Return what a function makes of the module and the rows."""
    return net.compute(lambda module: what(module, torch.from_numpy(np.array(x, float))))


def elbos(net: FlatNet, x: Array, beta: float = 1.0, seed: int | None = None) -> Array:
    """Return the ELBO of each row."""
    return of(net, x, lambda module, rows: module.elbo(rows, beta, seed))


def linear_theta(w: Array, mean: Array, noise: Array) -> Array:
    """Return θ of the linear VAE x = Wz + μ + ε whose encoder is the exact posterior.

    With Ψ the noise's variances, m = (I + WᵀΨ⁻¹W)⁻¹ WᵀΨ⁻¹ (x − μ), and τ² are the diagonal of that
    inverse: exact where it has no other entries (Tipping and Bishop, 1999, eq. 7, for Ψ = σ²I).

    Parameters
    ----------
    w, mean, noise : W (p, q), μ (p,) and Ψ (p,).
    """
    covariance = np.linalg.inv(np.eye(w.shape[1]) + (w.T / noise) @ w)
    there = covariance @ (w.T / noise)
    parts = [
        there, -there @ mean,
        np.zeros(w.shape[::-1]), np.log(np.diag(covariance)),
        np.log(noise - FLOOR), w, mean,
    ]  # fmt: skip
    return np.concatenate([part.ravel() for part in parts])


def ppca(x: Array, q: int) -> tuple[Array, Array, float, float]:
    """Return W (p, q), μ (p,), σ² and the log-likelihood of all rows at the maximum.

    Tipping and Bishop, "Probabilistic principal component analysis", JRSS B 61(3), 1999, eqs. 14,
    15 and, at these, 9, without a rotation, so that WᵀW is diagonal.
    """
    n, p = x.shape
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = float(values[q:].mean())
    w = vectors[:, :q] * np.sqrt(values[:q] - noise)
    whole = p * np.log(2 * np.pi) + np.log(values[:q]).sum() + (p - q) * np.log(noise) + p
    return w, mean, noise, -0.5 * n * float(whole)


def factors(n: int, p: int, q: int, seed: int, noise: float = 0.4) -> Array:
    """Return rows (n, p) that q factors make, with noise of this standard deviation."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(p, q))
    return rng.normal(size=(n, q)) @ w.T + noise * rng.normal(size=(n, p))
