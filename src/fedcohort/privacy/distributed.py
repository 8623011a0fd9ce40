"""Gaussian noise in shares: each site adds a part, and only the secure sum has all of it.

Kairouz, Liu & Steinke, "The distributed discrete Gaussian mechanism for federated learning with
secure aggregation", ICML 2021. A sum of discrete Gaussians is none, but close to one: for n shares
of standard deviation σ (in grid units) they bound the log ratio of the two probabilities of any
value by

    τ = 10 Σ_{k=1}^{n−1} exp(−2π² σ² k / (k + 1))                                          (1)

and (proposition 14 of arXiv 2102.06387) the concentrated privacy of the sum, ½ε², of d numbers is

    ε = min { √(Δ₂²/nσ² + τd/2),  Δ₂/(√n σ) + τ√d }                                        (2)

A share is made by `mechanisms.perturb(..., share=t)` for the least number t of sites whose sum is
ever opened: with more of them there is more noise than was counted, never less. Sites that give
their own noise to a coordinator lower what is left by their part of it.
"""

from __future__ import annotations

import math

from fedcohort.protocol.errors import SettingError


def extra_divergence(shares: int, sigma: float) -> float:
    """Return τ of eq. (1): 0 to double precision from σ = 9 on.

    Parameters
    ----------
    sigma : of one share, in grid units; at least ½, where the bound is proved.

    Raises
    ------
    SettingError : fewer than one share; σ below ½.
    """
    if shares < 1 or not sigma >= 0.5:
        raise SettingError(f"{shares} shares of sigma {sigma:g}: at least 1, and 0.5 grid units")
    return 10 * math.fsum(
        math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, shares)
    )


def concentrated(shares: int, sigma: float, l2: float, dimension: int) -> float:
    """Return ε of eq. (2): the sum of shares has ½ε²-concentrated differential privacy.

    Parameters
    ----------
    sigma : of one share, in grid units.
    l2 : Δ₂ in grid units, rounding included.
    dimension : d, how many numbers are summed.
    """
    tau = extra_divergence(shares, sigma)
    plain = l2 / (math.sqrt(shares) * sigma)
    return min(math.sqrt(plain**2 + tau * dimension / 2), plain + tau * math.sqrt(dimension))


def least_noise(noise: float, share: int, honest: int) -> float:
    """Return the noise multiplier that is left when only `honest` of the sites keep theirs secret.

    Parameters
    ----------
    noise : z of the whole sum.
    share : t, the number of sites for which each site's part was made.
    honest : how many sites of the sum do not tell their noise to the coordinator.
    """
    if honest < 1 or share < 1:
        raise SettingError(f"{honest} honest sites of {share}: both must be at least 1")
    return noise * math.sqrt(honest / share)
