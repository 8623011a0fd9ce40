"""Models for all hospitals in one fit: each hospital's gain on its own test patients.

Files: results.json, `arms` (metrics named ``…_own``, by site) and `comparisons`; only of a study
with an arm that has a model for each site (``user: all``).
"""

from __future__ import annotations

from collections.abc import Sequence

from fedcohort.report import words
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, first_setting, more
from fedcohort.report.words import estimate, fixed

#: Metrics of a hospital's own test patients, by kind of task.
OWN = ("c_index", "auc", "r2")
#: Open hospitals of more than twice as many: those that gain least.
LEAST = 15


def section(run: Run) -> Section | None:
    """Return tables by hospital and of all hospitals; None if no arm has a model for each."""
    every = [a for a in run.together if a.every]
    if not every:
        return None
    names = words.listed([f"“{a.title}”" for a in every])
    judged = (
        "Every column is judged on the same rows: the hospital's own test patients"
        if any(_at_home(run, c) for c in run.scenarios)
        else "Test patients belong to no hospital here, so every model is judged on all of them"
    )
    intro = (
        f"{names} {'trains' if len(every) == 1 else 'train'} a model for every hospital at once. "
        f"Each model stays at its hospital. {judged}; means over repeats."
    )
    shown = first_setting(run, [*run.scenarios], lambda c: _hospitals(run, every, c))
    gains = _gains(run, every)
    rest = more("Differences to the other models, all metrics", gains) if gains else None
    return Section(
        "own", "Own models", "What does each hospital's own model gain?", intro,
        h("div", shown, rest),
    )  # fmt: skip


def _at_home(run: Run, scenario: str) -> bool:
    """Return whether models are judged on hospitals' own test patients."""
    rules = (s.get("rule") for s in run.rows("scenarios") if s["scenario"] == scenario)
    local = bool(run.mapping("evaluate").get("local"))
    return local or "natural" in rules or _own(run, scenario) is not None


def _own(run: Run, scenario: str) -> str | None:
    """Return the metric of hospitals' own test patients: the report's first one, or another."""
    for metric in (run.metric, *run.metrics, *OWN):
        if any(run.by_site(a.name, scenario, f"{metric}_own") for a in run.arms):
            return metric
    return None


def _hospitals(run: Run, every: Sequence[Arm], scenario: str) -> Markup | None:
    """Return a row for each hospital and one of all, with a column for each arm."""
    own = _own(run, scenario)
    if own is None and _at_home(run, scenario):
        return h("p", "No hospital has enough test patients to be judged by itself.")
    known = run.known(own or run.metric)
    metric = f"{own}_own" if own else run.metric
    found = {a.name: run.by_site(a.name, scenario, metric) for a in run.arms}
    shown = [a for a in run.arms if found[a.name]]
    sites = sorted({s for a in shown for s in found[a.name]}, key=natural)
    if not sites:
        return None
    against = [a for a in shown if not a.every]
    by_site = {
        site: [
            site + _patients(run, scenario, site),
            *(fixed(_mean(found, a, site), known.digits) for a in shown),
            *(_gain(found, every[0], a, site, known.digits) for a in against),
        ]
        for site in sites
    }
    whole = {
        a.name: mean([*run.values(a.name, scenario, own or run.metric).values()]) for a in run.arms
    }
    last = [
        "All hospitals",
        *(fixed(whole[a.name], known.digits) for a in shown),
        *(_change(whole[every[0].name] - whole[a.name], known.digits) for a in against),
    ]
    title = every[0].title
    head = ["Hospital (patients)", *(a.title for a in shown),
            *(f"{title} less {a.title}" for a in against)]  # fmt: skip
    where = "the hospital's own test patients" if own else "all test patients"
    better = {1: " Differences above 0 are gains.", -1: " Differences below 0 are gains."}
    caption = (
        f"{known.axis} on {where}, {run.scenarios[scenario]}.{better.get(known.sign, '')} "
        f"{words.MISSING}: too few patients to judge. All hospitals: ranks compare patients of "
        f"one hospital."
    )

    def drawn(some: Sequence[str]) -> Markup:
        rows = [*(by_site[site] for site in some), last]
        return table(head, rows, numeric=range(1, len(head)), caption=caption)

    if len(sites) <= 2 * LEAST or not against:
        return drawn(sites)
    sign, other = known.sign or 1, against[0]
    gain = {s: sign * (_mean(found, every[0], s) - _mean(found, other, s)) for s in sites}
    least = sorted((s for s in sites if gain[s] == gain[s]), key=lambda s: gain[s])[:LEAST]
    many = words.of(len(sites), "hospital")
    return join(
        h("p", f"The {len(least)} of {many} that gain least over {other.title}:"),
        drawn(sorted(least, key=natural)),
        more(f"All {many}", drawn(sites)),
    )


def _patients(run: Run, scenario: str, site: str) -> str:
    people = words.number(run.sites(scenario).get(site, {}).get("rows"))
    return f" ({words.count(people)})" * (people == people)


def _mean(found: dict[str, dict[str, list[float]]], arm: Arm, site: str) -> float:
    return mean(found[arm.name].get(site, []))


def _gain(
    found: dict[str, dict[str, list[float]]], arm: Arm, other: Arm, site: str, digits: int
) -> str:
    return _change(_mean(found, arm, site) - _mean(found, other, site), digits)


def _change(value: float, digits: int) -> str:
    return "+" * (round(value, digits) > 0) + fixed(value, digits)


def _gains(run: Run, every: Sequence[Arm]) -> Markup | None:
    """Return the differences of models for each hospital to the other arms, with intervals."""
    titles, own = {a.name: a.title for a in run.arms}, {a.name for a in every}
    body: list[list[str]] = []
    for c in run.rows("comparisons"):
        arm, against, scenario, name = (str(c[k]) for k in ("arm", "against", "scenario", "metric"))
        if not {arm, against} & own or run.known(name).is_p:
            continue
        turn = 1.0 if arm in own else -1.0
        low, high = sorted(turn * words.number(c.get(k)) for k in ("low", "high"))
        value = turn * words.number(c.get("difference"))
        first, second = (arm, against) if turn > 0 else (against, arm)
        body.append(
            [
                run.scenarios[scenario], run.known(name).label,
                f"{titles[first]} less {titles[second]}",
                estimate(value, low, high, run.known(name).digits),
            ]
        )  # fmt: skip
    head = ["Setting", "Metric", "Models", "Difference (95 % interval)"]
    return table(head, body, numeric=(3,), caption="Over all hospitals") if body else None
