"""A lower bound of ε from one run: canaries take part by coin flips, an auditor guesses the flips.

Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, section 6
(white box), Theorem 5.2 and Appendix D. Canary i has a gradient g_i (P,) orthogonal to those of all
others and at least as long as the clip C, so its contribution to a sum is in one coordinate. The
auditor's score is

    s_i = Σ_t ⟨g_i/‖g_i‖, y_t⟩                                                             (1)

over the released noisy sums y_t. The k highest scores are guessed to be in, the k lowest out, the
others left open; k is fixed beforehand.

A mechanism is any function from who is in, (m,) bool, to its releases: (T, P).

Each of m canaries takes part by a fair coin. From the releases of mechanism M an auditor guesses r
of the coins, abstains from the others, and is right v times. If M is (ε, δ)-DP for a record added
or removed, then with q = e^ε/(1 + e^ε) and B ~ Binomial(r, q),

    P[V ≥ v] ≤ p(ε) = P[B ≥ v] + 2 m δ max_{1≤i≤v} P[v − i ≤ B < v]/i                      (2)

for any auditor. p rises with ε. So the largest ε with p(ε) < β is refuted with confidence 1 − β,
and the true ε is above it:

    ε_low = sup {ε ≥ 0: p(ε) < β}, or 0                                                    (3)

The number and rule of guesses are fixed before the coins are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedcohort.arrays import Array

#: Largest distinguished ε: e^40 is no privacy.
MOST = 40.0


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return p(ε), eq. (2): the probability of v right guesses or more is at most this.

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
    """Return ε_low, eq. (3), at confidence 1 − β; from below, to 1e-6."""
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


#: From who is in (m,) to the noisy sums of T steps, of which the first m coordinates are those of
#: the canaries: (T, P ≥ m).
Release = Callable[[Array], Array]


@dataclass(frozen=True)
class Game:
    """What an auditor found in one run.

    Attributes
    ----------
    canaries, guesses, right : m, r, v.
    epsilon_low : the bound that they give, at confidence `confidence`.
    claim, delta : the (ε, δ) that is audited.
    """

    canaries: int
    guesses: int
    right: int
    epsilon_low: float
    claim: float
    delta: float
    confidence: float = 0.95

    @property
    def refuted(self) -> bool:
        """Whether the claim cannot be true, but for an accident of probability 1 − confidence."""
        return self.epsilon_low > self.claim


def play(
    release: Release,
    canaries: int,
    guesses: int,
    claim: float,
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Game:
    """Toss the coins, run the mechanism once, guess, and bound ε.

    Parameters
    ----------
    guesses : r, an even number ≤ m: half of them "in", half "out".
    rng : of the coins alone; the mechanism has noise of its own.

    Raises
    ------
    ValueError : more guesses than canaries, or a release without a coordinate for each.
    """
    if not 0 < guesses <= canaries or guesses % 2:
        raise ValueError(f"{guesses} guesses of {canaries} canaries: give an even number of those.")
    coins = rng.random(canaries) < 0.5
    released = np.atleast_2d(np.asarray(release(coins), float))
    if released.shape[1] < canaries:
        raise ValueError(f"a release of {released.shape[1]} numbers for {canaries} canaries.")
    order = np.argsort(released[:, :canaries].sum(0), kind="stable")
    k = guesses // 2
    right = int(coins[order[-k:]].sum() + (~coins[order[:k]]).sum())
    low = lower_bound(canaries, guesses, right, delta, 1.0 - confidence)
    return Game(canaries, guesses, right, low, claim, delta, confidence)
