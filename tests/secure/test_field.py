"""Shares made and combined many at once are those of `pycryptodome`, one by one."""

from __future__ import annotations

import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.protocol.errors import Refused
from fedcohort.secure.arithmetic import shares

ELEMENTS = st.integers(1, 2**128 - 1)
SECRETS = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=5)
GROUPS = [(2, 2), (2, 3), (3, 4), (6, 8), (9, 16), (34, 50), (65, 128), (128, 128)]


def parts(texts, m):
    """The shares that each place holds, by place."""
    return {
        x: [bytes(text[16 * k : 16 * k + 16]) for k in range(m)] for x, text in enumerate(texts, 1)
    }


@settings(max_examples=10)
@pytest.mark.parametrize(("t", "n"), GROUPS[:5])
@given(secrets=SECRETS, data=st.data())
def test_any_threshold_of_shares_gives_each_secret_back_by_the_package(t, n, secrets, data):
    held = parts(shares.split_all(secrets, t, n), len(secrets))
    places = data.draw(st.permutations(sorted(held)))[:t]
    for k, secret in enumerate(secrets):
        assert Shamir.combine([(x, held[x][k]) for x in places], False) == secret


@settings(max_examples=10)
@pytest.mark.parametrize(("t", "n"), GROUPS[:5])
@given(secrets=SECRETS, data=st.data())
def test_shares_by_the_package_are_combined_all_at_once(t, n, secrets, data):
    made = [dict(Shamir.split(t, n, secret, False)) for secret in secrets]
    places = data.draw(st.permutations(range(1, n + 1)))[:t]
    assert shares.combine_all({x: [own[x] for own in made] for x in places}, t) == secrets


@pytest.mark.parametrize(("t", "n"), GROUPS)
def test_many_sites_share_and_combine(t, n):
    secrets = [bytes([k]) * 16 for k in (0, 1, 128, 255)]
    held = parts(shares.split_all(secrets, t, n), 4)
    assert shares.combine_all(held, t) == secrets
    last = dict(list(held.items())[-t:])
    assert shares.combine_all(last, t) == secrets


def test_fewer_shares_than_the_threshold_give_another_secret():
    secret = bytes(range(16))
    held = parts(shares.split_all([secret], 5, 8), 1)
    assert shares.combine_all({x: held[x] for x in range(1, 5)}, 4) != [secret]


def test_a_secret_is_shared_by_another_polynomial_each_time():
    told = {shares.split(bytes(16), 3, 5)[0] for _ in range(50)}
    both = shares.split_all([bytes(16), bytes(16)], 3, 5)[0]
    assert len(told) == 50
    assert both[:16] != both[16:]


@pytest.mark.parametrize(
    "told",
    [{1: [bytes(16)]}, {0: [bytes(16)], 1: [bytes(16)]}, {1: [bytes(15)], 2: [bytes(16)]},
     {1: [bytes(16)], 2: []}, {1: [], 2: [bytes(16)]}],
)  # fmt: skip
def test_shares_that_are_none_are_refused(told):
    with pytest.raises(Refused):
        shares.combine_all(told, 2)


@given(a=ELEMENTS, b=ELEMENTS, c=ELEMENTS)
def test_products_are_those_of_a_field(a, b, c):
    product = shares.product
    assert product(a, b) == product(b, a)
    assert product(a, product(b, c)) == product(product(a, b), c)
    assert product(a, b ^ c) == product(a, b) ^ product(a, c)
    assert product(a, shares.inverse(a)) == 1
