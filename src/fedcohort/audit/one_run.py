"""A lower bound of ε from one run, by counting right guesses of who was in it.

Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 5.2
and Appendix D. Each of m canaries takes part by a fair coin. From what the mechanism M released, an
auditor guesses r of the coins, abstains from the others, and is right v times. If M is (ε, δ)-DP
for a record that is added or taken away, then with q = e^ε/(1 + e^ε) and B ~ Binomial(r, q),

    P[V ≥ v] ≤ p(ε) = P[B ≥ v] + 2 m δ max_{1≤i≤v} P[v − i ≤ B < v]/i                      (1)

whatever the auditor does. p rises with ε. So the largest ε with p(ε) < β is refuted with
confidence 1 − β, and the true ε is above it:

    ε_low = sup {ε ≥ 0: p(ε) < β}, or 0                                                    (2)

How many guesses are made, and by which rule, is fixed before the coins are looked at.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

#: No ε above this is told apart from it: e^40 is as good as no privacy.
MOST = 40.0


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return p(ε), eq. (1): the probability of v right guesses or more is at most this.

    Parameters
    ----------
    m, r, v : canaries, guesses, right guesses; 0 ≤ v ≤ r ≤ m.

    Raises
    ------
    ValueError : numbers that are none of this game.
    """
    if not (0 <= v <= r <= m and epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError(
            f"m, r, v = {m}, {r}, {v}, ε = {epsilon}, δ = {delta}: give 0 ≤ v ≤ r ≤ m, ε ≥ 0 and "
            f"0 ≤ δ ≤ 1."
        )
    q = 1.0 / (1.0 + np.exp(-epsilon))
    tail = float(stats.binom.sf(v - 1, r, q))
    if not v or not delta:
        return min(tail, 1.0)
    below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, q))
    return min(1.0, tail + 2 * m * delta * float((below / np.arange(1, v + 1)).max()))


def lower_bound(m: int, r: int, v: int, delta: float, beta: float = 0.05) -> float:
    """Return ε_low, eq. (2), at confidence 1 − β; from below, to 1e-6."""
    if p_value(m, r, v, 0.0, delta) >= beta:
        return 0.0
    if p_value(m, r, v, MOST, delta) < beta:
        return MOST
    low, high = 0.0, MOST
    while high - low > 1e-6:
        middle = (low + high) / 2
        if p_value(m, r, v, middle, delta) < beta:
            low = middle
        else:
            high = middle
    return low
