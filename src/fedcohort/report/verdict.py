"""The verdict on each arm, and the page's first sentence.

An arm helped if its interval against the lower bound (eq. (2) of `share`) lies above 0. A share of
the gap is claimed only if the gap itself is clear by the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedcohort.report import cluster_verdict, latent_verdict, words
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.share import Share
from fedcohort.report.words import fixed

#: What an arm did in a scenario.
HELPED, AHEAD, UNCLEAR, WORSE, NO_GAP, SINGLE, MISSING, ALONE = (
    "helped", "ahead", "unclear", "worse", "no gap", "single", "missing", "alone",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What an arm did in a scenario, and the share that says how much."""

    scenario: str
    kind: str
    share: Share | None


def judge(run: Run, arm: Arm, scenario: str) -> Verdict:
    """Return the verdict on an arm in a scenario."""
    if run.summary(arm.name, scenario) is None:
        return Verdict(scenario, MISSING, None)
    share = run.share(arm.name, scenario)
    if share is None or run.lower is None or run.upper is None:
        return Verdict(scenario, ALONE, None)
    gain, gap = share.gain, share.gap
    if math.isnan(gain.low) or math.isnan(gap.low):
        kind = SINGLE if gap.value > 0 else NO_GAP
    elif gain.side < 0:
        kind = WORSE
    elif gap.side < 1:
        kind = AHEAD if gain.side > 0 else NO_GAP
    else:
        kind = HELPED if gain.side > 0 else UNCLEAR
    return Verdict(scenario, kind, share)


def leading(run: Run) -> Arm | None:
    """Return the arm the page leads with: most scenarios answered, then the highest mean share.

    Without bounds, the best mean of the leading metric; of clusters, see `cluster_verdict`. Of arms
    that differ in latent dimensions alone, one that chose their number represents them.
    """
    if run.task == "clustering":
        return cluster_verdict.leading(run)
    sign = run.known().sign or 1

    def rank(arm: Arm) -> tuple[int, float, float]:
        found = [s for c in run.scenarios if (s := run.summary(arm.name, c))]
        shares = [s.value for c in run.scenarios if (s := run.share(arm.name, c))]
        real = [s for s in shares if not math.isnan(s)]
        level = sign * mean([s.mean for s in found]) if found else -math.inf
        return len(found), mean(real) if real else -math.inf, level

    arms = [a for a in run.together if any(run.summary(a.name, c) for c in run.scenarios)]
    return max(latent_verdict.without_alike(run, arms), key=rank, default=None)


def answer(run: Run) -> str:
    """Return the headline."""
    arm = leading(run)
    if arm is None:
        failed = any(run.failures(a.name) for a in run.together)
        return (
            "No way of training together finished: there is no result to report."
            if failed
            else "No arm of this study trains together: only the bounds are shown."
        )
    if run.task == "clustering":
        return cluster_verdict.answer(run, arm)
    if run.task == "latent" and (said := latent_verdict.answer(run, arm)):
        return said
    verdicts = [judge(run, arm, c) for c in run.scenarios]
    shown = [v for v in verdicts if v.kind != MISSING]
    if all(v.kind == ALONE for v in shown):
        levels = [s.mean for v in shown if (s := run.summary(arm.name, v.scenario))]
        return f"Training together reached {_reached(run, levels)}."
    if any(v.kind == SINGLE for v in shown):
        return _too_few(run, arm, shown)
    helped = [v for v in shown if v.kind == HELPED]
    if helped:
        return _helped(run, arm, shown, helped)
    ahead = [v for v in shown if v.kind == AHEAD]
    if ahead:
        return _ahead(run, arm, shown, ahead)
    kinds = {v.kind for v in shown}
    n = len(shown)
    where = "" if n == 1 else " in either setting" if n == 2 else f" in any of {n} settings"
    if kinds == {NO_GAP}:
        return (
            "There was no clear gap to close: all data in one place did not clearly beat a "
            f"hospital alone{where}."
        )
    if kinds == {WORSE}:
        return f"Training together did worse than a hospital alone{_where(shown, shown)}."
    return f"Training together did not clearly beat a hospital alone{where}."


