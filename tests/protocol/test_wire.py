"""Named arrays as bytes: exact both ways, and nothing but `Malformed` from bad bytes."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_array_equal

from examples import examples
from fedcohort.protocol import wire
from fedcohort.protocol.wire import Malformed, decode, encode, head

KINDS = ["f4", "f8", "i4", "i8", "u8", "b1"]
some_array = st.sampled_from(KINDS).flatmap(
    lambda kind: arrays(
        np.dtype(kind), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)


@given(
    named=st.dictionaries(st.text(max_size=6), some_array, max_size=4), order=st.sampled_from("CF")
)
def test_arrays_come_back_bit_for_bit_with_shape_and_type(named, order):
    sent = {k: np.asarray(a, order=order) for k, a in named.items()}
    back, meta = decode(encode(sent, {"n": 1, "text": "ü"}))
    assert meta == {"n": 1, "text": "ü"}
    assert list(back) == list(sent)
    for name, a in sent.items():
        assert (back[name].shape, back[name].dtype) == (a.shape, a.dtype)
        assert back[name].tobytes() == a.tobytes()
        assert back[name].flags.writeable


RECORD = encode({"x": np.arange(6.0).reshape(2, 3), "flag": np.array([True])}, {"call": 7})


def resealed(body: bytes) -> bytes:
    """Return bytes with a checksum that holds."""
    return body + struct.pack("<I", zlib.crc32(body))


@given(data=st.data())
@settings(max_examples=300)
def test_changed_bytes_are_malformed_and_nothing_else(data):
    at = data.draw(st.integers(0, len(RECORD) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(RECORD)
    changed[at] ^= flip
    with pytest.raises(Malformed):
        decode(bytes(changed))


@given(data=st.data())
@settings(max_examples=examples(400))
def test_changed_bytes_under_a_good_checksum_decode_to_numbers_or_are_malformed(data):
    body = bytearray(RECORD[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        back, meta = decode(resealed(bytes(body)))
    except Malformed:
        return
    assert isinstance(meta, dict)
    assert all(a.dtype.kind in "fiub" for a in back.values())


@given(noise=st.binary(max_size=60))
@settings(max_examples=100)
def test_noise_is_malformed(noise):
    for record in (noise, resealed(noise)):
        with pytest.raises(Malformed):
            decode(record)


@pytest.mark.parametrize("stop", range(len(RECORD)))
def test_a_record_cut_anywhere_is_malformed(stop):
    with pytest.raises(Malformed):
        decode(RECORD[:stop])


def forged(declared: Any, payload: bytes = bytes(8), meta: Any = None) -> bytes:
    header = json.dumps({"meta": {} if meta is None else meta, "arrays": declared}).encode()
    return resealed(struct.pack("<Q", len(header)) + header + payload)


@pytest.mark.parametrize(
    "record",
    [
        forged([["x", "O", [1]]]),
        forged([["x", "V8", [1]]]),
        forged([["x", "U2", [1]]]),
        forged([["x", None, [1]]]),
        forged([["x", ">f8", [1]]]),
        forged([["x", "f8", [-1]]]),
        forged([["x", "f8", [2]]]),
        forged([["x", "f8", [True]]]),
        forged([["x", "f8", [10**30]]]),
        forged([["x", "f8", []], ["x", "f8", [0]]]),
        forged([[3, "f8", [1]]]),
        forged([["x", "b1", [8]]], b"\2" * 8),
        forged([["x", "f8", [1]]], meta=[1]),
        forged("x"),
        resealed(struct.pack("<Q", 2**63) + b"{}"),
        resealed(struct.pack("<Q", 10**5) + b"[" * 10**5),
    ],
)
def test_a_forged_header_is_malformed(record):
    with pytest.raises(Malformed):
        decode(record)


@pytest.mark.parametrize(
    "array",
    [np.array([object()]), np.array(["Jane"]), np.array([1.0], ">f8"), np.array([1j])],
    ids=["objects", "text", "foreign bytes", "complex"],
)
def test_other_types_than_numbers_are_not_written(array):
    with pytest.raises(Malformed, match="'x'"):
        encode({"x": array})


def test_a_decoded_array_owns_its_memory():
    back, _ = decode(RECORD)
    back["x"] += 1
    assert_array_equal(decode(RECORD)[0]["x"], np.arange(6.0).reshape(2, 3))


# limits -------------------------------------------------------------------------------------


def test_a_record_beyond_the_limit_is_malformed_whatever_it_holds():
    assert decode(RECORD, len(RECORD))[1] == {"call": 7}
    with pytest.raises(Malformed, match=f"a record of {len(RECORD)} bytes; the limit is 10"):
        decode(RECORD, 10)


def test_text_beyond_the_limit_of_a_header_is_not_written_and_not_read(monkeypatch):
    record = encode({}, {"text": "x" * 200})
    monkeypatch.setattr(wire, "HEADER", 100)
    with pytest.raises(Malformed, match="beyond the limit"):
        decode(record)
    with pytest.raises(Malformed, match="Send arrays instead"):
        encode({}, {"text": "x" * 200})


def test_arrays_that_are_not_owned_are_parts_of_the_record_and_cannot_be_written():
    back, _ = decode(RECORD, own=False)
    assert_array_equal(back["x"], np.arange(6.0).reshape(2, 3))
    for a in back.values():
        assert not a.flags.owndata
        assert not a.flags.writeable


@pytest.mark.parametrize(
    "declared",
    [
        [["x", "f8", [1] * 33]],
        [["x", "f8", [0, 2**49]]],
        [["x", "f8", [0, 2**40, 2**40]]],
        [["x", "f8", [2**48, 2**48]]],
        [[f"{i}", "f8", [0]] for i in range(65_537)],
    ],
    ids=["axes", "an axis", "axes of an empty array", "a product", "arrays"],
)
def test_what_a_record_may_not_declare_is_malformed(declared):
    with pytest.raises(Malformed, match=r"beyond the limit|may not have|more arrays"):
        decode(forged(declared, b""))


def test_the_head_of_a_record_is_its_meta_and_of_anything_else_malformed():
    record = encode({"a": np.ones(3)}, {"kind": "call", "n": 1})
    assert head(record) == {"kind": "call", "n": 1}
    for bad in (b"", record[:7], record[:20], b"\xff" * 40, encode({})[:8] + b"[]" * 20):
        with pytest.raises(Malformed):
            head(bad)
