"""A product that is not formed yet is read as the array that NumPy forms."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcohort.arrays import Product
from fedcohort.protocol.errors import Refused, ReplyRejected
from fedcohort.protocol.message import checked, message
from fedcohort.runtime.exact import ExactTotal

SIZE, SITES = 40_000, 4


@message(parameters=["theta"])
class Model:
    """Parameters of a model."""

    theta: np.ndarray


def drawn(dtype, scale=1.0):
    rng = np.random.default_rng(3)
    return [(scale * rng.normal(size=SIZE)).astype(dtype) for _ in range(SITES)]


def total(replies, weight=1.0):
    """The exact sum of replies that a host has lent."""
    found = ExactTotal(SITES, weighted=weight != 1.0, coarse=["theta"])
    for k, theta in enumerate(replies):
        found.add(str(k), checked(Model(theta), Model, "a", "part", lent=True), weight)
    return found.arrays["theta"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])  # the last is beyond the norm's short cut
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_an_exact_sum_of_products_has_the_bits_of_that_of_arrays(dtype, scale, weight):
    thetas = drawn(dtype, scale)
    formed = total([theta.astype(float) * 204 for theta in thetas], weight)
    assert_array_equal(total([Product(t, 204) for t in thetas], weight), formed, strict=True)


def test_an_array_that_is_not_lent_is_formed_and_its_arithmetic_is_numpys():
    (theta, *_) = drawn("float32")
    product, array = Product(theta, 7), theta.astype(float) * 7
    kept = checked(Model(product), Model, "a", "part")["theta"]
    theta[:] = 0.0  # the network's next visit
    assert_array_equal(kept, array, strict=True)
    (theta, *_) = drawn("float32")
    product = Product(theta, 7)
    assert_array_equal(product / 7 - theta, array / 7 - theta, strict=True)
    assert product.any() and product.shape == (SIZE,) and product.tobytes() == array.tobytes()


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_product_that_is_not_finite_is_refused(odd):
    for theta in drawn("float64")[:1]:
        theta[-1] = odd
        with pytest.raises(ReplyRejected, match="not finite in field 'theta'"):
            checked(Model(Product(theta, 2)), Model, "a", "part", lent=True)
    large = np.full(SIZE, 1e200)  # its square is beyond a float's range; it is not
    assert Product(large, 2).finite()
    assert not Product(large, 1e200).finite()


def test_a_product_beyond_the_range_of_a_sum_is_refused():
    (theta, *_) = drawn("float32")
    theta[5] = 2.0**31
    with pytest.raises(Refused, match=r"field 'theta' .* is beyond"):
        total([Product(theta, 204)] * SITES)
