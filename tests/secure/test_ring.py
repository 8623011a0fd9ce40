"""Replies as whole numbers: exact to the stated bound, whatever their order, size and sign."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.protocol.errors import Refused
from fedcohort.secure import Layout, add, decode, encode, error, zeros
from fedcohort.secure.arithmetic.layout import WIDE_FIELD
from fedcohort.secure.arithmetic.ring import CHUNK, collect, subtract

#: By kind: words, fraction bits, and the numbers of a field that is of it.
KINDS = {"fine": (3, 96, WIDE_FIELD + 1), "wide": (6, 128, 1)}


def edges(words, bits):
    top = 64 * words - 1 - bits
    unit, most = 2.0**-bits, 2.0**top
    return [0.0, -0.0, 5e-324, -5e-324, unit / 2, unit, -unit, 1.5 * unit, 0.1, -0.1, 1.0, -1.0,
            2.0**31, 2.0**32, -(2.0**32), 2.0**32 + 2.0**-20, 2.0**53 + 2, most / 2, -most / 2,
            np.nextafter(most, 0), 2.0**-32, 2.0**-64, 1 - 2.0**-53, -(1 - 2.0**-53)]  # fmt: skip


EDGES = [(kind, x) for kind, (words, bits, _) in KINDS.items() for x in edges(words, bits)]
REALS = st.floats(-(2.0**90), 2.0**90, allow_nan=False)


def reply_of(kind, *values):
    """A reply of one field of that kind, which begins with the values."""
    x = np.zeros(max(len(values), KINDS[kind][2]))
    x[: len(values)] = values
    return {"x": x}


def whole(vector, layout) -> list[int]:
    """The integers that the words of long fields stand for, by Python's own; 0 at the end left."""
    (block,) = layout.blocks
    words, size = KINDS[block.kind][0], 64 * KINDS[block.kind][0]
    rows = [vector[block.start + i * block.size :][: block.size].tolist() for i in range(words)]
    numbers = [sum(w << (64 * i) for i, w in enumerate(at)) for at in zip(*rows, strict=True)]
    numbers = [k - (1 << size) if k >> (size - 1) else k for k in numbers]
    return numbers[:4]


@pytest.mark.parametrize(("kind", "x"), EDGES)
def test_a_number_is_the_nearest_multiple_of_the_unit(kind, x):
    bits = KINDS[kind][1]
    arrays = reply_of(kind, x)
    layout = Layout.of(arrays)
    assert layout.fields[0].kind == kind
    k = whole(encode(arrays, layout, n=1), layout)[0]
    assert abs(Fraction(k, 2**bits) - Fraction(float(x))) <= Fraction(1, 2 ** (bits + 1))
    assert k == round(Fraction(float(x)) * 2**bits)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.lists(REALS, min_size=4, max_size=4), min_size=1, max_size=9))
def test_sums_are_those_of_integers_with_all_carries(kind, rows):
    layout = Layout.of(reply_of(kind, *rows[0]))
    bits = KINDS[kind][1]
    total, back = zeros(layout), zeros(layout)
    vectors = [encode(reply_of(kind, *row), layout, n=9) for row in rows]
    for vector in vectors:
        add(total, vector, layout)
    exact = [sum(column) for column in zip(*(whole(v, layout) for v in vectors), strict=True)]
    assert whole(total, layout) == exact
    for vector in reversed(vectors):
        add(back, vector, layout)
    assert np.array_equal(total, back)
    for vector in vectors:
        subtract(back, vector, layout)
    assert not back.any()
    for value, k in zip(decode(total, layout)["x"].tolist(), exact, strict=False):
        assert abs(Fraction(value) - Fraction(k, 2**bits)) <= abs(Fraction(k, 2**bits)) / 2**51


@given(st.integers(0, 2**384 - 1), st.integers(0, 2**384 - 1))
def test_adding_and_taking_away_are_those_of_the_ring(a, b):
    layout = Layout.of({"x": np.zeros(1)})

    def words(k):
        return np.array([(k >> (64 * i)) & (2**64 - 1) for i in range(6)], dtype="<u8")

    plus, minus = add(words(a), words(b), layout), subtract(words(a), words(b), layout)
    assert np.array_equal(plus, words((a + b) % 2**384))
    assert np.array_equal(minus, words((a - b) % 2**384))


