"""Footprint: computing time, energy and CO₂ of the whole study, by arm."""

from __future__ import annotations

from fedcohort.report import footprint, words
from fedcohort.report.footprint import Footprint
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, key


def section(run: Run) -> Section | None:
    """Return the table of arms, its sum, and the numbers behind it."""
    spent = {k: v for k, v in footprint.by_arm(run).items() if v.seconds > 0}
    if not spent:
        return None
    rows = [[key(a), *_numbers(spent[a.name])] for a in run.arms if a.name in spent]
    total = sum(spent.values(), Footprint(0.0, 0.0))
    rows.append(["All", *_numbers(total)])
    model = (
        f"An estimate after Lannelongue et al. (2021), not a measurement: {footprint.CORE_W:g} W "
        f"for a busy core and {footprint.MEMORY_W:g} W for each of {footprint.MEMORY_GB:g} GB of "
        f"memory, {footprint.PUE:g} times that for the building, {footprint.NETWORK_KWH:g} kWh for "
        f"each GB between hospitals, {footprint.INTENSITY:g} g of CO₂ for each kWh. "
        f"Tuning is not in it."
    )
    if run.deployed:
        model += (
            " The time is that of the coordinator, waiting included, as of one busy core; what "
            "hospitals' own computers used is not known here."
        )
    return Section(
        "footprint", "Footprint", "What did it burn?",
        f"The whole study, with every repeat and setting, is worth about {_gram(total.carbon)} of "
        f"CO₂, {_distance(total.carbon / footprint.CAR_G)} in a car.",
        h(
            "div",
            table(
                ["", "Computing time", "Energy", "CO₂"],
                rows,
                numeric=range(1, 4),
                caption="Footprint of the study, by arm",
            ),
            p(model, class_="quiet"),
        ),
    )  # fmt: skip


def _numbers(spent: Footprint) -> list[str | Markup]:
    return [words.duration(spent.seconds), _scaled(1000 * spent.energy, "Wh"), _gram(spent.carbon)]


def _gram(grams: float) -> str:
    return _scaled(grams, "g")


def _scaled(amount: float, unit: str) -> str:
    """Return two digits that matter, in the unit's thousands or thousandths where it has to be."""
    for factor, prefix in ((1e3, "k"), (1.0, ""), (1e-3, "m")):
        if amount >= 0.995 * factor:
            return f"{words.significant(amount / factor, 2)} {prefix}{unit}"
    return f"below 1 m{unit}" if amount > 0 else f"0 {unit}"


def _distance(km: float) -> str:
    """Return a distance as people say it."""
    metres = 1000 * km
    if metres < 1:
        return "less than a metre"
    return words.of(round(metres), "metre") if metres < 1000 else f"{words.significant(km, 2)} km"