def _helped(run: Run, arm: Arm, shown: list[Verdict], helped: list[Verdict]) -> str:
    """Return the headline of an arm that helped in at least one scenario."""
    shares = [_capped(v.share.value) for v in helped if v.share]
    bounds = [
        [s.mean for v in helped if (s := run.summary(b.name, v.scenario))]
        for b in (run.lower, run.upper)
        if b
    ]
    known = run.known()
    closed = (
        "all" if min(shares) == 1 else
        "none" if max(shares) <= 0 else
        _range([100 * s for s in shares], lambda s: fixed(s, 0)) + " %"
    )  # fmt: skip
    if len(helped) == 1 and (s := helped[0].share):
        interval = words.between(100 * s.low, 100 * s.high, 0)
        exact = words.fixed(100 * s.low, 0) == words.fixed(100 * s.high, 0)
        closed += f" (95 % interval {interval} %)" * bool(interval and not exact)
    sentence = (
        f"closed {closed} of the gap between a hospital alone ({words.inline(known.label)} "
        f"{_levels(run, bounds[0])}{known.after}) and all data in one place "
        f"({_levels(run, bounds[1])}{known.after})"
    )
    return f"Training together {sentence}{_where(helped, shown)}."


def _too_few(run: Run, arm: Arm, shown: list[Verdict]) -> str:
    """Return the headline of so few repeats that no gap can be told from chance."""
    few = "In a single run" if run.repeats == 1 else f"In only {run.repeats} runs"
    reached, alone, pooled = (
        [s.mean for v in shown if a and (s := run.summary(a.name, v.scenario))]
        for a in (arm, run.lower, run.upper)
    )
    alone, pooled = _levels(run, alone), _levels(run, pooled)
    return (
        f"{few}, training together reached {_reached(run, reached)}, a hospital alone {alone}, and "
        f"all data in one place {pooled}: too few runs to tell them apart"
        + ", since patients cannot be drawn again over a network" * run.deployed
        + "."
    )


def _ahead(run: Run, arm: Arm, shown: list[Verdict], ahead: list[Verdict]) -> str:
    """Return the headline of an arm that helped where pooling all data did not clearly help."""
    alone, reached = (
        _levels(run, [s.mean for v in ahead if (s := run.summary(a.name, v.scenario))])
        for a in (run.lower or arm, arm)
    )
    known = run.known()
    levels = f"{words.inline(known.label)} {reached} against {alone}{known.after}"
    return (
        f"Training together beat a hospital alone ({levels}){_where(ahead, shown)}; all data in "
        "one place did not clearly do so."
    )


def _where(some: list[Verdict], shown: list[Verdict]) -> str:
    """Return in how many of the settings, where there are several."""
    if len(shown) == 1:
        return ""
    many = "both" if len(shown) == 2 else f"all {len(shown)}"
    return f", in {many if len(some) == len(shown) else f'{len(some)} of {len(shown)}'} settings"


def _capped(share: float) -> float:
    """Return a share as the headline says it: more than the whole gap is the whole gap."""
    return 1.0 if share >= 0.995 else share


def _reached(run: Run, values: list[float]) -> str:
    """Return the leading metric and its values as a sentence has them: an RMSE of 5.4–5.6 mmHg."""
    known = run.known()
    return f"{words.with_article(known.label)} of {_levels(run, values)}{known.after}"


def _levels(run: Run, values: list[float]) -> str:
    """Return the range of the leading metric's values."""
    digits = run.known().digits
    return _range(values, lambda v: fixed(v, digits))


def _range(values: list[float], form: Callable[[float], str]) -> str:
    """Return the values' range, or the one value if they print alike."""
    low, high = form(min(values)), form(max(values))
    if low == high:
        return low
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"
