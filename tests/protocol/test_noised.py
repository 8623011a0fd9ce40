"""Replies made of noisy answers: each is counted, and nothing else of the rows gets into them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from fedcohort.arrays import Array
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import (
    Dp,
    Noised,
    Private,
    Refused,
    Release,
    Site,
    SiteFailed,
    gathered,
    message,
    summed,
)
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host

DP = Dp(epsilon=3.0, delta=1e-5)
SECRET = "Jane Doe 4711"


@message
class Told:
    value: Array


@message
class Path:
    points: Array


def walk(*, start: Array, steps: int) -> Generator[Array, Told, Path]:
    """Ask at a point, go to the answer, and so on."""
    points = [start]
    for _ in range(steps):
        told = yield points[-1]
        points.append(told.value)
    return Path(np.stack(points))


def forgetful(*, start: Array, steps: int) -> Generator[Array, Told, Path]:
    """Ask as often, and reply the same whatever is answered."""
    for _ in range(steps):
        yield start
    return Path(start)


def with_default(
    *,
    start: Array,
    steps: int,
    held: list[int] = [4711],  # noqa: B006
) -> Generator[Array, Told, Path]:
    yield start
    return Path(np.array(held, float))


def beyond_numbers(*, start: Array, steps: int) -> Generator[Array, Told, Path]:
    """Reply the start and the largest number there is times the answer's sign."""
    told = yield np.zeros(1)
    with np.errstate(over="ignore"):
        return Path(start + np.sign(told.value) * np.finfo(float).max)


def asked(site: Site[Array, None]) -> Any:
    return lambda point: Private(Told(site.data + point), {"value": 2.0})


