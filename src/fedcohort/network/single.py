"""A line to one party alone, made of a function that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fedcohort.runtime.line import Line, Silence


class Single(Line):
    """A `Line` to one party, made of a function that asks it; a lead's to the coordinator.

    Parameters
    ----------
    name : the party's, as in its certificate.
    ask : gives the party a request, and waits so many seconds for its reply.
    connected : whether the party can be reached now.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[bytes, float], bytes | Silence],
        connected: Callable[[], bool] = lambda: True,
    ):
        self._name, self._ask, self._connected = name, ask, connected

    @property
    def sites(self) -> Sequence[str]:
        """The party's name."""
        return (self._name,)

    @property
    def connected(self) -> frozenset[str]:
        """The party's name, if it can be reached now."""
        return frozenset((self._name,)) if self._connected() else frozenset()

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Ask the party; any other name is not connected."""
        for name, blob in requests.items():
            if name == self._name:
                yield name, self._ask(blob, timeout)
            else:
                yield name, Silence(f"{name}: is not connected", late=False)
