"""Learning rate, early stopping and kept rounds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.training.networks.schedule import Schedule, course_of, follow, next_rate


def run(losses, held_out=None, counted=None, **settings):
    """Follow a training whose vector counts rounds and whose losses are given."""
    rates = []

    def advance(theta, rate):
        rates.append(rate)
        return theta + 1, losses[int(theta[0])]

    schedule = Schedule(rounds=len(losses), learning_rate=0.1, **settings)
    score = {float(k + 1): v for k, v in enumerate(held_out or [])}
    course = follow(
        advance, course_of(schedule, np.zeros(1), held_out=lambda t: score[t[0]], counted=counted)
    )
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

    course = course_of(
        Schedule(rounds=6, learning_rate=0.1), np.zeros(1),
        held_out=lambda t: 0.0, heard=lambda: heard[-1:],
    )  # fmt: skip
    follow(advance, course)
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
    rounds = course_of(
        Schedule(rounds=9, learning_rate=0.1, named="divergence"),
        np.zeros(1),
        held_out=lambda theta: 0.0,
        record=lambda **values: told.append(values),
        enough=lambda theta: theta[0] == 3,
    )
    course = follow(lambda theta, rate: (theta + 1, 2.0), rounds)
    assert course.theta[0] == course.rounds == 3
    assert [row["divergence"] for row in told] == [2.0] * 3


def plateau_of_torch(held_out, factor, patience):
    """Return the rates of ReduceLROnPlateau, whose patience is one less than ours."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=factor, patience=patience - 1, threshold=0.0, eps=0.0
    )
    rates = []
    for loss in held_out:
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        theirs.step(loss)
    return rates


@given(
    held_out=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    patience=st.integers(1, 4),
    by=st.sampled_from(["loss", "count"]),
)
def test_a_plateaus_rates_are_those_of_torch_by_the_loss_and_by_the_count_of_one_site(
    held_out, patience, by
):
    losses = [float(one) for one in held_out]
    _, rates = run(
        [1.0] * len(losses), losses, lr_rule="plateau", lr_factor=0.3, lr_patience=patience,
        patience_by=by, counted=Sites([losses]) if by == "count" else None,
    )  # fmt: skip
    assert_allclose(rates, plateau_of_torch(losses, 0.3, patience), rtol=1e-12)


class Sites:
    """What sites with these losses (K, R) tell, by a plain loop over each one's history."""

    def __init__(self, losses):
        self.losses, self.asked = losses, []

    def __call__(self, theta, since_cut):
        done = int(theta[0])
        idle = []
        for own in self.losses:
            so_far = own[:done]
            idle.append(done - 1 - so_far.index(min(so_far)))
        self.asked.append(since_cut)
        return sum(idle) / len(idle), sum(min(b, since_cut) for b in idle) / len(idle)


def test_counts_of_three_sites_cut_the_rate_and_end_the_training_as_by_hand():
    """Site b improves to the end, a stops in round 1 and c in round 3."""
    sites = Sites([
        [5, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6],
        [9, 8, 7, 6, 5, 4, 3, 2, 1, 0.5, 0.4, 0.3],
        [3, 2, 1, 0.5, 1, 1, 1, 1, 1, 1, 1, 1],
    ])  # fmt: skip
    course, rates = run(
        [1.0] * 12, lr_rule="plateau", lr_patience=2, patience=4, patience_by="count",
        counted=sites,
    )  # fmt: skip
    # rounds since the best of a, b, c after round i: (i-1, 0, i-3), mean (2i-4)/3 from round 3 on
    # since_cut 5: min(4, 5) + 0 + min(2, 5) = 6, mean 2: cut after round 5, then counted from it:
    # after round 8: (3 + 0 + 3)/3 = 2, cut again. The mean of all passes 4 in round 8: (7 + 5)/3.
    assert_allclose(rates, [0.1] * 6 + [0.01] * 3)
    assert sites.asked == [0, 1, 2, 3, 4, 5, 1, 2, 3]
    assert course.rounds == 9
    assert course.theta[0] == 5  # after round 8 - 4 = 4, which counts from 0


def test_counts_of_one_site_end_where_its_loss_does_with_the_same_model():
    held_out = [5, 4, 3, 6, 3.5, 7, 1, 1, 1]
    by_loss, _ = run([1.0] * 9, held_out, patience=3)
    counted, _ = run([1.0] * 9, patience=3, patience_by="count", counted=Sites([held_out]))
    assert counted.theta[0] == by_loss.theta[0]
    assert counted.rounds == by_loss.rounds
