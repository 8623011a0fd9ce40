"""The game of canaries: some take part by a coin, and an auditor guesses the coins.

Steinke et al. (2023), section 6 (white box). Canary i has a gradient of its own, g_i (P,), a
direction at right angles to those of all others, as long as the clip C or longer, so that whatever
is added to a sum for it is seen in one coordinate alone. The auditor's score is

    s_i = Σ_t ⟨g_i/‖g_i‖, y_t⟩                                                             (1)

over the noisy sums y_t that were released. The k highest scores are guessed to be in, the k lowest
out, and the others left open; k is fixed beforehand.

A mechanism is any function from who is in, (m,) bool, to what it released: (T, P).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.audit.one_run import lower_bound

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
