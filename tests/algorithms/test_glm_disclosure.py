"""No sum of `glm` is over the records of a few, or over the sites that a link can reach alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from algorithms.glm_cases import federation, fit, scattered
from fedcohort.algorithms.glm.scoring import WIDEST
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import NothingToLearn
from overheard import listen


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_no_step_adds_more_than_one_to_the_logarithm_of_a_mean(family, monkeypatch):
    heard = listen(monkeypatch)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    mean = np.exp(1.0 + x @ [1.6, -0.8])
    y = rng.poisson(mean).astype(float) if family == "poisson" else mean + rng.normal(size=300)
    parts = scattered(LabelledTable(x, y), 3)
    model = fit(parts, family, "log", fed=federation(parts))
    np.testing.assert_allclose(model.coef_, [1.6, -0.8], atol=0.05)
    asked = [told.question for told in heard if told.step == "curvature"]
    z = np.column_stack([np.ones(300), (x - asked[1]["centre"]) / asked[1]["scale"]])
    moves = [
        np.sqrt(np.mean((z @ (after["gamma"] - before["gamma"])) ** 2))
        for before, after in pairwise(asked)
    ]
    assert WIDEST * 0.99 < max(moves) < WIDEST * 1.01


def at_the_edge():
    """Return records of which one has, at the best fit, a mean far above all others."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 2))
    eta = np.maximum(1.2 + x @ [0.5, -0.3], 0.05)
    return scattered(LabelledTable(x, rng.gamma(2.0, 1.0 / eta / 2.0)), 4)


def test_where_some_site_has_an_impossible_mean_no_other_is_summed(monkeypatch):
    heard = listen(monkeypatch)
    parts = at_the_edge()
    fit(parts, "gamma", "inverse", fed=federation(parts), min_cell=1)
    reached = [told.reply["beyond"] for told in heard if told.step == "reach"]
    assert any(0 < beyond[0] < len(parts) for beyond in reached)
    summed = [told.reply["deviance"] for told in heard if told.step == "curvature"]
    assert len(summed) == sum(not beyond[0] for beyond in reached)
    assert max(summed) < 1e6


def test_an_end_at_which_one_record_counts_is_refused():
    with pytest.raises(NothingToLearn, match=r"fewer than 5 records .min_cell. count for nearly"):
        fit(at_the_edge(), "gamma", "inverse")
    rng = np.random.default_rng(0)  # an outcome around 0, of which link log reaches one half
    x = rng.normal(size=(40, 2))
    y = rng.normal(size=40) + 0.1
    with pytest.raises(NothingToLearn, match=r"fewer than 5 records .min_cell. count for nearly"):
        fit(scattered(LabelledTable(x, y), 3), "gaussian", "log")
