"""Conditional means and expected sums equal the textbook's formulas, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.numerics import gaussian


def normal(d, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d + 2))
    return rng.normal(size=d), root @ root.T


def with_holes(n, d, seed, share=0.4):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < share, np.nan, rng.normal(size=(n, d)))


def given_the_rest(row, mean, covariance):
    """Return E[x | seen] and Cov[x | seen] by Σ_mo Σ_oo⁻¹, which the product does not use."""
    lost = np.isnan(row)
    seen = ~lost
    full, spread = np.where(lost, 0.0, row), np.zeros_like(covariance)
    pull = covariance[np.ix_(lost, seen)] @ np.linalg.pinv(covariance[np.ix_(seen, seen)])
    full[lost] = mean[lost] + pull @ (row[seen] - mean[seen])
    rest = covariance[np.ix_(lost, lost)] - pull @ covariance[np.ix_(seen, lost)]
    spread[np.ix_(lost, lost)] = rest
    return full, spread


@given(d=st.integers(1, 7), seed=st.integers(0, 999))
def test_missing_entries_become_their_conditional_means(d, seed):
    mean, covariance = normal(d, seed)
    x = with_holes(20, d, seed)
    expected = [given_the_rest(row, mean, covariance)[0] for row in x]
    assert_allclose(gaussian.filled(x, mean, covariance), expected, rtol=1e-7, atol=1e-8)


@given(d=st.integers(1, 6), seed=st.integers(0, 999))
def test_expected_sums_are_those_of_the_rows_one_by_one(d, seed):
    mean, covariance = normal(d, seed)
    x = with_holes(25, d, seed)
    pairs = [given_the_rest(row, mean, covariance) for row in x]
    y = np.array([full for full, _ in pairs]) - mean
    total, products = gaussian.expected_sums(
        x, gaussian.blocks(np.isnan(x)), mean, np.linalg.inv(covariance)
    )
    assert_allclose(total, y.sum(axis=0), rtol=1e-7, atol=1e-8)
    assert_allclose(products, y.T @ y + sum(c for _, c in pairs), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("rows", [3, 1 << 16])
def test_blocks_hold_every_row_once_with_what_it_lacks(rows, monkeypatch):
    monkeypatch.setattr(gaussian, "BLOCK_ROWS", rows)
    missing = np.isnan(with_holes(40, 9, 0))
    found = gaussian.blocks(missing)
    assert_array_equal(np.sort(np.concatenate([b.rows for b in found])), np.arange(40))
    for b in found:
        assert len(b.rows) <= rows
        assert_array_equal(np.bincount(b.pattern), b.counts)
        for row, pattern in zip(b.rows, b.pattern, strict=True):
            assert_array_equal(np.flatnonzero(missing[row]), b.missing[pattern])


def test_units_do_not_matter():
    mean, covariance = normal(4, 1)
    x = with_holes(30, 4, 2)
    unit = np.array([1e-9, 1.0, 1e6, 1e9])
    there = gaussian.filled(x * unit, mean * unit, covariance * np.outer(unit, unit))
    assert_allclose(there / unit, gaussian.filled(x, mean, covariance), rtol=1e-9)
