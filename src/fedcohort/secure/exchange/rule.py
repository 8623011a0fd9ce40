"""A site's own rules of masked sums: the threshold, and one answer to one question.

With n sites of a study, c of which collude with the coordinator, two sets of survivors for one slot
need 2t - n > c, as does one site's reply (t shares of both its secrets). The default t = ⌈2n/3⌉
holds against fewer than n/3 and allows a third of the sites to be away. n is the roster that a
coordinator names, and `least` a bound that it cannot lower; with `least` = n no two sums differ by
a site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedcohort.secure.context import digest, refused
from fedcohort.secure.exchange.messages import FEWEST
from fedcohort.secure.exchange.strict import MEMBERS


@dataclass(frozen=True, kw_only=True)
class ThresholdRule:
    """Number of sites that must agree before a sum is unmasked.

    Attributes
    ----------
    part, whole : t ≥ n·part/whole, 2/3 by default; t > n/2 in any case.
    least : t ≥ least.
    """

    part: int = 2
    whole: int = 3
    least: int = 2

    def of(self, n: int) -> int:
        """Return the threshold t among the n sites of a study.

        Raises
        ------
        Refused : fewer than three sites, or a rule that n sites cannot meet.
        """
        if not FEWEST <= n <= MEMBERS:
            raise refused(
                f"a masked sum over {n} sites; it needs {FEWEST} to {MEMBERS}. Ask more sites to "
                f"join, or set privacy.secure_aggregation to false."
            )
        if not 0 < self.part <= self.whole:
            raise refused(f"a threshold of {self.part}/{self.whole} of the sites; give at most 1.")
        t = max(-(-n * self.part // self.whole), n // 2 + 1, self.least)
        if t > n:
            raise refused(f"a threshold of {t} among {n} sites. Lower the rule's `least`.")
        return t


class Settled(Protocol):
    """A site's record, over restarts, of the sites and weights of each answered question.

    It is written when the site signs these, before the signature leaves.
    """

    def get(self, question: str) -> str | None:
        """Return the terms of a question's first answer; None: it was not answered."""
        ...

    def settle(self, question: str, terms: str) -> str:
        """Return the terms of a question's first answer; durably write these if there are none."""
        ...


class InMemory:
    """`Settled` for sites that live in one process and no longer than it."""

    def __init__(self) -> None:
        self._terms: dict[str, str] = {}

    def get(self, question: str) -> str | None:
        """Return the terms of a question's first answer."""
        return self._terms.get(question)

    def settle(self, question: str, terms: str) -> str:
        """Return the terms of a question's first answer, which are these if there are none."""
        return self._terms.setdefault(question, terms)


def terms(survivors: Sequence[str], weights: Mapping[str, float] | None) -> str:
    """Return the digest of the sites in a sum and of their weights."""
    used = None if weights is None else {name: weights[name] for name in survivors}
    return digest("terms", sorted(survivors), used)