@given(
    seed=st.integers(0, 99),
    weight=st.sampled_from([1.0, 0.3]),
    single=st.booleans(),
    scale=st.sampled_from([1.0, 2.0**15, 2.0**20]),
)
def test_collecting_a_reply_is_encoding_and_adding_it_to_every_word(seed, weight, single, scale):
    """Coarse numbers in more than one piece, and their words are those of Python's integers.

    Of the scales, pieces of the first and, in part, of the second are rounded by a shift.
    """
    rng = np.random.default_rng(seed)
    reply = {
        "theta": rng.normal(scale=scale, size=2 * CHUNK + 17).astype("f4" if single else "f8"),
        "fine": rng.normal(size=WIDE_FIELD + 1),
        "wide": rng.normal(size=(2, 3)),
        "count": rng.integers(-(2**40), 2**40, size=5),
    }
    layout = Layout.of(reply, weighted=weight != 1.0, coarse=["theta"])
    total = encode(reply, layout, n=3, weight=weight)
    wanted = add(total.copy(), total, layout)
    rest = encode(reply, layout, n=3, weight=weight)
    rest[: layout.single] = 0
    numbers = list(collect(total, reply, layout, n=3, weight=weight))
    assert add(total, rest, layout).tobytes() == wanted.tobytes()
    assert {"fine", "wide"} == {block.kind for block, _ in numbers}
    for block, x in numbers:
        parts = [reply[field.name].ravel() * weight for field, _, _ in block.places]
        np.testing.assert_array_equal(x, np.concatenate(parts))
    start = layout.ones[0][1]
    for i in (0, CHUNK - 1, CHUNK, 2 * CHUNK + 16):
        x = Fraction(float(reply["theta"][i]) * (weight * 2.0**28))
        assert int(wanted[start + i]) == 2 * round(x) % 2**64


@given(
    k=st.integers(-(2**52), 2**52) | st.integers(-9, 9),
    halves=st.sampled_from([0.0, 0.5, -0.5]),
    beside=st.sampled_from([0.0, 2.0**22, 2.0**34]),
)
def test_a_coarse_number_is_the_nearest_whole_number_of_units_whatever_stands_beside_it(
    k, halves, beside
):
    """Halves go to the even one, as Python rounds a fraction; −k is the negative of k."""
    x = np.zeros(WIDE_FIELD + 1)
    x[:3] = (k + halves) * 2.0**-28, -(k + halves) * 2.0**-28, beside
    layout = Layout.of({"x": x}, coarse=["x"])
    words = encode({"x": x}, layout, n=1).view(np.int64).tolist()
    assert words[0] == round(Fraction(float(x[0])) * 2**28) == -words[1]
    assert words[2:] == [int(beside * 2**28), *[0] * (WIDE_FIELD - 2)]


@pytest.mark.parametrize("at", [0, CHUNK, 2 * CHUNK + 16])
@pytest.mark.parametrize("x", [np.nan, np.inf, -(2.0**34), 2.0**34])
def test_a_coarse_number_beyond_the_range_is_refused_wherever_it_stands(at, x):
    reply = {"theta": np.zeros(2 * CHUNK + 17)}
    reply["theta"][at] = x
    layout = Layout.of(reply, coarse=["theta"])
    for send in (
        lambda: encode(reply, layout, n=2),
        lambda: list(collect(zeros(layout), reply, layout, n=2)),
    ):
        with pytest.raises(Refused, match=r"^field 'theta' holds a number"):
            send()


