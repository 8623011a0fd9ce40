"""The site's side: verbs, views, states, and errors that disclose nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import toys
from fedcohort.arrays import Array
from fedcohort.protocol import (
    DataError,
    InputError,
    Keep,
    Site,
    SiteFailed,
    VerbRefused,
    gathered,
    message,
    summed,
)
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host
from toys import Draw, Flags, Memory, Moments

SECRET = "Jane Doe 4711"


@gathered
def leaks(site: Site[Any, None]) -> Draw:
    raise ValueError(SECRET)


@gathered
def says_so(site: Site[Any, None]) -> Draw:
    raise DataError("column 'age' has 3 impossible rows.")


@gathered
def wrong_message(site: Site[Any, None]) -> Draw:
    return Flags(np.zeros(1))  # pyright: ignore


@gathered
def wrong_state(site: Site[Any, None]) -> Keep[Draw, Memory]:
    return Keep(Draw(np.zeros(1)), Moments(np.zeros(1), np.zeros(1)))  # pyright: ignore


@gathered
def text_state(site: Site[Any, None]) -> Keep[Draw, Flags]:
    return Keep(Draw(np.zeros(1)), Flags(np.array([SECRET])))


@gathered
def all_data(site: Site[Any, None]) -> Draw:
    return Draw(site.data)


@gathered
def spoil_state(site: Site[Any, Flags | None]) -> Draw:
    if site.state is not None:
        site.state.positive[:] = 99.0
    return Draw(np.zeros(1))


@gathered
def set_state(site: Site[Any, Flags | None], *, value: float) -> Keep[Draw, Flags]:
    before = np.zeros(1) if site.state is None else site.state.positive
    return Keep(Draw(before), Flags(np.array([value])))


@message
class Beside:
    """A state beside others."""

    beside = True

    positive: Array


@gathered
def set_beside(site: Site[Any, Beside | None], *, value: float) -> Keep[Draw, Beside]:
    before = np.zeros(1) if site.state is None else site.state.positive
    return Keep(Draw(before), Beside(np.array([value])))


@message
class Fixed:
    """A state that no step writes to."""

    read_only = True

    first: Array
    second: Array


@gathered
def set_second(site: Site[Any, Fixed | None], *, value: float) -> Keep[Draw, Fixed]:
    first = site.data if site.state is None else site.state.first
    return Keep(Draw(first), Fixed(first, np.array([value])))


@gathered
def write_first(site: Site[Any, Fixed | None]) -> Draw:
    assert site.state is not None
    site.state.first[:] = 9.0
    return Draw(np.zeros(1))


@summed
def count_flags(site: Site[Any, None]) -> Flags:
    return Flags(np.array([True, False]))


def ask(host: Host, step: Any, verb: str | None = None, view: Any = None, **arguments: Any) -> Any:
    call = Call(0, step, verb or step.verb, view, Arguments(arguments, [host.name]))
    return host.answer(call, call.arguments.at(host.name))


def test_a_step_for_sums_cannot_be_gathered_at_the_site():
    host = Host("north", np.zeros((2, 2)), toys.NUMBERS)
    with pytest.raises(VerbRefused, match=r"'north' refuses gather\(moments\).*only the sum"):
        ask(host, toys.moments, "gather", centre=0.0, power=1)


def test_a_step_that_the_site_did_not_agree_to_is_refused():
    host = Host("north", np.zeros((2, 2)), [toys.moments])
    with pytest.raises(VerbRefused, match=r"'north' does not know the step 'means'"):
        ask(host, toys.means)


def test_a_step_of_a_known_name_but_another_function_is_refused():
    imposter = SimpleNamespace(name="means", verb="gather", run=all_data.run)
    with pytest.raises(VerbRefused, match="means"):
        ask(Host("north", np.zeros((2, 2)), toys.NUMBERS), imposter)


def test_two_steps_of_one_name_are_refused():
    def means(site: Site[Any, None]) -> Draw:
        return Draw(site.data)

    means.__annotations__ = {"site": Site[Any, None], "return": Draw}
    with pytest.raises(InputError, match="two steps are called 'means'"):
        Host("north", None, [toys.means, gathered(means)])


def test_the_same_step_may_be_registered_twice():
    Host("north", None, [toys.means, toys.means])


def test_an_error_in_a_step_tells_its_kind_and_never_its_text():
    with pytest.raises(SiteFailed, match=r"'north' failed in step leaks \(ValueError\)") as caught:
        ask(Host("north", None, [leaks]), leaks)
    assert SECRET not in str(caught.value)
    assert str(caught.value.__cause__) == SECRET


def test_an_error_raised_on_purpose_passes_as_it_is():
    with pytest.raises(DataError, match="3 impossible rows"):
        ask(Host("north", None, [says_so]), says_so)


def test_a_view_that_fails_discloses_nothing():
    @dataclass
    class Broken:
        spec: str = "broken"

        def __call__(self, data: Any) -> Any:
            raise KeyError(SECRET)

    with pytest.raises(SiteFailed, match="KeyError") as caught:
        ask(Host("north", None, [all_data]), all_data, view=Broken())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("said", ["column 'age' is odd.", "site 'north': column 'age' is odd."])
def test_a_view_that_refuses_the_data_names_the_site(said):
    @dataclass
    class Refuses:
        spec: str = "refuses"

        def __call__(self, data: Any) -> Any:
            raise DataError(said)

    with pytest.raises(DataError) as caught:
        ask(Host("north", None, [all_data]), all_data, view=Refuses())
    assert str(caught.value) == "site 'north': column 'age' is odd."


def test_a_missing_argument_is_an_error_of_the_step():
    with pytest.raises(SiteFailed, match="TypeError"):
        ask(Host("north", np.zeros((1, 1)), toys.NUMBERS), toys.moments, power=1)


@pytest.mark.parametrize("step", [wrong_message, wrong_state, text_state])
def test_a_reply_or_state_of_another_kind_than_declared_is_refused(step):
    with pytest.raises(SiteFailed, match="'north'") as caught:
        ask(Host("north", None, [step]), step)
    assert SECRET not in str(caught.value)


def test_a_reply_shares_no_memory_with_the_sites_data():
    host = Host("north", np.zeros(3), [all_data])
    ask(host, all_data).reply["values"][:] = 9
    assert_array_equal(ask(host, all_data).reply["values"], 0)


def test_a_step_cannot_change_the_state_without_keep():
    host = Host("north", None, [set_state, spoil_state])
    host.state = ask(host, set_state, value=1.0).state
    ask(host, spoil_state)
    assert_array_equal(ask(host, set_state, value=2.0).reply["values"], 1.0)


def test_a_state_beside_another_lasts_while_the_other_changes():
    """Both types have the same field."""
    host = Host("north", None, [set_state, set_beside])
    found = []
    for step, value in (
        (set_state, 1.0), (set_beside, 2.0), (set_state, 3.0), (set_beside, 4.0), (set_state, 5.0),
    ):  # fmt: skip
        answer = ask(host, step, value=value)
        host.state = answer.state
        found.append(float(answer.reply["values"][0]))
    assert found == [0.0, 0.0, 1.0, 2.0, 3.0]
    assert {k: float(a[0]) for k, a in host.state.items()} == {"positive": 5, "Beside.positive": 4}


def test_a_step_cannot_write_to_a_read_only_state():
    host = Host("north", np.zeros(3), [set_second, write_first])
    host.state = ask(host, set_second, value=1.0).state
    with pytest.raises(SiteFailed):
        ask(host, write_first)
    assert_array_equal(ask(host, set_second, value=2.0).reply["values"], 0.0)


def test_of_a_read_only_state_what_a_step_leaves_as_it_is_stays_and_the_rest_is_copied():
    data = np.zeros(3)
    host = Host("north", data, [set_second])
    before = host.state = ask(host, set_second, value=1.0).state
    assert before is not None and not np.shares_memory(before["first"], data)
    answer = ask(host, set_second, value=2.0)
    assert answer.state is not None and answer.state["first"] is before["first"]
    assert (before["second"], answer.state["second"]) == (1.0, 2.0)
    assert not np.shares_memory(answer.reply["values"], before["first"])


def test_flags_are_summed_as_counts():
    assert ask(Host("n", None, [count_flags]), count_flags).reply["positive"].dtype == np.int64


@dataclass
class Scaled:
    """A view that counts how often it is applied."""

    by: float
    seen: list[float] = field(default_factory=list)

    @property
    def spec(self) -> str:
        return f'{{"by": {self.by}}}'

    def __call__(self, data: Any) -> Any:
        self.seen.append(self.by)
        return self.by * data


def test_a_view_is_applied_once_and_again_only_when_its_spec_changes():
    seen: list[float] = []
    host = Host("north", np.ones(1), [all_data])
    for by in (2.0, 2.0, 3.0, 3.0, 2.0):
        assert ask(host, all_data, view=Scaled(by, seen)).reply["values"] == by
    assert seen == [2.0, 3.0, 2.0]
    assert ask(host, all_data).reply["values"] == 1.0
