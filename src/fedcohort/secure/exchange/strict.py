"""Strict readers for the messages of masked sums.

Every reader returns a JSON value in its type, or raises `Refused("secure")`. Sizes are bounded, so
that no peer can make another hold more than a sum of `MEMBERS` sites needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fedcohort.protocol.errors import Refused
from fedcohort.secure.context import refused

#: The most slots of an epoch, and sites of a sum.
SLOTS, MEMBERS = 256, 128


def _malformed(what: str) -> Refused:
    return refused(f"a message of the masked sum is malformed: {what}. Update both ends.")


def as_keys(meta: Any, *keys: str) -> dict[str, Any]:
    """Return a mapping of exactly these keys."""
    if not isinstance(meta, dict) or meta.keys() != set(keys):
        raise _malformed(f"not the keys {', '.join(keys)}")
    return cast("dict[str, Any]", meta)


def as_mapping(value: Any) -> dict[Any, Any]:
    """Return a mapping by site."""
    if not isinstance(value, dict) or len(value) > MEMBERS:
        raise _malformed("no mapping by site")
    return cast("dict[Any, Any]", value)


def as_list(value: Any) -> list[Any]:
    """Return a list with one entry a site."""
    if not isinstance(value, list) or len(value) > MEMBERS:
        raise _malformed("no list of sites")
    return cast("list[Any]", value)


def as_text(value: Any) -> str:
    """Return a name or digest, of 1 to 256 characters."""
    if type(value) is not str or not 0 < len(value) <= 256:
        raise _malformed("a name or digest that is none")
    return value


def as_names(value: Any) -> tuple[str, ...]:
    """Return sites' names."""
    return tuple([as_text(v) for v in as_list(value)])


def as_count(value: Any, most: int = 2**53) -> int:
    """Return a whole number from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise _malformed("a count out of range")
    return value


def as_number(value: Any) -> float:
    """Return a number that is below 1e300 in absolute value."""
    if type(value) not in (int, float) or not abs(value) < 1e300:  # an int may be beyond floats
        raise _malformed("a weight that is no number")
    return float(value)


def as_bytes(value: Any, size: int | None = None) -> bytes:
    """Return bytes that were told in hex, `size` of them where it is given."""
    try:
        if type(value) is not str or (size is not None and len(value) != 2 * size):
            raise ValueError
        found = bytes.fromhex(value)  # which skips blanks and then returns fewer bytes
        if 2 * len(found) != len(value):
            raise ValueError
        return found
    except ValueError:
        length = "bytes" if size is None else f"{size} bytes"
        raise _malformed(f"not {length} in hex") from None


def as_pieces(value: Any) -> tuple[bytes, ...]:
    """Return pieces of 32 bytes, one a slot."""
    whole = as_bytes(value)
    if not 0 < len(whole) <= 32 * SLOTS or len(whole) % 32:
        raise _malformed("keys that are not of 32 bytes, one for each slot")
    return tuple([whole[i : i + 32] for i in range(0, len(whole), 32)])


def hexed(parts: Mapping[str, bytes]) -> dict[str, str]:
    """Return bytes by site as `as_parts` reads them."""
    return {name: part.hex() for name, part in parts.items()}


def as_parts(value: Any, size: int | None = None) -> dict[str, bytes]:
    """Return bytes by site, each of `size` where it is given."""
    return {as_text(name): as_bytes(part, size) for name, part in as_mapping(value).items()}
