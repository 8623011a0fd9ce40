"""Simulated views have the sizes of the paper and the covariance of its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fedcohort.data.check.checks import check_table
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.read.sources import load
from fedcohort.protocol import SettingError


def test_the_defaults_are_the_sizes_of_the_paper():
    # section 4.1: 400 observations, views of 15, 8 and 10 columns, 250 shifted
    frame, views = multiview()
    assert frame.shape == (400, 34)
    assert {k: len(v) for k, v in views.items()} == {"v1": 15, "v2": 8, "v3": 10}
    assert [*(c for names in views.values() for c in names), "group"] == list(frame.columns)
    assert frame["group"].value_counts().to_dict() == {"2": 250, "1": 150}


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    assert_frame_equal(multiview(seed=3)[0], multiview(seed=3)[0])
    assert not np.isclose(multiview(seed=3)[0]["v1_01"], multiview(seed=4)[0]["v1_01"]).any()


@given(
    q=st.integers(1, 4),
    dims=st.lists(st.integers(5, 12), min_size=1, max_size=4),
    share=st.integers(0, 100),
    seed=st.integers(0, 99),
)
def test_without_noise_rows_lie_in_a_space_of_q_dimensions_about_the_mean(q, dims, share, seed):
    frame, views = multiview(100, dims, q, share, seed, noise=(0.0, 0.0))
    assert [len(names) for names in views.values()] == dims
    assert (frame["group"] == "2").sum() == share
    t = frame.drop(columns="group").to_numpy()
    s = np.linalg.svd(t - t.mean(axis=0), compute_uv=False)
    assert (s > 1e-3).sum() == q  # values are rounded to 6 decimals


def test_noise_has_the_variance_that_is_asked_for_in_every_view():
    # Tipping and Bishop 1999: the d − q smallest eigenvalues of the covariance are σ²
    frame, views = multiview(20_000, (9, 7), 2, 0, seed=1, noise=(0.3, 0.3))
    for names in views.values():
        values = np.linalg.eigvalsh(np.cov(frame[names].to_numpy().T))
        np.testing.assert_allclose(values[:-2].mean(), 0.09, rtol=0.03)
        assert values[-2] > 3 * 0.09


def test_the_second_group_is_moved_by_one_vector_of_the_latent_space():
    near, far = (
        multiview(3000, (12,), 3, 1500, seed=2, noise=(0.0, 0.0), distance=d)[0] for d in (0.0, 5.0)
    )
    moved = (far.drop(columns="group") - near.drop(columns="group")).to_numpy()
    second = (far["group"] == "2").to_numpy()
    np.testing.assert_allclose(moved[~second], 0.0, atol=1e-5)
    np.testing.assert_allclose(moved[second], moved[second][[0]] * np.ones((1500, 1)), atol=1e-5)
    # W is 12 × 3 of standard normals: |W v|² is 25 times a χ² with 12 degrees, over v's direction
    assert 5 * np.sqrt(3) < np.linalg.norm(moved[second][0]) < 5 * np.sqrt(30)


def test_groups_are_told_apart_without_error_as_in_the_paper():
    # table 6, IID: accuracy 1 ± 0
    for seed in range(5):
        frame, _ = multiview(seed=seed)
        x, y = frame.drop(columns="group").to_numpy(), frame["group"]
        lda = LinearDiscriminantAnalysis().fit(x[::2], y[::2])
        assert lda.score(x[1::2], y[1::2]) >= 0.995


def test_the_sample_has_views_and_a_group_that_is_no_feature():
    source = load("sample:multiview", Path())
    frame, views = multiview()
    assert_frame_equal(source.frames, frame)
    assert source.dictionary == dictionary_of(views)
    assert [v.view for v in source.dictionary.features()] == ["v1"] * 15 + ["v2"] * 8 + ["v3"] * 10
    assert not source.dictionary["group"].usable
    assert source.outcome is None
    check_table(source.frames, None, "multiview", source.dictionary)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is 0; give 1 or more."),
        ({"dims": ()}, "dims is (); give a view or more"),
        ({"dims": (3, 0)}, "dims is (3, 0)"),
        ({"q": 0}, "q is 0"),
        ({"shifted": 401}, "shifted is 401; give from 0 to the 400 rows."),
        ({"noise": (0.5, 0.1)}, "give two ascending numbers from 0"),
    ],
    ids=["n", "no view", "no column", "q", "shifted", "noise"],
)
def test_impossible_sizes_are_one_clear_line(options, message):
    with pytest.raises(SettingError) as caught:
        multiview(**options)
    assert message in str(caught.value)
