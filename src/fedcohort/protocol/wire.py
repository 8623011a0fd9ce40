"""Named arrays as bytes, and back, without pickle.

Layout: 8 bytes length of the header, the header as JSON (`{"meta": …, "arrays": [[name, dtype,
shape], …]}`), then each array's bytes in C order, then CRC-32 of everything before it. `decode`
trusts nothing: dtype from a short list, exact byte counts, exact checksum.
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


class Malformed(FedcohortError):
    """Bytes that are no record of named arrays."""


def encode(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> bytes:
    """Return named arrays and a JSON-able `meta` as one self-checking record.

    Raises
    ------
    Malformed : an array of another dtype than those that may leave a site.
    """
    parts = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    for name, a in parts.items():
        if a.dtype not in DTYPES:
            raise Malformed(f"array {name!r} has dtype {a.dtype}; a record holds numbers alone.")
    shapes = [[name, a.dtype.str[1:], list(a.shape)] for name, a in parts.items()]
    header = json.dumps({"meta": dict(meta or {}), "arrays": shapes}).encode()
    body = b"".join(
        [struct.pack("<Q", len(header)), header, *(a.tobytes() for a in parts.values())]
    )
    return body + struct.pack("<I", zlib.crc32(body))


def decode(record: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the meta of one record.

    Raises
    ------
    Malformed : a length, a dtype, a shape or the checksum is not as it must be.
    """
    try:
        (checksum,) = struct.unpack("<I", record[-4:])
        if zlib.crc32(record[:-4]) != checksum:
            raise Malformed("the checksum of a record does not match; it was cut or changed.")
        (length,) = struct.unpack("<Q", record[:8])
        header = json.loads(record[8 : 8 + length])
        arrays: dict[str, Array] = {}
        start = 8 + length
        for name, kind, shape in header["arrays"]:
            dtype = _KINDS.get(kind)
            if dtype is None or any(type(n) is not int or n < 0 for n in shape):
                raise Malformed(f"a record declares dtype {kind!s:.8} with shape {shape!s:.40}.")
            if type(name) is not str or name in arrays:
                raise Malformed("a record names an array twice, or not by text.")
            stop = start + dtype.itemsize * math.prod(shape)
            if stop > len(record) - 4:
                raise Malformed("a record declares more bytes than it holds.")
            if kind == "b1" and record[start:stop].translate(None, b"\0\1"):
                raise Malformed("a record holds a boolean that is neither 0 nor 1.")
            arrays[name] = np.frombuffer(record[start:stop], dtype).reshape(shape).copy()
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
