"""Common parts of sections on clusters and latent coordinates: rows of fits, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.charts import LOOKS
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import same_for
from fedcohort.report.sections.cohort import HIDDEN
from fedcohort.report.verdict import leading

Row = Mapping[str, Any]
#: An arm and a setting.
Fit = tuple[Arm, str]


def fits(run: Run, key: str) -> list[Fit]:
    """Return the fits with such rows, those of the leading arm first.

    Pooled data are the same in every setting, and appear once.
    """
    first = leading(run)
    arms = [*([first] if first else []), *(a for a in run.arms if a is not first)]
    has = {(str(r["arm"]), str(r["scenario"])) for r in run.rows(key)}
    found = [(a, c) for a in arms for c in run.scenarios if (a.name, c) in has]
    seen: set[str] = set()
    out: list[Fit] = []
    for arm, scenario in found:
        if arm is run.upper and arm.name in seen:
            continue
        seen.add(arm.name)
        out.append((arm, scenario))
    return out


def led(drawn: Sequence[tuple[Fit, Markup]]) -> Markup:
    """Return the blocks of the first fit's arm; those of other arms are folded."""
    lead = drawn[0][0][0]
    first = [block for fit, block in drawn if fit[0] is lead]
    others = [(fit[0].title, block) for fit, block in drawn if fit[0] is not lead]
    return h("div", first, same_for((title for title, _ in others), [b for _, b in others]))


def firsts(run: Run, key: str) -> list[Fit]:
    """Return each arm's first setting that has such rows, the leading arm's first."""
    out: dict[str, Fit] = {}
    for arm, scenario in fits(run, key):
        out.setdefault(arm.name, (arm, scenario))
    return list(out.values())


def rows(run: Run, key: str, fit: Fit) -> list[Row]:
    """Return a fit's rows of one kind."""
    arm, scenario = fit
    return [r for r in run.rows(key) if r["arm"] == arm.name and r["scenario"] == scenario]


def clusters(found: Sequence[Row]) -> list[int]:
    """Return the clusters that some rows are of, in order."""
    return sorted({int(r["cluster"]) for r in found})


def title(run: Run, fit: Fit) -> str:
    """Return a fit's title: its arm, and its setting where there are several."""
    arm, scenario = fit
    several = len(run.scenarios) > 1 and arm is not run.upper
    return f"{arm.title}, {run.scenarios[scenario]}" if several else arm.title


def name(cluster: int) -> str:
    """Return how the page calls a cluster."""
    return f"Cluster {cluster}"


def look(cluster: int) -> str:
    """Return a cluster's colour and mark."""
    return LOOKS[cluster % len(LOOKS)]


def seen(run: Run) -> str:
    """Return the patients of features and maps: over a network those that no fit has seen."""
    return "blind" if run.deployed else "training"


def counted(value: Any) -> str:
    """Return a count, or that it is hidden."""
    n = words.number(value)
    return words.count(n) if n == n else HIDDEN


def hidden_note(run: Run, found: Sequence[Any]) -> str:
    """Return the meaning of "hidden", if some values are hidden; else nothing."""
    if not any(v is None for v in found):
        return ""
    least = words.number(
        run.mapping("privacy").get("min_cell") or run.mapping("cohort").get("min_cell")
    )
    few = f"fewer than {words.count(least)} patients" if least == least else "few patients"
    return f"“{HIDDEN}” is of {few}, or would tell of so few with what is shown."


def folded(run: Run, key: str, draw: Callable[[Fit], Markup | None]) -> Markup | None:
    """Return the leading arm's first setting, and the other arms' folded; None without any."""
    drawn = [(fit, found) for fit in firsts(run, key) if (found := draw(fit)) is not None]
    if not drawn:
        return None
    return led(drawn)
