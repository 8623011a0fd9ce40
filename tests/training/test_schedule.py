"""Learning rate, early stopping and kept rounds."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from fedcohort.training.networks.schedule import Schedule, follow, next_rate


def run(losses, held_out=None, **settings):
    """Follow a training whose vector counts rounds and whose losses are given."""
    rates = []

    def advance(theta, rate):
        rates.append(rate)
        return theta + 1, losses[int(theta[0])]

    schedule = Schedule(rounds=len(losses), learning_rate=0.1, **settings)
    score = {float(k + 1): v for k, v in enumerate(held_out or [])}
    course = follow(schedule, np.zeros(1), advance, held_out=lambda t: score[t[0]])
    return course, rates


def test_the_rate_falls_by_the_root_of_the_count_when_the_loss_rises():
    assert next_rate(0.1, 3, before=1.0, after=1.1) == pytest.approx(0.1 / 2)
    assert next_rate(0.1, 3, before=1.0, after=1.0) == 0.1
    assert next_rate(0.1, 99999, before=1.0, after=2.0) == 0.001
    assert next_rate(0.0002, 5, before=1.0, after=2.0) == 0.0002


def test_d62_rates_over_a_course():
    # losses 0…5: 1→2 rises with i+1 = 2, 3→4 with i+1 = 4
    _, rates = run([5.0, 4.0, 4.5, 4.0, 4.2, 3.0, 2.0])
    after_two, after_four = 0.1 / np.sqrt(2), 0.1 / np.sqrt(2) / 2
    assert_allclose(rates, [0.1, 0.1, 0.1, after_two, after_two, after_four, after_four])


def test_where_sites_come_and_go_a_loss_is_held_against_the_last_one_of_the_same_sites():
    # b's patients have larger losses than a's; both fall, until a's rises in round 4
    told = [("a", 1.0), ("b", 3.0), ("a", 0.9), ("b", 2.9), ("a", 0.95), ("b", 2.8)]
    rates, heard = [], []

    def advance(theta, rate):
        rates.append(rate)
        who, loss = told[len(heard)]
        heard.append(who)
        return theta, loss

    follow(
        Schedule(rounds=6, learning_rate=0.1), np.zeros(1), advance,
        held_out=lambda t: 0.0, heard=lambda: heard[-1:],
    )  # fmt: skip
    assert_allclose(rates, [0.1] * 5 + [0.1 / np.sqrt(4)])


def test_a_constant_rate_stays():
    _, rates = run([1.0, 2.0, 3.0], lr_rule="constant")
    assert rates == [0.1] * 3


def test_a_rate_that_falls_as_a_cosine_is_that_of_torch():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.1)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7)
    expected = []
    for _ in range(7):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        theirs.step()
    _, rates = run([1.0, 2.0, 3.0, 1.0, 0.5, 2.0, 1.0], lr_rule="cosine")
    assert_allclose(rates, expected, rtol=1e-12)


def test_early_stopping_gives_the_best_and_stops_after_the_patience():
    course, rates = run([1.0] * 9, [5, 4, 3, 6, 3.5, 7, 1, 1, 1], patience=3)
    assert course.theta[0] == 3
    assert course.rounds == len(rates) == 6


def test_without_patience_the_last_is_the_result_and_held_out_rows_are_not_asked_for():
    course, _ = run([1.0] * 4)
    assert course.theta[0] == 4


def test_a_kept_round_is_what_a_shorter_training_would_have_given():
    held_out = [5, 4, 3, 6, 3.5, 7, 1, 1, 1]
    course, _ = run([1.0] * 9, held_out, patience=4, keep=(1, 4, 5))
    for rounds in (1, 4, 5):
        shorter, _ = run([1.0] * rounds, held_out, patience=4)
        assert course.kept[rounds][0] == shorter.theta[0]


def test_a_training_ends_before_a_round_that_is_not_needed_and_names_its_loss():
    told = []
    course = follow(
        Schedule(rounds=9, learning_rate=0.1, named="divergence"),
        np.zeros(1),
        lambda theta, rate: (theta + 1, 2.0),
        held_out=lambda theta: 0.0,
        record=lambda **values: told.append(values),
        enough=lambda theta: theta[0] == 3,
    )
    assert course.theta[0] == course.rounds == 3
    assert [row["divergence"] for row in told] == [2.0] * 3
