"""Each hospital's own test patients beside all test patients, as in Nolte et al. (2023), table 1.

Files: results.json, `arms` (metrics named ``…_own``) and `summary`; only of a study with
``evaluate: {local: true}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedcohort.report.charts import Row, figure, interval_rows
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, first_setting, more
from fedcohort.report.words import fixed

_NAN = float("nan")


class Pair(NamedTuple):
    """A metric on hospitals' own test patients, and on all test patients; NaN if unknown."""

    own: float
    common: float


def local(run: Run) -> Section | None:
    """Return a figure for each setting, and tables of all metrics; None without local tests."""
    if not run.mapping("evaluate").get("local"):
        return None
    metrics = [m for m in run.metrics if _any(run, m)]
    if not metrics:
        return None
    lead, *others = metrics
    lower = run.lower is not None
    intro = (
        "Each model is judged twice: on the test patients of each hospital, averaged over "
        "hospitals, and on the test patients of all hospitals together. Compare models within one "
        "column. The columns do not compare, because the patients of all hospitals differ more "
        "from each other than those of one."
    )
    intro += (
        " A hospital's own model is trained on its own rows alone; on all patients it shows what "
        "that hospital has not seen."
    ) * lower
    if run.deployed and lower:
        intro += (
            " Over a network a hospital's own model does not leave it, so it is judged on that "
            "hospital's patients alone."
        )
    known = run.known(lead)
    drawn = "" if known.is_p else first_setting(run, [*run.scenarios], lambda c: _figure(run, c))
    rest = [_table(run, m) for m in others]
    return Section(
        "local", "Own and all test patients", "Does it hold for each hospital's own patients?",
        intro,
        h(
            "div", drawn, _table(run, lead),
            more("The same for the other metrics", *rest) if rest else None,
            more("By hospital", *(_sites(run, c, lead) for c in run.scenarios)),
        ),
    )  # fmt: skip


def pair(run: Run, arm: Arm, scenario: str, metric: str) -> Pair:
    """Return means over repeats, and of the first over hospitals with enough test patients."""
    own = run.by_site(arm.name, scenario, f"{metric}_own")
    if not own and run.deployed and arm is run.lower:  # judged at each hospital only
        return Pair(mean([*run.values(arm.name, scenario, metric).values()]), _NAN)
    whole = run.values(arm.name, scenario, f"{metric}_all")  # beside models of single hospitals
    common = [*(whole or run.values(arm.name, scenario, metric)).values()]
    return Pair(
        mean([mean(values) for values in own.values()]),
        _NAN if run.deployed and arm is run.lower else mean(common),
    )


def _any(run: Run, metric: str) -> bool:
    """Return whether some model has a metric on hospitals' own patients."""
    pairs = (pair(run, a, c, metric) for a in run.arms for c in run.scenarios)
    return any(one.own == one.own for one in pairs)


def _figure(run: Run, scenario: str) -> Markup | None:
    """Return one setting: a mark for own patients, a grey one for all."""
    found = {a.name: pair(run, a, scenario, run.metric) for a in run.arms}
    shown = [a for a in run.arms if found[a.name].own == found[a.name].own]
    if not shown:
        return None
    known = run.known()
    rows = [
        Row(
            name=a.title,
            value=found[a.name].own,
            look=a.look,
            text=f"{fixed(found[a.name].own, known.digits)} · "
            f"{fixed(found[a.name].common, known.digits)}",
            others=(("faint", found[a.name].common),)
            if found[a.name].common == found[a.name].common
            else (),
            small=True,
        )
        for a in shown
    ]
    said = "; ".join(f"{r.name}: {r.text}" for r in rows)
    return figure(
        f"local-{scenario}",
        run.scenarios[scenario],
        "Coloured: own test patients, mean over hospitals. Grey: all test patients",
        interval_rows(
            rows, known.axis, reference=known.chance, heads=("Model", "own · all"),
        ),
        [
            {"scenario": scenario, "metric": run.metric, "arm": a.name,
             **found[a.name]._asdict()}
            for a in shown
        ],
        f"{known.axis} on own · on all test patients. {said}.",
    )  # fmt: skip


def _table(run: Run, metric: str) -> Markup:
    """Return a row for each setting and model."""
    known = run.known(metric)
    several = len(run.scenarios) > 1
    body: list[Sequence[str]] = []
    for scenario, title in run.scenarios.items():
        for arm in run.arms:
            own, common = pair(run, arm, scenario, metric)
            if own == own or common == common:
                cells = [fixed(own, known.digits), fixed(common, known.digits)]
                body.append([*[title] * several, arm.title, *cells])
    head = [*["Setting"] * several, "Model", "Own test patients", "All test patients"]
    at = len(head)
    return table(head, body, numeric=(at - 2, at - 1), caption=known.axis)


def _sites(run: Run, scenario: str, metric: str) -> Markup:
    """Return a row for each hospital, with each model on its own patients and on all."""
    known = run.known(metric)
    own = {a.name: run.by_site(a.name, scenario, f"{metric}_own") for a in run.arms}
    all_ = {a.name: run.by_site(a.name, scenario, metric) for a in run.arms}
    # A model of all hospitals has one value on all patients, which the table above shows.
    each = [a for a in run.arms if all_[a.name]]
    head = ["Hospital", *(f"{a.title}, own" for a in run.arms), *(f"{a.title}, all" for a in each)]
    names = sorted({s for found in (*own.values(), *all_.values()) for s in found}, key=natural)
    body = [
        [
            site,
            *(fixed(mean(own[a.name].get(site, [])), known.digits) for a in run.arms),
            *(fixed(mean(all_[a.name].get(site, [])), known.digits) for a in each),
        ]
        for site in names
    ]
    caption = f"{known.axis}, {run.scenarios[scenario]}"
    return table(head, body, numeric=range(1, len(head)), caption=caption)
