"""Interface of an engine: it carries bytes to named sites and brings bytes back.

Everything above it (calls, strict decoding, seals, retries, recovery) is the same for all engines.
An engine's adapter is a `Line` at the coordinator, and at each site an adapter that passes every
request to an `Answering`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Largest size in bytes of a request or reply; and of a message, with seals and names.
LARGEST = 256 * 2**20
CARRIED = LARGEST + 2**20

#: A site's end of a line: request → reply. It never raises.
Answering = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Silence:
    """Reason for a missing reply: one line that may be shown, with nothing that the peer sent.

    Attributes
    ----------
    late : whether the request may have arrived, and may still have an effect.
    """

    text: str
    late: bool = True


class Line(Protocol):
    """A coordinator's end: carries one request to each of some sites."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites of the network, connected or not, sorted."""
        ...

    @property
    def connected(self) -> frozenset[str]:
        """Names of the sites that the engine can reach now."""
        ...

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Send each named site its request, all at once; yield replies as they come.

        Each of `requests` is yielded exactly once, within `timeout` seconds, and at once if the
        site is not connected. Several threads may call it at once.
        """
        ...
