"""Limits of a site's node, whatever a study says: sizes, and the smallest cell.

A refusal reveals the rules, the request or the reply's declared shape; no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.line import LARGEST


@dataclass(frozen=True)
class Limits:
    """A node's limits.

    Attributes
    ----------
    request_bytes, reply_bytes : largest request and reply.
    max_numbers : most array elements of a reply; None: no limit.
    min_cell : smallest `min_cell` of a step's arguments.
    """

    request_bytes: int = LARGEST
    reply_bytes: int = LARGEST
    max_numbers: int | None = None
    min_cell: int = 1

    def check_min_cell(self, site: str, arguments: Mapping[str, Any]) -> None:
        """Check that a step is asked with no smaller `min_cell`.

        Raises
        ------
        Refused : it is.
        """
        asked = arguments.get("min_cell", self.min_cell)
        if type(asked) not in (int, float) or not asked >= self.min_cell:
            raise Refused(
                "min_cell",
                f"site {site!r} tells of no cell below {self.min_cell} patients, and "
                f"is asked with a smaller min_cell. Raise privacy.min_cell of the study.",
            )

    def check_reply(self, site: str, step: str, arrays: Mapping[str, Array], reply: bytes) -> None:
        """Check a step's reply before it leaves.

        Parameters
        ----------
        reply : the bytes of `arrays`, as they would leave.

        Raises
        ------
        Refused : it has more numbers, or bytes, than are let out.
        """
        most, numbers = self.max_numbers, sum(a.size for a in arrays.values())
        if most is not None and numbers > most:
            raise Refused(
                "max_parameters",
                f"step {step} would tell {numbers} numbers of site {site!r}, whose "
                f"node lets out {most} at most (max_parameters). Choose a smaller model.",
            )
        if len(reply) > self.reply_bytes:
            raise Refused(
                "oversized",
                f"step {step} would send {len(reply)} bytes from site {site!r}, whose "
                f"node sends {self.reply_bytes} at most. Choose a smaller model.",
            )
