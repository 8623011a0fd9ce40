"""Transport of the coordinator's calls to the sites: the interface that a runtime supplies.

Revealed: nothing here; see `coordinator` for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SiteUnavailable
from fedcohort.protocol.host import Call
from fedcohort.runtime.journal import Entry


class Transport(Protocol):
    """Carries one call to the sites."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites that can be asked."""
        ...

    @property
    def masks(self) -> bool:
        """Whether sums are masked, so that nobody sees a single reply; see `total`."""
        ...

    @property
    def alone(self) -> bool:
        """Whether there is one site, in this process, whose own model is fitted; see `local`."""
        ...

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """Yield each site's reply, or why there is none, in the order of `to`."""
        ...

    def total(self, call: Call, to: Sequence[str], weights: Mapping[str, float]) -> Entry:
        """Return the sum of masked replies, and the sites in it in the order of `to`.

        With fewer than `call.least` sites nothing is unmasked, and there is no sum.

        Parameters
        ----------
        weights : by site; 1 if absent.

        Raises
        ------
        QuorumLost : too few sites for a sum that hides each of them; nothing is revealed.
        Refused : "secure": a site refuses to mask, or to reveal the sum.
        """
        ...

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """Put every site into its state before `call`, the first that is asked.

        Parameters
        ----------
        call : number 0 in a new run, where no site has a state.
        kept : by site, the number of the last call that left a state that counts; the caller keeps
            it up to
            date.

        Raises
        ------
        JournalMismatch : a site has lost that state, or is ahead of the journal.
        """
        ...


@runtime_checkable
class Waiting(Protocol):
    """A transport that knows for how long sites stay away."""

    def wait(self, call: Call, to: Sequence[str]) -> int:
        """Let rounds pass until enough of `to` are present for `call`; return how many passed."""
        ...
