"""The site's guard: noise of the right size on a grid, counted, and nothing else leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, shapiro

from fedcohort.arrays import Array
from fedcohort.privacy import accounting
from fedcohort.privacy.guard import LEAST_ROWS, SiteGuard, cumulative
from fedcohort.protocol import Dp, Private, Refused, Release, Site, SiteFailed, message, summed
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host


@message
class Told:
    a: Array
    b: Array


@summed
def totals(site: Site[Any, None], *, sampling: float = 1.0) -> Private[Told]:
    """Sum a column, and count."""
    return Private(Told(site.data, np.array(7.0)), {"a": 2.0, "b": 0.5})


@summed
def bare(site: Site[Any, None]) -> Told:
    """The same without noise."""
    return Told(site.data, np.array(7.0))


@summed
def careless(site: Site[Any, None]) -> Private[Told]:
    """Forget what one record changes of a field."""
    return Private(Told(site.data, np.array(7.0)), {"a": 2.0})


DP = Dp(epsilon=3.0, delta=1e-5)


def guard(n: int = 100, *, noise: float = 1.5, count: int = 3, seed: int | None = 1, dp: Dp = DP):
    listed = (Release(step="totals", noise=noise, count=count), Release(step="careless", noise=1.0))
    return SiteGuard("north", "demo", listed, dp, n, seed)


def host(one: SiteGuard | None, column: Array | None = None) -> Host:
    data = np.zeros(4) if column is None else column
    return Host("north", data, (totals, bare, careless), seed=1, guard=one)


def ask(site: Host, step: Any, number: int = 0, share: int = 1, history: str = "", **given: Any):
    call = Call(number, step, "sum", None, Arguments(given, ("north",)), 0, share, history)
    return site.answer(call, given)


def test_a_step_that_returns_private_says_so_and_declares_its_reply():
    assert (totals.private, totals.reply, totals.keeps) == (True, Told, False)
    assert not bare.private


@pytest.mark.parametrize("share", [1, 2, 5])
def test_noise_has_the_deviation_that_multiplier_sensitivity_fields_and_share_say(share: int):
    site = host(guard(), np.zeros(20_000))
    told = ask(site, totals, share=share).reply
    # two fields: √2 times each one's 1.5·Δ
    deviation = 1.5 * 2.0 * np.sqrt(2) / np.sqrt(share)
    assert np.std(told["a"]) == pytest.approx(deviation, rel=0.025)
    assert shapiro(told["a"][:4000]).pvalue > 1e-3
    assert abs(float(told["b"]) - 7.0) < norm.isf(1e-9) * 1.5 * 0.5 * np.sqrt(2)


def test_noisy_values_stand_on_a_grid():
    told = ask(host(guard()), totals).reply["a"]
    step = 2.0**-28  # of noise of deviation 4.24, which is from 2² to 2³: 2 to the power of 2 − 30
    assert np.array_equal(told / step, np.rint(told / step))


def test_two_simulations_draw_the_same_noise_and_two_calls_or_sites_do_not():
    first, again = (ask(host(guard()), totals).reply["a"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, ask(host(guard()), totals, number=1).reply["a"])


def test_a_node_takes_noise_from_the_system_and_draws_from_nobody_s_seed():
    node = guard(seed=None)
    first, again = (ask(host(node), totals).reply["a"] for _ in range(2))
    assert not np.array_equal(first, again)
    call = Call(0, totals, "sum", None, Arguments({}, ("north",)))
    assert node.entropy(call) != node.entropy(call)
    assert guard().entropy(call) is None


def test_whatever_is_not_private_is_refused_and_names_step_and_method():
    with pytest.raises(Refused, match=r"step bare .* private fit of 'demo'") as caught:
        ask(host(guard()), bare)
    assert caught.value.code == "dp"


def test_a_private_step_without_a_guard_is_refused():
    with pytest.raises(Refused, match="step totals leaves with noise alone"):
        ask(host(None), totals)


def test_a_reply_that_states_no_sensitivity_of_a_field_is_refused():
    with pytest.raises(Refused, match="careless gave a reply without the sensitivity"):
        ask(host(guard()), careless)


def test_a_number_that_is_not_finite_does_not_leave_with_noise_either():
    with pytest.raises(SiteFailed, match="not finite"):
        ask(host(guard(), np.array([np.nan])), totals)


def test_replies_are_counted_and_one_more_than_the_list_is_refused():
    site = host(guard(count=3))
    spent = [ask(site, totals, number=i).spent for i in range(3)]
    whole = accounting.epsilon([Release(step="totals", noise=1.5, count=3)], DP.delta)
    assert [s.epsilon for s in spent if s] == sorted({s.epsilon for s in spent if s})
    assert spent[-1] is not None
    assert spent[-1].epsilon == pytest.approx(whole, rel=1e-6)
    with pytest.raises(Refused, match="has had its 3 replies of step totals") as caught:
        ask(site, totals, number=3)
    assert caught.value.code == "budget"


def test_another_history_is_counted_by_itself():
    site = host(guard(count=1))
    ask(site, totals, history="first")
    ask(site, totals, history="second")
    with pytest.raises(Refused, match="has had its 1 reply"):
        ask(site, totals, history="second", number=1)


def test_sampling_in_another_way_than_the_study_says_is_refused():
    with pytest.raises(Refused, match="another way than the study says"):
        ask(host(guard()), totals, sampling=0.5)


def test_a_delta_above_one_over_the_patients_is_refused():
    with pytest.raises(Refused, match="above one over its number of patients"):
        ask(host(guard(1000, dp=Dp(epsilon=1, delta=2e-3))), totals)
    ask(host(guard(500, dp=Dp(epsilon=1, delta=2e-3))), totals)


def test_a_site_with_too_few_rows_takes_no_part():
    with pytest.raises(Refused, match="fewer than 20 rows"):
        ask(host(guard(LEAST_ROWS - 1)), totals)


def test_no_row_is_looked_at_for_a_call_that_is_refused():
    class Untouched:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("data were read")

    site = Host("north", Untouched(), (totals, bare), guard=guard(LEAST_ROWS - 1))
    for step in (totals, bare):
        with pytest.raises(Refused):
            ask(site, step)


def test_what_sampled_releases_have_spent_is_never_less_than_their_own_and_never_above_the_fit_s():
    fit = (Release(step="totals", noise=1.0, count=12, sampling=0.2),)
    limit = accounting.epsilon(fit, 1e-5)
    for n in (1, 3, 5, 12):
        own = (Release(step="totals", noise=1.0, count=n, sampling=0.2),)
        said = cumulative(own, fit, DP)
        assert accounting.epsilon(own, 1e-5) <= said * (1 + 1e-9)
        assert said <= limit


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"epsilon": 0}, "dp.epsilon is 0"),
        ({"epsilon": 1, "delta": 1}, "dp.delta is 1"),
        ({"epsilon": 1, "clip": -1.0}, "dp.clip is -1.0"),
        ({"epsilon": 1, "unit": "ward"}, "dp.unit is 'ward'"),
        ({"epsilon": 1, "dleta": 1e-5}, "no key 'dleta'"),
        ({"delta": 1e-5}, "needs an epsilon"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(given: dict[str, Any], text: str):
    from fedcohort.protocol import SettingError

    with pytest.raises(SettingError, match=text) as caught:
        Dp.of(given)
    assert "\n" not in str(caught.value)
