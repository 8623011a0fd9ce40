"""Server rules against numbers worked out by hand from Algorithm 2 of Reddi et al. (2021)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedcohort.training.networks.server import RULES, Server

CONSTANTS = {"rate": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.01}


def by_hand(name, means):
    """One coordinate at a time, term by term; x starts at 1."""
    x, m, v = 1.0, 0.0, 0.01**2
    for mean in means:
        d = mean - x
        m = 0.9 * m + 0.1 * d
        if name == "fedadagrad":
            v = v + d * d
        elif name == "fedadam":
            v = 0.99 * v + 0.01 * d * d
        elif v > d * d:  # Yogi moves v towards D² by a step of (1−β₂)D²
            v = v - 0.01 * d * d
        elif v < d * d:
            v = v + 0.01 * d * d
        x = x + 0.1 * m / (math.sqrt(v) + 0.01)
    return x


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
def test_adaptive_rules_follow_the_paper(name):
    means = [[1.5, 1.0, 1.001], [0.2, 1.0, 0.9995], [1.1, 1.0, 1.002]]
    state = Server.at(np.ones(3), **CONSTANTS)
    for mean in means:
        state = RULES[name](state, np.array(mean))
    assert_allclose(state.x, [by_hand(name, column) for column in zip(*means, strict=True)])


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_last_parameters_take_the_mean_itself_where_no_gradient_moves_them(name):
    state = replace(Server.at(np.ones(3), **CONSTANTS), plain=1)
    for mean in ([1.5, 1.2, 7.0], [0.2, 1.0, -3.0]):
        found = RULES[name](state, np.array(mean))
        whole = RULES[name](replace(state, plain=0), np.array(mean))
        assert_allclose(found.x, [*whole.x[:2], mean[2]], rtol=0)
        state = found


def test_the_first_fedadam_step_is_this_number():
    # D = 0.5, m = 0.05, v = 0.99e-4 + 0.0025 = 0.002599, step 0.1 · 0.05 / (0.0509804 + 0.01)
    state = RULES["fedadam"](Server.at(np.ones(1), **CONSTANTS), np.array([1.5]))
    assert_allclose(state.x, 1.0 + 0.005 / 0.0609803883, rtol=1e-7)


def test_yogis_second_moment_falls_where_fedadams_would_forget():
    start = Server.at(np.zeros(1), **CONSTANTS)
    high = Server(start.x, start.m, np.array([4.0]), 0.1, 0.9, 0.99, 0.01)
    assert_allclose(RULES["fedyogi"](high, np.array([1.0])).v, 4.0 - 0.01)
    assert_allclose(RULES["fedadam"](high, np.array([1.0])).v, 3.96 + 0.01)


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_averaging_takes_the_mean(name):
    state = RULES[name](Server.at(np.ones(2), **CONSTANTS), np.array([3.0, -1.0]))
    assert_allclose(state.x, [3.0, -1.0], rtol=0)


def test_rules_leave_the_state_they_were_given():
    state = Server.at(np.ones(2), **CONSTANTS)
    RULES["fedyogi"](state, np.array([3.0, -1.0]))
    assert_allclose(state.x, 1.0)
    assert_allclose(state.m, 0.0)
