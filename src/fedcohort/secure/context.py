"""What the keys, masks and signatures of masked sums are bound to: a context, and digests of parts.

A digest is SHA-256 of the one JSON text of its parts, so that all sites and the coordinator find
the same. Nothing here is secret.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedcohort.protocol.errors import Refused

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def refused(text: str) -> Refused:
    """Return the error of this package."""
    return Refused("secure", text)


def digest(*parts: Any) -> str:
    """Return a SHA-256 digest, in hex, of JSON-able parts."""
    return hashlib.sha256(canonical(parts)).hexdigest()


def canonical(value: Any) -> bytes:
    """Return the one text of a JSON-able value."""
    return _CANONICAL(value).encode()


@dataclass(frozen=True)
class Context:
    """Where keys and masks belong; nothing made under one context is of use under another.

    Attributes
    ----------
    run, session, history : of the calls, as in their requests.
    roster : the public identity keys of all sites of the study, by name; pinned.
    """

    run: str
    session: str
    history: str
    roster: Mapping[str, bytes]

    @cached_property
    def mark(self) -> str:
        """The digest of all of it."""
        roster = {name: key.hex() for name, key in self.roster.items()}
        return digest("fedcohort secure sum 1", self.run, self.session, self.history, roster)

    @cached_property
    def salt(self) -> bytes:
        """The same as bytes, for keys that are made before the members are known."""
        return bytes.fromhex(self.mark)
