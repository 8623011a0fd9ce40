"""What an engine must do for a network: carry bytes to named sites and bring bytes back.

Everything above it (calls, strict decoding, seals, retries, recovery) is the same on all engines
and knows none of them; an engine's adapter is a `Line` at the coordinator, and at each site
something that gives every request to an `Answering`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Bytes of the largest request or reply; and of the largest message, which seals and names make
#: longer.
LARGEST = 256 * 2**20
CARRIED = LARGEST + 2**20

#: A site's end of a line: a request to its reply. It never raises.
Answering = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Silence:
    """Why there is no reply: one line that may be shown, without anything the peer said.

    Attributes
    ----------
    late : whether the request may have arrived, and its effect may come later.
    """

    text: str
    late: bool = True


class Line(Protocol):
    """A coordinator's end: what carries one request to each of some sites."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites of the network, connected or not, sorted."""
        ...

    @property
    def connected(self) -> frozenset[str]:
        """Names of the sites that can be reached now, as far as the engine knows."""
        ...

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Send each named site its request, all at once; yield replies as they come.

        Each of `requests` is yielded exactly once, at the latest after `timeout` seconds. A site
        that is not connected is yielded at once. It may be called from several threads at once.
        """
        ...
