"""No step of `glm` with link log goes so far that a few records count for all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from algorithms.glm_cases import federation, fit, scattered
from fedcohort.algorithms.glm.scoring import WIDEST
from fedcohort.data.tables import LabelledTable
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
