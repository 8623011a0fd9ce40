"""Which records an attacker's guesses give away.

A record counts as recovered if, in the pairing of guesses with records that has the least total
error (Hungarian method), its guess x̂ is within 5 % of it and nearer to it than any other, different
record of the batch is:

    ‖x̂ − x‖ < 0.05 ‖x‖   and   ‖x̂ − x‖ < min_{x' ≠ x} ‖x' − x‖                             (1)

in the scaled features that the network sees. An attacker may make more guesses than there are
records: all are tried against the truth, which favours the attacker. So the same guesses are tried
against records that were not in the batch as well, and what they "recover" there is chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcohort.arrays import Array

#: Largest ‖x̂ − x‖/‖x‖ of a recovered record.
CLOSE = 0.05


@dataclass(frozen=True)
class Match:
    """How near guesses came to records: relative error (B,), and which are recovered (B,) bool."""

    error: Array
    recovered: Array

    @property
    def count(self) -> int:
        """Number of records recovered."""
        return int(self.recovered.sum())


def match(guesses: Array, records: Array) -> Match:
    """Pair guesses (G, p) with records (B, p), eq. (1); G may be 0, or more than B."""
    error = np.full(len(records), np.inf)
    if not len(guesses) or not len(records):
        return Match(error, np.zeros(len(records), bool))
    apart = cdist(records, guesses)
    size = np.maximum(np.linalg.norm(records, axis=1), 1e-12)
    capped = np.minimum(apart / size[:, None], 10.0)
    mine, theirs = linear_sum_assignment(capped)
    error[mine] = apart[mine, theirs] / size[mine]
    between = cdist(records, records)
    other = np.where(between > 1e-9, between, np.inf).min(1)
    return Match(error, (error < CLOSE) & (error * size < other))
