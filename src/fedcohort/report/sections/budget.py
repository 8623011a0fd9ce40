"""What privacy cost: ε and δ of one fit and of the study; a paper's claim where it differs.

Arms whose fits have no noise, such as the bounds of a study, are named: ε says nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, key, more


def section(run: Run) -> Section | None:
    """Return the table of arms with noise; None where there is none."""
    asked: Mapping[str, Any] = run.mapping("privacy").get("dp") or {}
    costs = {a.name: _epsilons(run, a) for a in run.arms}
    arms = [a for a in run.arms if costs[a.name]]
    if not asked or not arms:
        return None
    delta = words.number(asked.get("delta"))
    claims = run.mapping("claims")
    rows: list[list[str | Markup]] = []
    for arm in arms:
        fits = costs[arm.name]
        claim = claims.get(arm.name)
        rows.append(
            [
                key(arm),
                _number(max(fits)),
                words.count(len(fits)),
                _number(sum(fits)),
                str(claim) if claim else words.MISSING,
            ]
        )
    every = sum(sum(f) for f in costs.values())
    n = sum(len(f) for f in costs.values())
    rows.append(["All", "", words.count(n), _number(every), ""])
    unit = "hospital" if asked.get("unit") == "site" else "patient"
    head = ["", "ε of one fit", "Fits", "ε of all fits", "The paper's claim"]
    body = h(
        "div",
        table(head, rows, numeric=(1, 2, 3), caption=f"Privacy spent; δ {delta:g} in each fit"),
        p(_reading(run, unit, every, n * delta), class_="quiet"),
        _without(run, [a for a in run.arms if not costs[a.name]]),
        _releases(run, arms),
    )
    return Section(
        "budget",
        "Privacy budget",
        "What did privacy cost?",
        f"ε bounds how much more likely anything that a fit told can be because one {unit}'s data "
        "were in it: at most e^ε times, but for a chance of δ. Smaller is more private; what is "
        "spent adds up over fits. Table 1 and the metrics are exact, and not covered.",
        body,
    )


def _epsilons(run: Run, arm: Arm) -> list[float]:
    """Return ε of each fit of an arm that added noise."""
    own = [row for key in ("arms", "final") for row in run.rows(key) if row.get("arm") == arm.name]
    return [words.number(row["epsilon"]) for row in own if row.get("epsilon") is not None]


def _reading(run: Run, unit: str, epsilon: float, delta: float) -> str:
    """Return how the totals are to be read."""
    told = (
        f"All fits with noise together are within ε {_number(epsilon)} and δ {delta:.2g} for "
        f"each {unit} (sums over fits: the simplest bound that always holds). "
    )
    if run.deployed and run.results.get("noise") != "seed":
        return told + (
            "Each node keeps an account of all studies on its data set, refuses what would "
            "overspend, and shows it by “fedcohort node budget”."
        )
    return told + (
        "The noise of a simulation is drawn from the study's seed, so that it can be repeated: "
        "whoever knows the seed can take it away. Do not publish this run's models as private."
    )


def _without(run: Run, arms: list[Arm]) -> Markup | None:
    """Return which arms have no noise, whose numbers stand beside the others'."""
    fitted = {str(row.get("arm")) for row in run.rows("arms")}
    names = [a.title for a in arms if a.name in fitted]
    if not names:
        return None
    return p(
        f"Without noise, and not within this ε: {', '.join(names)}. Their results stand beside the "
        "others in this report; whoever sees them learns what no ε bounds.",
        class_="warning",
    )


def _releases(run: Run, arms: list[Arm]) -> Markup | None:
    """Return the noisy replies that each arm's accounting is over."""
    found = run.mapping("releases")
    rows: list[list[str | Markup]] = []
    for arm in arms:
        for r in found.get(arm.name) or ():
            share = words.number(r.get("sampling"))
            rows.append(
                [
                    key(arm),
                    words.spaced(str(r.get("step"))),
                    words.spaced(str(r.get("mechanism"))),
                    words.count(r.get("count")),
                    words.significant(r.get("noise")),
                    "all" if share >= 1 else words.percent(share),
                ]
            )
    if not rows:
        return None
    head = ["", "Answer", "Noise", "Times", "Noise over sensitivity", "Patients in each"]
    caption = "What the accounting is over: each noisy answer of one fit"
    return more("The noisy replies", table(head, rows, numeric=(3, 4, 5), caption=caption))


def _number(epsilon: float) -> str:
    return words.significant(epsilon, 3)
