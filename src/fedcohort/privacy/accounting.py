"""Privacy cost of releases, by the accountants of dp-accounting.

Releases are translated to that library's events, for neighbouring tables that differ by one record
added or removed (or one site, if the unit is a site), and its bounds are returned.

* "pld": privacy loss distributions on a grid, rounded so that ε is never too small; tight. Gaussian
  releases without sampling are first composed to one, z⁻² = Σ count·z_i⁻², which is exact.
* "rdp": Rényi divergences at orders of a grid, converted as in Canonne, Kamath & Steinke (2020).
  Looser and independent: a cross-check.

A sampling probability below 1 lowers ε only if each record is drawn independently in each step
(Poisson sampling), not for batches cut from a shuffled table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import dp_accounting as dpa
import numpy as np
from dp_accounting import pld, rdp

from fedcohort.protocol.errors import SettingError
from fedcohort.protocol.private import Dp, Release

#: Step of the grid of losses, and the factor by which `calibrate` first makes it coarser.
STEP: Final = 1e-4
COARSER: Final = 10.0
#: From this number of releases on, the grid resolves the loss of each.
MANY: Final = 100
#: Range of noise multipliers of `calibrate`.
LEAST_NOISE: Final = 0.1
MOST_NOISE: Final = 1e5
#: `calibrate` finds the smallest noise multiplier up to this factor.
PRECISION: Final = 1.00001
#: Smallest δ: below it, the grid of losses has no tails.
LEAST_DELTA: Final = 1e-12
ACCOUNTANTS: Final = ("pld", "rdp")
RULES: Final = ("analytic", "zhao", "classic", "classic_beyond_proof")


def epsilon(releases: Sequence[Release], delta: float, accountant: str = "pld") -> float:
    """Return the ε of all releases together at this δ; 0 without releases.

    Raises
    ------
    SettingError : δ is not between 1e-12 and 1; a release has no noise, a count below 0 or a
        sampling probability outside (0, 1]; or the accountant is not in `ACCOUNTANTS`.
    """
    _check_delta(delta)
    if accountant not in ACCOUNTANTS:
        raise SettingError(f"no accountant {accountant!r}: take one of {', '.join(ACCOUNTANTS)}")
    return _epsilon(_merged(releases), float(delta), accountant, True)


def delta(releases: Sequence[Release], epsilon: float, accountant: str = "pld") -> float:
    """Return the δ of all releases together at this ε ≥ 0; 0 without releases.

    Raises
    ------
    SettingError : ε is negative or no number; or as for `epsilon`.
    """
    if not 0 <= epsilon < math.inf:
        raise SettingError(f"epsilon {epsilon:g}: it must be 0 or more, and finite")
    if accountant not in ACCOUNTANTS:
        raise SettingError(f"no accountant {accountant!r}: take one of {', '.join(ACCOUNTANTS)}")
    return _delta(_merged(releases), float(epsilon), accountant)


def calibrate(make: Callable[[float], Sequence[Release]], dp: Dp) -> float:
    """Return the smallest noise multiplier z with `epsilon(make(z), dp.delta) ≤ dp.epsilon`.

    It is the smallest up to a factor of `PRECISION`, and at least 0.1.

    Parameters
    ----------
    make : the releases of a fit with this z; each release's noise must not fall as z grows.

    Raises
    ------
    SettingError : δ is below 1e-12; no z up to 1e5 is enough.
    """
    _check_delta(dp.delta)

    target = float(dp.epsilon)

    def cost(z: float, fine: bool = True) -> float:
        return _epsilon(_merged(make(z)), float(dp.delta), "pld", fine)

    high = 1.0
    while high <= MOST_NOISE and cost(high, False) > target:
        high *= 2
    if high > MOST_NOISE:
        raise SettingError(
            f"epsilon {target:g} with delta {dp.delta:g} cannot be met: noise of {high / 2:.3g} "
            f"times the sensitivity still costs {cost(high / 2):.3g}. Ask for a larger epsilon, or "
            "for fewer rounds."
        )
    low = high / 2
    while low > LEAST_NOISE and cost(low, False) <= target:
        low, high = low / 2, low
    if low <= LEAST_NOISE and cost(LEAST_NOISE) <= target:
        return LEAST_NOISE
    low = max(low, LEAST_NOISE)
    z = _crossing(lambda z: cost(z, False), target, low, high)
    return _refined(cost, target, z)


def _crossing(cost: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return z with cost(z) = target to a relative 1e-3, by bisection of log z."""
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > target else (low, middle)
    return math.sqrt(low * high)


