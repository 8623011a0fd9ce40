"""Differences of one site from a common model: in its patients, or in the measurement of a view.

Score tests at the common θ. With U = Σ C⁻¹(t − μ) the gradient of the log-likelihood in μ and J = Σ
C⁻¹ its information, over the present entries of the rows,

    latent   m̂ = (Wᵀ J W)⁻¹ WᵀU, the mean of its patients; χ²(q) = m̂ᵀ WᵀU                  (1)
    view k   without the part explained by m̂, Ũ = U − J W m̂ and J̃ = J − J W (Wᵀ J W)⁻¹ Wᵀ J:
             shift J̃_kk⁻¹ Ũ_k; χ²(df) = Ũ_kᵀ J̃_kk⁻¹ Ũ_k, df the rank of J̃_kk                (2)

(1) tests for different patients with the same measurement, (2) for a view with another offset,
whoever the patients are. The rank is d_k, or q less if the other views have too few columns to
separate the two. The noise of a view is the mean square of t − μ − Wx over its expected value at
the common θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths.em import solve
from fedcohort.algorithms.multiview_ppca.maths.model import Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern
from fedcohort.arrays import Array

#: Eigenvalues of J̃_kk below this share of J's largest entry are 0.
RANK = 1e-9


class Deviation(NamedTuple):
    """Differences of one site.

    ``latent`` (q,), the mean of its patients in standard deviations, with ``latent_chi2`` (); by
    view (K,), −1 for an absent one: ``shift``, root mean square of its columns' shifts over their
    common σ, ``chi2`` with ``df``, and ``noise``, the ratio of standard deviations.
    """

    latent: Array
    latent_chi2: float
    shift: Array
    chi2: Array
    df: Array
    noise: Array


def deviation(found: Sequence[Pattern], theta: Theta, views: Views) -> Deviation:
    """Return eqs. (1) and (2) for the rows of these patterns."""
    p, k = len(views.of), views.count
    slope, information = np.zeros(p), np.zeros((p, p))
    squares, expected = np.zeros(p), np.zeros(p)
    for one in found:
        c, n, s = one.columns, one.rows, solve(theta, one.columns, views)
        psi, off = theta.variance[views.noise[c]], one.mean - theta.mu[c]
        inverse = np.diag(1.0 / psi) - s.b.T @ s.a
        slope[c] += n * (inverse @ off)
        information[np.ix_(c, c)] += n * inverse
        # t − μ − W⟨x⟩ = Ψ C⁻¹ (t − μ), whose covariance is Ψ C⁻¹ Ψ; offsets aside
        residual = one.factor @ inverse * psi
        squares[c] += np.square(residual).sum(axis=0)
        expected[c] += (n - 1) * np.diag(inverse) * psi**2
    through = information @ theta.w
    inner, right = theta.w.T @ through, theta.w.T @ slope
    turn = np.linalg.pinv(inner, hermitian=True)
    latent = turn @ right
    slope, rest = slope - through @ latent, information - through @ turn @ through.T
    shift, chi2, noise, df = (np.full(k, -1.0) for _ in range(4))
    for view in range(k):
        at = np.flatnonzero((views.of == view) & (information.diagonal() > 0))
        if not len(at):
            continue
        values, vectors = np.linalg.eigh(rest[np.ix_(at, at)])
        fine = values > RANK * information[at, at].max()
        part = vectors[:, fine].T @ slope[at]
        off = vectors[:, fine] @ (part / values[fine])
        shift[view] = np.sqrt((np.square(off) / theta.variance[views.noise[at]]).mean())
        chi2[view], df[view] = float((part**2 / values[fine]).sum()), int(fine.sum())
        if (size := float(expected[at].sum())) > 0:
            noise[view] = np.sqrt(float(squares[at].sum()) / size)
    return Deviation(latent, max(float(latent @ right), 0.0), shift, chi2, df, noise)
