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
    metres = 1000 * total.carbon / footprint.CAR_G
    model = (
        f"An estimate after Lannelongue et al. (2021), not a measurement: {footprint.CORE_W:g} W "
        f"for a busy core and {footprint.MEMORY_W:g} W for each of {footprint.MEMORY_GB:g} GB of "
        f"memory, {footprint.PUE:g} times that for the building, {footprint.NETWORK_KWH:g} kWh for "
        f"each GB between hospitals, {footprint.INTENSITY:g} g of CO₂ for each kWh. "
        f"Tuning is not in it."
    )
    return Section(
        "footprint", "Footprint", "What did it burn?",
        f"The whole study, with every repeat and setting, is worth about {_gram(total.carbon)} of "
        f"CO₂: {words.of(metres, 'metre')} in a car.",
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
    kwh = spent.energy
    energy = f"{kwh:.2f} kWh" if kwh >= 1 else f"{1000 * kwh:.3g} Wh"
    return [words.duration(spent.seconds), energy, _gram(spent.carbon)]


def _gram(grams: float) -> str:
    return f"{grams / 1000:.2f} kg" if grams >= 1000 else f"{grams:.3g} g"
