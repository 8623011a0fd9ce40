"""Encoding of named arrays as bytes, and decoding, without pickle.

Layout: 8 bytes length of the header, the header as JSON (`{"meta": …, "arrays": [[name, dtype,
shape], …]}`), then each array's bytes in C order, then CRC-32 of everything before it. `decode`
trusts nothing: it checks dtypes against a short list, byte counts, the checksum, and limits before
it allocates memory. It takes at most a small multiple of the record's size.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import FedcohortError
from fedcohort.protocol.message import DTYPES

_KINDS = {dtype.str[1:]: dtype for dtype in DTYPES}

#: Largest size of a header in bytes: JSON takes up to 20 times its size in memory.
HEADER = 8 * 2**20
#: Largest number of arrays in a record, of axes of an array, and of bytes by its shape.
ARRAYS, AXES, SPAN = 65_536, 32, 2**48


class Malformed(FedcohortError):
    """Bytes that are no record of named arrays."""


def encode(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> bytes:
    """Return named arrays and a JSON-able `meta` as one self-checking record.

    Raises
    ------
    Malformed : an array of another dtype than those that may leave a site.
    """
    return b"".join(parts_of(arrays, meta))


def parts_of(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the record of `encode` in parts; the parts of large arrays are their own memory."""
    parts = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    for name, a in parts.items():
        if a.dtype not in DTYPES:
            raise Malformed(f"array {name!r} has dtype {a.dtype}; a record holds numbers alone.")
    shapes = [[name, a.dtype.str[1:], list(a.shape)] for name, a in parts.items()]
    header = json.dumps({"meta": dict(meta or {}), "arrays": shapes}).encode()
    if len(header) > HEADER:
        raise Malformed(
            f"text of {len(header)} bytes; a record holds at most {HEADER}. Send arrays instead."
        )
    body: list[Any] = [struct.pack("<Q", len(header)), header]
    body += [a.data for a in parts.values() if a.size]
    mark = 0
    for part in body:
        mark = zlib.crc32(part, mark)
    return [*body, struct.pack("<I", mark)]


def decode(
    record: bytes, most: int | None = None, *, own: bool = True
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the meta of one record.

    Parameters
    ----------
    most : largest size of a record in bytes; None for no limit.
    own : whether the arrays have their own memory; otherwise they are read-only, unaligned parts of
        `record`, for a caller that copies them.

    Raises
    ------
    Malformed : a length, a dtype, a shape or the checksum is wrong.
    """
    if most is not None and len(record) > most:
        raise Malformed(f"a record of {len(record)} bytes; the limit is {most}.")
    try:
        whole = memoryview(record)
        (checksum,) = struct.unpack("<I", whole[-4:])
        if zlib.crc32(whole[:-4]) != checksum:
            raise Malformed("the checksum of a record does not match; it was cut or changed.")
        (length,) = struct.unpack("<Q", whole[:8])
        if length > HEADER:
            raise Malformed("a record has a header beyond the limit.")
        header = json.loads(record[8 : 8 + length])
        if len(header["arrays"]) > ARRAYS:
            raise Malformed("a record declares more arrays than it may.")
        arrays: dict[str, Array] = {}
        start = 8 + length
        for name, kind, shape in header["arrays"]:
            dtype = _KINDS.get(kind)
            if dtype is None or len(shape) > AXES or any(not _fits(n) for n in shape):
                raise Malformed("a record declares a type or a shape that it may not have.")
            if type(name) is not str or name in arrays:
                raise Malformed("a record names an array twice, or not by text.")
            count = math.prod(shape)
            stop = start + dtype.itemsize * count
            if math.prod(n or 1 for n in shape) > SPAN:
                raise Malformed("a record declares a shape beyond the limit.")
            if stop > len(record) - 4:
                raise Malformed("a record declares more bytes than it holds.")
            if kind == "b1" and record[start:stop].translate(None, b"\0\1"):
                raise Malformed("a record holds a boolean that is neither 0 nor 1.")
            a = np.frombuffer(record, dtype, count, start) if count else np.empty(0, dtype)
            a = a.reshape(shape)
            arrays[name] = a.copy() if own else a
            start = stop
        if start != len(record) - 4:
            raise Malformed("a record holds more bytes than it declares.")
        if not isinstance(header["meta"], dict):
            raise Malformed("a record has no meta.")
        return arrays, cast("dict[str, Any]", header["meta"])
    except Malformed:
        raise
    except Exception as error:
        raise Malformed(f"bytes that are no record ({type(error).__name__}).") from None


def head(record: bytes) -> dict[str, Any]:
    """Return the meta of a record without checking the rest; use `decode` to accept a record.

    Raises
    ------
    Malformed : there is none.
    """
    try:
        (length,) = struct.unpack("<Q", record[:8])
        if length > min(HEADER, len(record)):
            raise ValueError
        meta = json.loads(record[8 : 8 + length])["meta"]
        if type(meta) is not dict:
            raise TypeError
    except Exception:
        raise Malformed("bytes whose head is none.") from None
    return cast("dict[str, Any]", meta)


def _fits(n: Any) -> bool:
    """Return whether `n` may be the length of an axis."""
    return type(n) is int and 0 <= n <= SPAN