@summed
def wander(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(asked(site), walk)


@gathered
def wander_alone(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(asked(site), walk)


@summed
def overflows(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(asked(site), beyond_numbers)


@summed
def changes_its_arguments(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    start[:] = site.data
    return Noised(asked(site), walk)


@summed
def changes_the_point(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    def ask(point: Array) -> Private[Told]:
        point[:] = site.data
        return Private(Told(site.data), {"value": 2.0})

    return Noised(ask, forgetful)


@summed
def hides_rows_in_its_course(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    def course(*, start: Array, steps: int) -> Generator[Array, Told, Path]:
        yield start
        return Path(site.data)

    return Noised(asked(site), course)


@summed
def hides_rows_in_a_default(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(asked(site), with_default)


@summed
def replies_bare(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Path(site.data)  # pyright: ignore


@summed
def says_private_and_replies_bare(site: Site[Array, None]) -> Private[Told]:
    return Told(site.data)  # pyright: ignore


@summed
def answers_bare(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(lambda point: Told(site.data), walk)  # pyright: ignore


@summed
def forgets_the_sensitivity(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    return Noised(lambda point: Private(Told(site.data), {}), walk)


@summed
def fails_with_a_name(site: Site[Array, None], *, start: Array, steps: int) -> Noised[Path]:
    def ask(point: Array) -> Private[Told]:
        raise ValueError(SECRET)

    return Noised(ask, walk)


STEPS = (
    overflows, wander, wander_alone, changes_its_arguments, changes_the_point,
    hides_rows_in_its_course, hides_rows_in_a_default, replies_bare,
    says_private_and_replies_bare, answers_bare, forgets_the_sensitivity, fails_with_a_name,
)  # fmt: skip


def host(
    data: Array, *, count: int = 12, draws: int = 4, noise: float = 1.5, seed: int | None = 1
) -> Host:
    listed = [Release(step=s.name, noise=noise, count=count, draws=draws) for s in STEPS]
    guard = SiteGuard("north", "demo", listed, DP, 100, seed)
    return Host("north", data, STEPS, seed=1, guard=guard)


def ask(site: Host, step: Any, number: int = 0, share: int = 1, **given: Any):
    given = given or {"start": np.zeros(3), "steps": 4}
    call = Call(number, step, step.verb, None, Arguments(given, ("north",)), 0, share)
    return site.answer(call, given)


def test_a_step_declares_that_its_reply_is_made_of_noisy_answers():
    assert (wander.noised, wander.private, wander.reply) == (True, True, Path)
    assert not says_private_and_replies_bare.noised


@pytest.mark.parametrize("share", [1, 2])
def test_every_answer_has_all_of_its_noise_whether_the_reply_is_summed_or_seen(share: int):
    site = host(np.zeros(20_000))
    step = wander if share > 1 else wander_alone
    points = ask(site, step, share=share, start=np.zeros(20_000), steps=3).reply["points"]
    moved = np.diff(points, axis=0)
    np.testing.assert_allclose(moved.std(axis=1), 1.5 * 2.0, rtol=0.025)
    correlation = np.corrcoef(moved) - np.eye(3)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def test_answers_are_counted_one_by_one_and_a_reply_beyond_the_list_is_refused():
    site = host(np.zeros(3), count=8)
    spent = [ask(site, wander, number=i).spent for i in range(2)]
    guard: Any = site._guard
    assert guard.tally.taken("", "wander") == 8
    assert spent[0].epsilon < spent[1].epsilon
    with pytest.raises(Refused, match="has had its 2 replies of step wander") as caught:
        ask(site, wander, number=2)
    assert caught.value.code == "budget"


@pytest.mark.parametrize(("steps", "count"), [(5, 12), (4, 3)])
def test_a_reply_of_more_answers_than_the_study_says_is_refused(steps: int, count: int):
    site = host(np.zeros(3), count=count)
    with pytest.raises(Refused, match=r"asks for more than . noisy answers") as caught:
        ask(site, wander, start=np.zeros(3), steps=steps)
    assert caught.value.code == "budget"


def test_a_reply_counts_for_all_the_answers_that_it_may_have():
    site = host(np.zeros(3))
    ask(site, wander, start=np.zeros(3), steps=1)
    guard: Any = site._guard
    assert guard.tally.taken("", "wander") == 4


def test_a_call_that_fails_or_not_by_its_noise_has_spent_either_way():
    # a step of the largest number times the noise: it overflows on one side of a threshold
    site = host(np.zeros(1), count=80)
    largest = np.finfo(float).max
    failed = 0
    for number in range(20):
        try:
            ask(site, overflows, number=number, start=np.array([largest]), steps=1)
        except SiteFailed:
            failed += 1
    assert 0 < failed < 20  # so that its failing tells of the noise
    guard: Any = site._guard
    assert guard.tally.taken("", "overflows") == 80
    with pytest.raises(Refused, match="has had its 20 replies of step overflows"):
        ask(site, overflows, number=20, start=np.array([largest]), steps=1)


def test_a_reply_without_a_single_noisy_answer_is_refused():
    with pytest.raises(Refused, match="without a single noisy answer"):
        ask(host(np.zeros(3)), wander, start=np.zeros(3), steps=0)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (hides_rows_in_its_course, "could hold rows"),
        (hides_rows_in_a_default, "could hold rows"),
        (replies_bare, "returned a Path"),
        (answers_bare, "only a Private can be given noise"),
        (forgets_the_sensitivity, "without the sensitivity of each field"),
    ],
)
def test_a_step_that_would_reply_rows_without_noise_is_refused(step: Any, text: str):
    site = host(np.array([4711.0, 1.0, 2.0]))
    with pytest.raises(Refused, match=text) as caught:
        ask(site, step)
    assert caught.value.code == "dp"
    assert "4711" not in str(caught.value)
    guard: Any = site._guard
    assert guard.tally.taken("", step.name) == 4  # it was let in, and looked at rows


def test_a_step_that_is_declared_private_and_replies_bare_is_refused():
    site = host(np.zeros(3))
    call = Call(0, says_private_and_replies_bare, "sum", None, Arguments({}, ("north",)))
    with pytest.raises(Refused, match="returned a Told"):
        site.answer(call, {})


def test_what_a_step_writes_into_its_arguments_or_a_point_does_not_reach_the_reply():
    data, start = np.full(3, 1e6), np.zeros(3)
    given = {"start": start.copy(), "steps": 2}
    first = ask(host(data), changes_its_arguments, **given).reply["points"][0]
    np.testing.assert_array_equal(first, start)
    told = ask(host(data), changes_the_point, start=start, steps=2).reply["points"]
    np.testing.assert_array_equal(told, start)


def test_an_error_while_a_course_runs_does_not_tell_its_text():
    with pytest.raises(SiteFailed) as caught:
        ask(host(np.zeros(3)), fails_with_a_name)
    assert SECRET not in str(caught.value)


def test_two_simulations_draw_the_same_and_a_node_draws_from_the_system():
    a, b = (ask(host(np.zeros(3)), wander).reply["points"] for _ in range(2))
    np.testing.assert_array_equal(a, b)
    node = host(np.zeros(3), seed=None)
    first, again = (ask(node, wander, number=0).reply["points"] for _ in range(2))
    assert not np.array_equal(first[1:], again[1:])