def test_fields_of_all_types_and_shapes_come_back_in_order():
    arrays = {
        "b": np.array([True, False]),
        "scalar": np.array(2.5),
        "i4": np.array([[-1, 2**31 - 1]], dtype="i4"),
        "f4": np.array([0.5, -3.25], dtype="f4"),
        "empty": np.empty((0, 3)),
        "i8": np.array(-(2**61)),
        "u8": np.array([2**62], dtype="u8"),
        "large": np.linspace(-1, 1, WIDE_FIELD + 1),
        "largest wide": np.linspace(-1, 1, WIDE_FIELD),
        "model": np.linspace(-1, 1, WIDE_FIELD + 7),
        "small model": np.linspace(-1, 1, 7),
        "transposed": np.arange(6.0).reshape(2, 3).T,
    }
    layout = Layout.of(arrays, coarse=["model", "small model"])
    assert Layout.from_meta(layout.to_meta()) == layout
    found = decode(encode(arrays, layout, n=3), layout)
    assert list(found) == list(arrays)
    kinds = {f.name: f.kind for f in layout.fields}
    assert kinds["large"] == "fine" and kinds["largest wide"] == kinds["scalar"] == "wide"
    assert kinds["model"] == "coarse" and kinds["small model"] == "wide"
    for name, a in arrays.items():
        wide = np.int64 if a.dtype.kind in "bi" else a.dtype
        assert found[name].dtype == wide and found[name].shape == a.shape
        assert np.abs(found[name] - a.astype(wide)).max(initial=0) <= error(layout, 1)[name]


@pytest.mark.parametrize("n", [1, 3, 50])
@pytest.mark.parametrize(
    ("kind", "limit"),
    [("wide", 2.0**255), ("fine", 2.0**95), ("coarse", 2.0**35), ("int", 2**63), ("uint", 2**64)],
)
def test_what_could_wrap_around_is_refused_by_its_field_and_without_its_value(kind, limit, n):
    def reply(x):
        size = WIDE_FIELD + 1 if kind in ("fine", "coarse") else 2
        dtype = {"int": "i8", "uint": "u8"}.get(kind, "f8")
        return {"kept": np.ones(2), "high": np.full(size, x, dtype=dtype)}

    layout = Layout.of(reply(0), coarse=["high"] * (kind == "coarse"))
    if kind in ("int", "uint"):
        most = (limit - 1) // n
        signs, beyond = ((1,) if kind == "uint" else (1, -1)), most + 1
    else:
        most, signs = np.nextafter(limit / n, 0) * (1 - 2.0**-50), (1, -1)
        beyond = limit / n
    for sign in signs:
        total = zeros(layout)
        for _ in range(n):
            add(total, encode(reply(sign * most), layout, n=n), layout)
        exact = sign * n * Fraction(most)
        found = Fraction(decode(total, layout)["high"].tolist()[0])
        assert abs(found - exact) <= abs(exact) / 2**52 + Fraction(error(layout, n)["high"])
        if kind in ("int", "uint") and n == 1:
            continue
        with pytest.raises(Refused, match="'high' holds a number") as told:
            encode(reply(sign * beyond), layout, n=n)
        assert str(int(beyond)) not in str(told.value)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("size", [1, WIDE_FIELD + 1])
def test_a_number_that_is_not_finite_is_refused(x, size):
    a = np.zeros(size)
    a[-1] = x
    with pytest.raises(Refused, match="field 'x' holds"):
        encode({"x": a}, Layout.of({"x": a}), n=3)


def test_weights_make_floats_of_integers():
    arrays = {"n": np.array([3, 4]), "flag": np.array(True), "x": np.array(0.5)}
    layout = Layout.of(arrays, weighted=True)
    found = decode(encode(arrays, layout, n=3, weight=0.25), layout)
    assert found["n"].tolist() == [0.75, 1.0]
    assert found["flag"] == 0.25 and found["x"] == 0.125
    with pytest.raises(Refused, match="without weights"):
        encode(arrays, Layout.of(arrays), n=3, weight=2.0)


def test_another_reply_than_the_layout_says_is_refused():
    layout = Layout.of({"x": np.zeros(2)})
    for other in ({"y": np.zeros(2)}, {"x": np.zeros(3)}, {"x": np.zeros(2, "i8")}, {}):
        with pytest.raises(Refused, match="a reply of"):
            encode(other, layout, n=3)
    with pytest.raises(Refused, match="dtype"):
        Layout.of({"x": np.array(["a"])})
    for broken in ({}, {"weighted": 0, "fields": []}, {"weighted": False, "fields": [["x", "f8"]]},
                   {"weighted": False, "fields": [["x", "f8", [-1], False]]}, None):  # fmt: skip
        with pytest.raises(Refused, match="malformed"):
            Layout.from_meta(broken)
