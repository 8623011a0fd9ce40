"""Losses of the hospitals' models on the coordinator's own rows, as in Nolte et al. (2023), fig. 7.

Files: results.json, `coordinator_data`; history.csv, ``validation_loss SITE``, ``R_models``,
``R_models_level`` and ``halted`` (`training.networks.validated`), of the first repeat.
"""

from __future__ import annotations

from typing import NamedTuple

from fedcohort.report import history, words
from fedcohort.report.charts import LOOKS, Series, figure, lines_with_bands
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, same_for
from fedcohort.report.words import significant

LOSS, R, LEVEL, HALTED = "validation_loss ", "R_models", "R_models_level", "halted"
#: Hospitals with a line each; of more, these first ones.
MOST = len(LOOKS)


class Fit(NamedTuple):
    """An arm in one scenario and repeat: by name the (round, value) of what it recorded."""

    arm: Arm
    scenario: str
    repeat: str
    found: dict[str, list[tuple[int, float]]]


def section(run: Run) -> Section | None:
    """Return the coordinator's rows, and the losses on them; None without such rows."""
    own = run.mapping("coordinator_data")
    if not own:
        return None
    fits = _fits(run)
    first = {(f.arm.name, f.scenario): f for f in reversed(fits)}
    shown = [f for f in fits if first[f.arm.name, f.scenario] is f]
    drawn = [_drawn(run, f) for f in shown]
    n, judges = (words.number(own.get(k)) for k in ("first", "validation"))
    parts = [f"{words.of(n, 'patient')} for a first model"] * bool(n)
    parts += [f"{words.of(judges, 'patient')} for validation"] * bool(judges)
    source = (
        "They were taken out of all hospitals before anything else"
        if own.get("fraction")
        else "They are of a file of its own"
    )
    intro = (
        f"The coordinator has patients of its own: {words.listed(parts)}. {source}; nobody is "
        "tested on them. Every arm starts from the first model, unless it has none."
    )
    if shown:
        intro += (
            " In each round the coordinator computes the loss of each hospital's model on its "
            "validation rows. R compares the distance of these losses between hospitals with their "
            "change in time: well above 1, hospitals have different patients. The level is fixed, "
            "without a known share of false alarms: after a good first model, or with few "
            "validation rows, R may be above it at hospitals that are alike."
        )
    titles = [f"{f.arm.title}, {run.scenarios[f.scenario]}" for f in shown[1:]]
    body = [*drawn[:1], same_for(titles, drawn[1:]), _table(run, fits) if fits else None]
    body.append(_first_model(run))
    return Section(
        "validation", "Coordinator's own patients", "What do the coordinator's own patients show?",
        intro, h("div", *body),
    )  # fmt: skip


def _fits(run: Run) -> list[Fit]:
    """Return every fit whose models were validated."""
    found: dict[tuple[str, str, str], dict[str, list[tuple[int, float]]]] = {}
    for line in history.lines(run.folder / "history.csv"):
        if line.name.startswith(LOSS) or line.name in (R, LEVEL, HALTED):
            fit = found.setdefault((line.arm, line.scenario, line.repeat), {})
            fit.setdefault(line.name, []).append((line.round + 1, line.value))
    arms = {a.name: a for a in run.arms}
    return [
        Fit(arms[arm], scenario, repeat, values)
        for (arm, scenario, repeat), values in found.items()
        if arm in arms and scenario in run.scenarios and any(k.startswith(LOSS) for k in values)
    ]


def _drawn(run: Run, fit: Fit) -> Markup:
    """Return the losses of one fit, and its R below them."""
    sites = sorted((k.removeprefix(LOSS) for k in fit.found if k.startswith(LOSS)), key=natural)
    halted = {r for r, on in fit.found.get(HALTED, []) if on}
    losses, r = "Validation loss", "R"
    series = [
        Series(label=s, look=LOOKS[i], panel=losses, points=fit.found[LOSS + s])
        for i, s in enumerate(sites[:MOST])
    ]
    values, level = fit.found.get(R, []), fit.found.get(LEVEL, [])
    if values:
        series += [
            Series(label="alarm's level", look="faint", panel=r, points=level),
            Series(label="R", look="upper", panel=r, points=values),
        ]
        if alone := [(k, v) for k, v in values if k in halted]:
            series.append(Series(label="R, halted", look="c1", panel=r, points=alone))
    rows = [
        {"arm": fit.arm.name, "scenario": fit.scenario, "repeat": fit.repeat, "round": k,
         "name": name, "value": v}
        for name, points in fit.found.items() for k, v in points
    ]  # fmt: skip
    some = f"; the first {MOST} hospitals of {len(sites)}" * (len(sites) > MOST)
    last = f"R {significant(values[-1][1], 3)} at the end" if values else "no R"
    stop = f", aggregation halted in {words.of(len(halted), 'round')}" * bool(halted)
    return figure(
        f"validation-{fit.arm.name}-{fit.scenario}",
        f"{fit.arm.title}, {run.scenarios[fit.scenario]}",
        f"First repeat: a line for each hospital's model after its own training{some}",
        lines_with_bands(series, "round", "", whole=True, own=True),
        rows,
        f"{fit.arm.title}, {run.scenarios[fit.scenario]}: {last}{stop}.",
    )


def _table(run: Run, fits: list[Fit]) -> Markup:
    """Return alarms and halts over all repeats."""
    body: list[list[str]] = []
    for arm, scenario in dict.fromkeys((f.arm.name, f.scenario) for f in fits):
        mine = [f for f in fits if (f.arm.name, f.scenario) == (arm, scenario)]
        fired = [first for f in mine if (first := _alarm(f)) is not None]
        most = [v for f in mine for _, v in f.found.get(R, [])]
        halts = [sum(on > 0 for _, on in f.found[HALTED]) for f in mine if HALTED in f.found]
        body.append(
            [
                mine[0].arm.title,
                run.scenarios[scenario],
                f"{len(fired)} of {len(mine)}",
                words.count(min(fired)) if fired else words.MISSING,
                significant(max(most), 3) if most else words.MISSING,
                words.fixed(sum(halts) / len(halts), 1) if halts else words.MISSING,
            ]
        )
    head = ["Arm", "Setting", "With an alarm", "First alarm in round", "Highest R", "Rounds halted"]
    caption = "Alarms of the hospitals' models"
    return table(head, body, numeric=(2, 3, 4, 5), caption=caption)


def _first_model(run: Run) -> Markup | None:
    """Return the metrics of a model of the coordinator's first rows alone, beside the arms'."""
    rows = run.rows("first_model")
    if not rows:
        return None
    scenario = next(iter(run.scenarios))
    body: list[list[str]] = []
    for metric in run.metrics:
        values = [x for r in rows if r["metric"] == metric and (x := words.number(r["value"])) == x]
        known = run.known(metric)
        if values:
            arms = (run.summary(a.name, scenario, metric) for a in run.arms)
            means = [words.fixed(None if s is None else s.mean, known.digits) for s in arms]
            body.append([known.axis, words.fixed(mean(values), known.digits), *means])
    head = ["Metric", "Coordinator's rows alone", *(a.title for a in run.arms)]
    caption = f"A model of the coordinator's first rows alone, {run.scenarios[scenario]}"
    return table(head, body, numeric=range(1, len(head)), caption=caption)


def _alarm(fit: Fit) -> int | None:
    """Return the first round with R above the level."""
    level = dict(fit.found.get(LEVEL, []))
    return next((k for k, v in fit.found.get(R, []) if v > level[k]), None)
