"""Cost of one training run, and footprint of the whole study, by arm.

Files: results.json, `arms`, `measured`.
"""

from __future__ import annotations

from fedcohort.report import footprint, words
from fedcohort.report.disclosure import natural
from fedcohort.report.footprint import Footprint
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, key, more


def cost(run: Run) -> Section | None:
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


#: What stands beside the time, in the order of `_numbers`.
PARTS = ("Its energy", "Traffic", "Its energy", "Energy in all", "CO₂")


def carbon(run: Run) -> Section | None:
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
        f"memory, {footprint.PUE:g} times that for the building; {footprint.NETWORK_KWH:g} kWh for "
        f"each GB between hospitals (Aslan et al., 2018, for 2015; less since, so that this "
        f"is the most it can be); {footprint.INTENSITY:g} g of CO₂ for each kWh. An arm that "
        f"sends much can use more energy in less time. Tuning is not counted."
    )
    if run.deployed:
        model += (
            " The time is that of the coordinator, waiting included, as of one busy core; what "
            "hospitals' own computers used is not known here."
        )
    return Section(
        "footprint", "Footprint", "How much energy did it use?",
        f"The whole study, with every repeat and setting, stands for about "
        f"{_gram(total.carbon)} of CO₂, {_distance(total.carbon / footprint.CAR_G)} in a car.",
        h(
            "div",
            table(
                ["", "Computing time", *PARTS],
                rows,
                numeric=range(1, 7),
                caption="Footprint of the study, by arm",
            ),
            p(model, class_="quiet"),
            _measured(run),
            _hospitals(run),
        ),
    )  # fmt: skip


def _measured(run: Run) -> Markup | None:
    """Return measurements besides the estimate; None without any."""
    found = run.mapping("measured")
    energy, grams = words.number(found.get("energy")), words.number(found.get("carbon"))
    if not (energy >= 0 and grams >= 0):
        return None
    part = (
        "only since the run was resumed" if found.get("resumed") else "tuning and judging included"
    )
    return p(
        f"Measured on this computer by {found.get('by')}, {part}: "
        f"{_scaled(1000 * energy, 'Wh')}, {_gram(grams)} of CO₂ with the electricity of "
        f"{found.get('country')}, in {words.duration(words.number(found.get('seconds')))}. "
        f"What else ran there counts too."
    )


def _hospitals(run: Run) -> Markup | None:
    """Return each hospital's own part by arm, folded; None if unknown."""
    found = footprint.by_site(run)
    rows = [
        [key(arm), site, *_numbers(spent)]
        for arm in run.arms
        for site, spent in sorted(found.get(arm.name, {}).items(), key=lambda x: natural(x[0]))
    ]
    if not rows:
        return None
    note = (
        "Processor time of the hospital's own steps, what it sent, and an equal part of what all "
        "were sent. The coordinator's part, and judging the models, are in the table above alone."
    )
    head = ["", "Hospital", "Processor time", *PARTS]
    made = table(head, rows, numeric=range(2, 8), caption="Each hospital's part")
    return more("By hospital", made, p(note, class_="quiet"))


def _numbers(spent: Footprint) -> list[str | Markup]:
    energies = [1000 * part for part in (spent.computing, spent.sending, spent.energy)]
    computing, sending, energy = (_scaled(wh, "Wh") for wh in energies)
    traffic = words.size(spent.traffic)
    return [words.duration(spent.seconds), computing, traffic, sending, energy, _gram(spent.carbon)]


def _gram(grams: float) -> str:
    return _scaled(grams, "g")


def _scaled(amount: float, unit: str) -> str:
    """Return two significant digits, in thousands or thousandths of the unit if needed."""
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
