"""What the fits of a study's rehearsal say, as findings of `fedcohort data check`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fedcohort.data.check import ERROR, WARNING, Finding
from fedcohort.protocol import registry
from fedcohort.study.file.plan import Plan
from fedcohort.study.run.rehearsal import Tried
from fedcohort.study.run.warnings import filled_note, free_parameters
from fedcohort.study.sites.layout import Table

#: Fewer events for each coefficient ask for a penalty (Peduzzi et al., J Clin Epidemiol 49, 1996).
EVENTS_EACH = 10
#: Settings that are one.
PENALTIES = ("l1", "l2", "penalty")
#: A number that differs between arms of one fault.
_RATIO = re.compile(r" \(eigenvalue ratio [^)]*\)")
#: What stands behind a refusal that says nothing of a remedy.
OTHERWISE = "Change the arm, or leave it out."


def told_of_fits(file: str, plan: Plan, table: Table, tried: Sequence[Tried]) -> list[Finding]:
    """Return what methods refuse, as errors, and what they would have known, as warnings.

    A refusal is a warning where the arm is tuned: another candidate may be taken.
    """
    refused: dict[str, list[Tried]] = {}
    said: dict[str, list[Tried]] = {}
    for one in tried:
        if one.refused:
            refused.setdefault(_RATIO.sub("", one.refused), []).append(one)
        if one.run is None:
            continue
        # such as of clusters not found; after one round only what settings tell of all rounds
        cautions = _of_settings(plan, one) if one.short else one.run.model.cautions()
        for note in filter(None, (*cautions, filled_note(one.run.design))):
            said.setdefault(note, []).append(one)
    found = [
        _finding(file, plan, "fit", text, ones, "cannot be fitted")
        for text, ones in refused.items()
    ]
    found += [
        Finding(file, "fit", WARNING, f"{_arms(plan, ones)}: {note}", "The report will say so.")
        for note, ones in said.items()
    ]
    return found + _left_out(file, plan, table, tried) + _few(file, plan, table, tried)


def _of_settings(plan: Plan, one: Tried) -> tuple[str, ...]:
    """Return a warning if the rounds of an arm are too few for its number of sites."""
    if plan.privacy.dp is not None or one.arm.scope != "sites" or plan.is_tuned(one.arm):
        return ()
    settings = registry.find(one.arm.method).configure(one.arm.configured())
    return (settings.unfinished(one.sites),)


def _few(file: str, plan: Plan, table: Table, tried: Sequence[Tried]) -> list[Finding]:
    """Return the unpenalised regressions with few events, or rows of a class, per coefficient."""
    said: dict[str, list[Tried]] = {}
    kept = 1 - plan.test_fraction
    for one in tried:
        method = registry.find(one.arm.method)
        if one.run is None or one.arm.scope != "sites" or "summary" not in method.gives:
            continue
        settings = method.configure(one.arm.configured())
        if any(getattr(settings, key, 0) for key in PENALTIES):
            continue
        if table.outcome is None or not (table.outcome.has_events or table.outcome.has_classes):
            continue
        design = one.run.design
        features, classes = len(design.features), len(design.classes)
        n = free_parameters(one.arm.method, one.arm.configured(), features, classes)
        events, what = table.outcome.fewest(table.frame), table.outcome.counted
        if kept * events < EVENTS_EACH * n:
            text = (
                f"{n} coefficients, and about {kept * events:.0f} {what} to train on: fewer "
                f"than {EVENTS_EACH} for each"
            )
            said.setdefault(text, []).append(one)
    remedy = "Leave columns out, or set a ridge penalty."
    return [
        Finding(file, "few events", WARNING, _has(plan, ones) + text, remedy)
        for text, ones in said.items()
    ]


def _has(plan: Plan, ones: Sequence[Tried]) -> str:
    return f"{_arms(plan, ones)} {'have' if len({one.arm.name for one in ones}) > 1 else 'has'} "


def _left_out(file: str, plan: Plan, table: Table, tried: Sequence[Tried]) -> list[Finding]:
    """Return the covariates that fits leave out for what the rows hold."""
    why: dict[tuple[str, str], list[Tried]] = {}
    for one in tried:
        for name, reason in one.run.design.dropped.items() if one.run else ():
            if table.dictionary[name].usable:
                why.setdefault((name, reason), []).append(one)
    return [
        Finding(
            file, "fit", WARNING, f"column {name!r} is left out by {_arms(plan, ones)} ({reason})",
            "Is it the right column?", column=name,
        )
        for (name, reason), ones in why.items()
    ]  # fmt: skip


def _finding(
    file: str, plan: Plan, rule: str, text: str, ones: Sequence[Tried], what: str
) -> Finding:
    first, stop, remedy = text.rstrip(".").partition(". ")
    severity = WARNING if all(plan.is_tuned(one.arm) for one in ones) else ERROR
    remedy = f"{remedy}." if stop else OTHERWISE
    return Finding(file, rule, severity, f"{_arms(plan, ones)} {what}: {first}", remedy)


def _arms(plan: Plan, ones: Iterable[Tried]) -> str:
    """Name arms, and scenarios where there are several."""
    names: dict[str, list[str]] = {}
    for one in ones:
        names.setdefault(one.arm.name, []).append(one.scenario.name)
    several = len(plan.scenarios) > 1
    said = [
        repr(arm) + (f" ({', '.join(scenarios)})" if several else "")
        for arm, scenarios in names.items()
    ]
    if len(said) == 1:
        return f"arm {said[0]}"
    return f"arms {', '.join(said[:-1])} and {said[-1]}"
