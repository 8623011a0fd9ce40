"""Maximum likelihood fit of an inverse gamma distribution to variances.

Llera and Beckmann (2016), method ML1: for v_1, …, v_C, with a = mean(ln v) and b = mean(1/v),

    ln α − ψ(α) = a + ln b,   β = α / b                                                    (1)

If all v are equal the right side is 0, and the left side falls from ∞ to 0, so α is limited to
`MOST`. Two sums of the variances are enough.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, polygamma

from fedcohort.arrays import Array

#: Largest α: a spread of 1/√α, 1 % of the variance.
MOST = 1e4


def most_likely(log_mean: Array, inverse_mean: Array) -> tuple[Array, Array]:
    """Return α and β, each shaped like `log_mean`.

    Parameters
    ----------
    log_mean : mean of ln v.
    inverse_mean : mean of 1/v.
    """
    gap = np.asarray(log_mean + np.log(inverse_mean), float)
    low = np.log(MOST) - digamma(MOST)
    right = np.maximum(gap, low)
    # Minka's start for the gamma distribution, then Newton's method in ln α
    alpha = (3.0 - right + np.sqrt(np.square(right - 3.0) + 24.0 * right)) / (12.0 * right)
    for _ in range(30):
        off = np.log(alpha) - digamma(alpha) - right
        slope = 1.0 - alpha * polygamma(1, alpha)
        alpha = alpha * np.exp(-off / slope)
    alpha = np.minimum(alpha, MOST)
    return alpha, alpha / inverse_mean
