"""The ledger: one line for every site and call, with what left the site.

Lines hold names, shapes, types and sizes, never a number that was sent. They are written as
JSON text at once, because a run writes tens of thousands of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from fedcohort.arrays import Array
from fedcohort.protocol.private import Spent


class Ledger:
    """Lines of one run, in the order of its calls.

    Parameters
    ----------
    min_cell : smallest count that a cell may have; stated on each line.

    Attributes
    ----------
    lines : JSON text, one for each call and site.
    bytes_up : bytes that each site sent.
    bytes_down : bytes that all sites were sent: arguments, and each new view once.
    """

    def __init__(self, min_cell: int = 5):
        self.lines: list[str] = []
        self.bytes_up: dict[str, int] = {}
        self.bytes_down = 0
        self._cell = f'"min_cell":{min_cell}'
        self._fields: dict[tuple[object, ...], tuple[str, int]] = {}
        self._names: dict[str, str] = {}

    def sent(self, size: int) -> None:
        """Add `size` bytes that the coordinator sent to sites."""
        self.bytes_down += size

    def write(
        self,
        call: int,
        round_: int,
        step: str,
        verb: str,
        sites: Iterable[str],
        arrays: Mapping[str, Array],
        *,
        masked: bool = False,
        spent: Spent | None = None,
    ) -> int:
        """Write that each of `sites` sent a reply of this shape in this call; return its bytes.

        Parameters
        ----------
        masked : whether the coordinator saw only the sum of the replies.
        spent : noise in the reply, and the privacy that the fit has spent so far.
        """
        key = (step, *((k, a.shape, a.dtype.str) for k, a in arrays.items()))
        known = self._fields.get(key)
        if known is None:
            fields = {
                k: {"shape": list(a.shape), "dtype": a.dtype.name, "bytes": a.nbytes}
                for k, a in arrays.items()
            }
            known = (
                json.dumps(fields, separators=(",", ":")),
                sum(a.nbytes for a in arrays.values()),
            )
            self._fields[key] = known
        text, size = known
        noise = '"mechanism":null,"epsilon":null,"delta":null'
        if spent is not None:
            noise = (
                f'"mechanism":"{spent.mechanism}","epsilon":{spent.epsilon:.6g},'
                f'"delta":{spent.delta:.6g}'
            )
        tail = f'{self._cell},"masked":{"true" if masked else "false"},{noise}}}'
        head = f'{{"call":{call},"round":{round_},"step":"{step}","verb":"{verb}","site":'
        for site in sites:
            if (name := self._names.get(site)) is None:
                name = self._names[site] = json.dumps(site)
            self.lines.append(f'{head}{name},"fields":{text},{tail}')
            self.bytes_up[site] = self.bytes_up.get(site, 0) + size
        return size