def _refined(cost: Callable[[float], float], target: float, z: float) -> float:
    """Return the smallest z with cost(z) ≤ target, from a z near it: secants of logarithms.

    The steps end below `PRECISION`; z is then raised until it is enough, faster each time.
    """
    floor = 1e-6 * target
    last, slope = math.log(max(cost(z), floor) / target), -1.0
    for _ in range(8):
        step = min(max(-last / slope, -0.01), 0.01)
        if abs(step) < 0.2 * (PRECISION - 1):
            break
        z *= math.exp(step)
        now = math.log(max(cost(z), floor) / target)
        slope = min((now - last) / step, -0.2)
        last = now
    by = PRECISION
    while cost(z) > target:
        z, by = z * by, by * by
    return z


@lru_cache(maxsize=256)
def gaussian_sigma(epsilon: float, delta: float, rule: str = "analytic") -> float:
    """Return σ of the Gaussian mechanism for one release of sensitivity 1.

    Parameters
    ----------
    rule : "analytic", the smallest possible (Balle & Wang, ICML 2018); "zhao", the bound
        (c + √(c² + ε)) / (ε√2), c² = ln(2 / (√(16δ + 1) − 1)), of Zhao et al. (2019), theorem 5;
        "classic", √(2 ln(1.25/δ)) / ε, whose proof (Dwork & Roth 2014, theorem A.1) needs ε < 1;
        "classic_beyond_proof", the same at any ε, to repeat a paper's numbers: it gives less
        privacy than it says (ε 10, δ 0.01: its δ is 0.0406).

    Raises
    ------
    SettingError : ε or δ out of range; a rule that is none of `RULES`; "classic" at ε ≥ 1.
    """
    if not 0 < epsilon < math.inf:
        raise SettingError(f"epsilon {epsilon:g}: it must be above 0, and finite")
    if not 0 < delta < 1:
        raise SettingError(f"delta {delta:g}: it must be above 0 and below 1")
    if rule == "analytic":
        return float(dpa.get_sigma_gaussian(epsilon, delta))
    if rule == "zhao":
        c_squared = math.log(2 / math.expm1(0.5 * math.log1p(16 * delta)))
        return (math.sqrt(max(c_squared, 0.0)) + math.sqrt(max(c_squared, 0.0) + epsilon)) / (
            epsilon * math.sqrt(2)
        )
    if rule == "classic" and epsilon >= 1:
        raise SettingError(
            f"the classic formula is proved for epsilon below 1 only, not for {epsilon:g}: take "
            "rule analytic; classic_beyond_proof repeats what a paper printed, with less privacy"
        )
    if rule in ("classic", "classic_beyond_proof"):
        return math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    raise SettingError(f"no rule {rule!r}: take one of {', '.join(RULES)}")


def _merged(releases: Sequence[Release]) -> tuple[tuple[str, float, float, int], ...]:
    """Return the different releases as (mechanism, sampling, noise, count), sorted and hashable.

    Gaussian releases of all records are composed to one: a Gaussian with z⁻² = Σ count·z_i⁻².
    """
    counts: dict[tuple[str, float, float], int] = {}
    precision = 0.0
    for release in releases:
        _check_release(release)
        if release.mechanism == "gaussian" and release.sampling == 1:
            precision += release.count / release.noise**2
        elif release.count:
            key = (release.mechanism, float(release.sampling), float(release.noise))
            counts[key] = counts.get(key, 0) + release.count
    if precision:
        counts["gaussian", 1.0, precision**-0.5] = 1
    return tuple((*key, count) for key, count in sorted(counts.items()))


