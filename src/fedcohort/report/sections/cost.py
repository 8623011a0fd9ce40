"""Cost: seconds, rounds and bytes of one training run of each arm."""

from __future__ import annotations

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, key, more


def section(run: Run) -> Section | None:
    """Return the table of costs, over scenarios, and by scenario where there are several."""
    body = [r for a in run.arms if (r := _row(run, a, None))]
    if not body:
        return None
    head = ["", "Time", "Rounds", "From hospitals", "To hospitals"]
    whole = words.number(run.results.get("seconds"))
    total = p(f"The whole study took {words.duration(whole)}.", class_="quiet")
    by_scenario: Markup | None = None
    if len(run.scenarios) > 1:
        parts = [
            table(head, found, numeric=range(1, 5), caption=title)
            for c, title in run.scenarios.items()
            if (found := [r for a in run.arms if (r := _row(run, a, c))])
        ]
        by_scenario = more("By setting", *parts)
    return Section(
        "cost",
        "Time and traffic",
        "What does it cost?",
        "One training run, mean over settings and repeats. "
        + (
            "Times are the coordinator's, with all waiting for hospitals; what a hospital computes "
            "alone is not in them. "
            if run.deployed
            else "Times are of this computer, without a network between hospitals. "
        )
        + "What comes from and goes to hospitals is the sum over them.",
        h("div", table(head, body, numeric=range(1, 5), caption="Cost of one training run"),
          by_scenario, total if whole == whole else None),
    )  # fmt: skip


def _row(run: Run, arm: Arm, scenario: str | None) -> list[str | Markup] | None:
    """Return one arm's means; rows of single sites are parts of another row, and left out."""
    found = [
        r
        for r in run.rows("arms")
        if r["arm"] == arm.name
        and r.get("site") is None
        and scenario in (None, r["scenario"])
        and r.get("status", "done") == "done"
    ]
    if not found:
        return None
    means = [
        mean([x for r in found if (x := words.number(r.get(k))) == x])
        for k in ("seconds", "rounds", "bytes_up", "bytes_down")
    ]
    return [
        key(arm),
        words.duration(means[0]),
        words.count(means[1]),
        words.size(means[2]),
        words.size(means[3]),
    ]
