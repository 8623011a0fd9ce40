"""Whether the noise of a private fit is more than all of its records together can outweigh.

A release of multiplier z has noise of standard deviation z Δ in each number (Laplace: √2 z Δ), and
a record moves it by Δ at most, so n records by n Δ. Of all releases of a fit, r_i of each kind,
with samples of q_i, the records stand out by

    n √(Σ r_i q_i²/z_i²)  standard deviations at most                                      (1)

in the one direction in which all of them agree. Below 1 what is fitted is drawn from the noise. It
is a bound: well above 1 a fit may be useless as well.

(1) grows with ε, so that the least ε for n records is found by bisection, to one digit.

Revealed: nothing; this is made from a study's text and the number of records (or sites).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fedcohort.protocol import Dp, Method, Release, SettingError
from fedcohort.study import private

#: What ε may be, to one digit: 1, 2, … 9 of each power of ten.
DIGITS = tuple(float(f"{d}e{power}") for power in range(-12, 4) for d in range(1, 10))


def needed(releases: Sequence[Release]) -> float:
    """Return n for which eq. (1) is 1: records, or sites."""
    spread = {"gaussian": 1.0, "laplace": math.sqrt(2.0)}
    told = sum(r.count * (r.sampling / (spread[r.mechanism] * r.noise)) ** 2 for r in releases)
    return 1.0 / math.sqrt(told)


def drowned(method: Method, config: Any, dp: Dp | None, units: int) -> str:
    """Say that a fit can hold nothing but noise, and from which ε on it can; "" where it can.

    Parameters
    ----------
    config : the settings of the fit.
    dp : what it was asked for; None without noise.
    units : records that it learns from, or sites where these are protected.
    """
    if dp is None or units >= needed(private.releases(method, config, dp)):
        return ""
    what = "sites" if dp.unit == "site" else "records"
    said = (
        f"epsilon {dp.epsilon:g} takes more noise than all {what} together outweigh: the result "
        f"can hold nothing of them"
    )
    least = next(_enough(method, config, dp, units), None)
    return said if least is None else f"{said}; the least epsilon for so many is {least:g}"


def _enough(method: Method, config: Any, dp: Dp, units: int) -> Iterator[float]:
    """Yield the least ε of one digit for which so many units are enough, if there is one."""

    def enough(epsilon: float) -> bool:
        try:
            listed = private.releases(method, config, replace(dp, epsilon=epsilon))
        except SettingError:  # too little for any noise that can be drawn
            return False
        return units >= needed(listed)

    larger = [e for e in DIGITS if dp.epsilon < e <= 1000.0]
    yield from larger[bisect.bisect_left(larger, True, key=enough) :][:1]