@lru_cache(maxsize=4096)
def _epsilon(
    merged: tuple[tuple[str, float, float, int], ...], delta: float, accountant: str, fine: bool
) -> float:
    if not merged:
        return 0.0
    alone = _one_gaussian(merged)
    if alone is not None and accountant == "pld":
        with np.errstate(divide="ignore"):  # the library takes log 0 where ε is nearly 0
            return float(dpa.get_epsilon_gaussian(alone, delta))
    return float(_composed(merged, accountant, fine).get_epsilon(delta))


@lru_cache(maxsize=4096)
def _delta(
    merged: tuple[tuple[str, float, float, int], ...], epsilon: float, accountant: str
) -> float:
    if not merged:
        return 0.0
    return float(_composed(merged, accountant, True).get_delta(epsilon))


def _one_gaussian(merged: tuple[tuple[str, float, float, int], ...]) -> float | None:
    """Return z if all releases are one Gaussian of all records."""
    if len(merged) == 1 and merged[0][:2] == ("gaussian", 1.0):
        return merged[0][2]
    return None


def _composed(
    merged: tuple[tuple[str, float, float, int], ...], accountant: str, fine: bool
) -> dpa.PrivacyAccountant:
    relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    if accountant == "pld":
        composed: dpa.PrivacyAccountant = pld.PLDAccountant(relation, _grid(merged, fine))
    else:
        composed = rdp.RdpAccountant(neighboring_relation=relation)
    for mechanism, sampling, noise, count in merged:
        kind = dpa.GaussianDpEvent if mechanism == "gaussian" else dpa.LaplaceDpEvent
        event: dpa.DpEvent = kind(noise)
        if sampling < 1:
            event = dpa.PoissonSampledDpEvent(sampling, event)
        try:
            composed.compose(event, count)
        except dpa.UnsupportedEventError as error:
            raise SettingError(
                f"the {accountant} accountant has no {mechanism} noise on a sample: take pld"
            ) from error
    return composed


def _grid(merged: tuple[tuple[str, float, float, int], ...], fine: bool) -> float:
    """Return a sufficiently fine step of the grid of losses.

    It is coarser than `STEP` if one release loses up to hundreds (memory), and finer if all
    releases together lose less than about 0.1, or one of many loses little (rounding adds up).
    """
    widest = max(6 / noise + 0.5 / noise**2 for _, _, noise, _ in merged)
    together = math.sqrt(sum(count * (q / noise) ** 2 for _, q, noise, count in merged))
    step = STEP * max(1.0, widest / 10) * min(1.0, max(together, 1e-5) / 0.1)
    each = min((q / noise for _, q, noise, count in merged if count >= MANY), default=math.inf)
    return min(step, 0.2 * each) if fine else min(step * COARSER, 0.5 * each)


def _check_delta(delta: float) -> None:
    if not LEAST_DELTA <= delta < 1:
        raise SettingError(
            f"delta {delta:g}: it must be between {LEAST_DELTA:g} and 1, and below 1 over the "
            "number of patients"
        )


def _check_release(release: Release) -> None:
    if release.mechanism not in ("gaussian", "laplace"):
        raise SettingError(
            f"release {release.step}: no mechanism {release.mechanism!r}: gaussian or laplace"
        )
    if not 0 < release.noise < math.inf or release.count < 0 or not 0 < release.sampling <= 1:
        raise SettingError(
            f"release {release.step}: noise {release.noise:g}, count {release.count}, sampling "
            f"{release.sampling:g}: noise must be above 0, count 0 or more, sampling in (0, 1]"
        )
