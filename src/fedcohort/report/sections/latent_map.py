"""Where hospitals and classes lie in the latent space: ellipses, and no patient.

Rows are those of results.json, `latent_map`, of the first repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcohort.report import charts, dimensions, words
from fedcohort.report.charts.theme import LOOKS
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
from fedcohort.report.sections.clustered import Row
from fedcohort.report.words import number

#: What ellipses are of, as rows have it: what a figure calls all of them, and one.
KINDS: Mapping[str, tuple[str, str]] = {
    "site": ("hospitals", "A hospital"),
    "group": ("classes", "A class"),
}
#: What a row needs to be drawn.
DRAWN = ("x", "y", "sx", "sy", "angle")


def section(run: Run) -> Section | None:
    """Return the maps of the leading arm, and those of the others on a click."""
    arms = {a.name: a for a, _ in clustered.fits(run, "latent_map")}
    kept = dimensions.heads(list(arms.values()))
    drawn = [(a, found) for a in kept if (found := _figures(run, a))]
    if not drawn:
        return None
    others = drawn[1:]
    named = words.listed([f"“{a.title}”" for a, _ in others])
    rest = more(f"The same for {named}", *(found for _, found in others)) if others else None
    return Section(
        "latent-map", "Latent space", "Where do hospitals and classes lie?",
        f"The first two principal components of the {clustered.seen(run)} patients' latent points. "
        "An ellipse is a mean and one standard deviation in each direction; of patients that are "
        "spread as a normal distribution, two in five lie within it. No patient is drawn. "
        "Hospitals that lie apart have other patients, or measure in another way: “Measured "
        "alike” tells which, where it was asked. No fit has seen a class; classes that lie apart "
        "are what the measurements have in common, and those that do not may in further "
        "components. Each fit has directions of its own, so that a panel may be turned or mirrored "
        "against the next. First repeat.",
        h("div", drawn[0][1], rest),
    )  # fmt: skip


def _figures(run: Run, arm: Arm) -> list[Markup]:
    """Return an arm's figures, of hospitals and of classes; settings with the same names in one."""
    rows = [r for r in run.rows("latent_map") if r["arm"] == arm.name and _drawable(r)]
    out: list[Markup] = []
    for by, (what, one) in KINDS.items():
        named: dict[tuple[str, ...], list[str]] = {}
        for scenario in run.scenarios:
            names = [str(r["name"]) for r in rows if r["by"] == by and r["scenario"] == scenario]
            if names:
                named.setdefault(tuple(sorted(names, key=natural)), []).append(scenario)
        # Shown names may differ between settings: what one hides takes no look from the next.
        if len(every := {n for names in named for n in names}) <= len(LOOKS) and named:
            named = {tuple(sorted(every, key=natural)): [c for s in named.values() for c in s]}
        for i, (names, found) in enumerate(named.items()):
            order = [c for c in run.scenarios if c in found]
            pages = [order[j : j + charts.MOST_PANELS]
                     for j in range(0, len(order), charts.MOST_PANELS)]  # fmt: skip
            for k, page in enumerate(pages):
                own = [r for r in rows if r["by"] == by and r["scenario"] in page]
                part = f"-{i + 1}" * (len(named) > 1) + f"-{k + 1}" * (len(pages) > 1)
                out.append(_figure(run, arm, own, names, (what, one), part))
    return out


def _figure(
    run: Run, arm: Arm, rows: Sequence[Row], names: Sequence[str], called: tuple[str, str],
    part: str,
) -> Markup:  # fmt: skip
    """Return a panel a setting, with an ellipse for each hospital or class."""
    what, one = called
    several = len(names) > len(LOOKS)
    looks = {n: LOOKS[0 if several else i] for i, n in enumerate(names)}
    order = list(run.scenarios)
    rows = sorted(
        rows, key=lambda r: (order.index(str(r["scenario"])), names.index(str(r["name"])))
    )
    found = [
        charts.Ellipse(
            x=number(r["x"]), y=number(r["y"]), long=number(r["sx"]), short=number(r["sy"]),
            angle=number(r["angle"]), look=looks[str(r["name"])],
            label=one if several else str(r["name"]), panel=_panel(run, arm, str(r["scenario"])),
            pale=several,
        )
        for r in rows
    ]  # fmt: skip
    held = {_share(r) for r in rows} - {""}
    keys = ("scenario", "name", "n", "x", "y", "sx", "sy", "angle", "explained")
    said = "; ".join(
        f"{_panel(run, arm, str(r['scenario'])) or arm.title}, {r['name']}: "
        f"{words.fixed(r['x'], 2)}, {words.fixed(r['y'], 2)}, standard "
        f"deviations {words.significant(r['sx'], 2)} and {words.significant(r['sy'], 2)}"
        for r in rows
    )
    share = f"The two components hold {held.pop()} of the variance" if len(held) == 1 else None
    return charts.figure(
        f"latent-map-{arm.name}-{what}{part}", f"{arm.title}: where {what} lie", share,
        charts.ellipses(found, "first principal component", "second principal component"),
        [{k: r.get(k) for k in keys} for r in rows],
        f"Middle and spread of {what}. {said}.",
    )  # fmt: skip


def _drawable(r: Row) -> bool:
    """Return whether a row has all of an ellipse."""
    return all(number(r.get(k)) == number(r.get(k)) for k in DRAWN)


def _panel(run: Run, arm: Arm, scenario: str) -> str:
    """Return a panel's title: the setting; of pooled data, whose fit no setting changes, none."""
    return "" if arm is run.upper or len(run.scenarios) == 1 else run.scenarios[scenario]


def _share(r: Row) -> str:
    share = number(r.get("explained"))
    return words.percent(share) if share == share else ""
