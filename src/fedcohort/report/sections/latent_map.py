"""Hospitals and classes in the latent space, and tests of whether hospitals measure alike.

Files: results.json, `latent_map` (ellipses, no patient) and `latent_sites`, of the first repeat;
p-values are adjusted by Holm over all hospitals and views of a fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, latent_verdict, words
from fedcohort.report.charts import LOOKS
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, same_for
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import fixed, number, p_value

#: Kind of ellipses in rows → a figure's words for all of them, and for one.
KINDS: Mapping[str, tuple[str, str]] = {
    "site": ("hospitals", "A hospital"),
    "group": ("classes", "A class"),
    "prior": ("priors", "A prior"),
}
#: What is said of priors.
PRIORS = (
    "A prior is the distribution of latent points that a model assumes. Where each hospital has a "
    "part in the common prior, the part is trained on its own patients; it may lie where the parts "
    "of others do not. Priors are drawn in the directions of the map, from the model alone. "
)
#: Name of the prior of all hospitals; it comes last, so that hospitals keep their looks.
COMMON = "common prior"
#: What a row needs to be drawn.
DRAWN = ("x", "y", "sx", "sy", "angle")


def latent_map(run: Run) -> Section | None:
    """Return the maps of the leading arm, and those of the others on a click."""
    arms = {a.name: a for a, _ in clustered.fits(run, "latent_map")}
    kept = latent_verdict.heads(list(arms.values()))
    drawn = [(a, found) for a in kept if (found := _figures(run, a))]
    if not drawn:
        return None
    rest = same_for((a.title for a, _ in drawn[1:]), [found for _, found in drawn[1:]])
    return Section(
        "latent-map", "Latent space", "Where do hospitals and classes lie?",
        f"The first two principal components of the {clustered.seen(run)} patients' latent points. "
        "An ellipse is a mean and one standard deviation in each direction; of patients that are "
        "spread as a normal distribution, two in five lie within it. No patient is drawn. "
        "Hospitals that lie apart have other patients, or measure in another way: “Measured "
        "alike” tells which, where it was asked. No fit has seen a class; classes that lie apart "
        "are what the measurements have in common, and those that do not may in further "
        f"components. {PRIORS * _has_priors(run)}Each fit has directions of its own, so that a "
        "panel may be turned or mirrored against the next. First repeat.",
        h("div", drawn[0][1], rest),
    )  # fmt: skip


def _order(name: str) -> tuple[bool, Any]:
    return name == COMMON, natural(name)


def _has_priors(run: Run) -> bool:
    return any(r["by"] == "prior" for r in run.rows("latent_map"))


def _figures(run: Run, arm: Arm) -> list[Markup]:
    """Return an arm's figures, of hospitals and of classes; settings with the same names in one."""
    rows = [r for r in run.rows("latent_map") if r["arm"] == arm.name and _drawable(r)]
    out: list[Markup] = []
    for by, (what, one) in KINDS.items():
        named: dict[tuple[str, ...], list[str]] = {}
        for scenario in run.scenarios:
            names = [str(r["name"]) for r in rows if r["by"] == by and r["scenario"] == scenario]
            if names:
                named.setdefault(tuple(sorted(names, key=_order)), []).append(scenario)
        # Shown names may differ between settings: a hidden one takes no look.
        if len(every := {n for names in named for n in names}) <= len(LOOKS) and named:
            named = {tuple(sorted(every, key=_order)): [c for s in named.values() for c in s]}
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
    """Return a panel's title: the setting; none for pooled data, which are the same in all."""
    return "" if arm is run.upper or len(run.scenarios) == 1 else run.scenarios[scenario]


def _share(r: Row) -> str:
    share = number(r.get("explained"))
    return words.percent(share) if share == share else ""


#: Below this adjusted p-value a hospital is said to differ.
SMALL = 0.05
#: Hospitals of a table.
MOST_SITES = 40
#: What rows call the test of a hospital's patients.
PATIENTS = "patients"


def latent_sites(run: Run) -> Section | None:
    """Return a table for each fit that compared hospitals; None where none did."""
    found = clustered.fits(run, "latent_sites")
    if not found:
        return None
    drawn = [(fit, _block(run, fit)) for fit in found]
    return Section(
        "latent-sites", "Measured alike", "Do hospitals measure alike?",
        "Each hospital against the common model, by score tests. Patients: how far their average "
        "lies from the common one in the latent space, in standard deviations of a patient; other "
        "patients are no fault of measurement. Views: by how much a view’s columns are off, on "
        "average over columns and in units of their noise σ, once the patients are allowed for. p "
        "is adjusted for all comparisons of the table (Holm); bold is below "
        f"{SMALL:g}. With many patients a shift of no importance has a small p too. First repeat.",
        clustered.led(drawn),
    )  # fmt: skip


def _block(run: Run, fit: Fit) -> Markup:
    """Return one fit's findings in words, and its table."""
    found = clustered.rows(run, "latent_sites", fit)
    cells = {(str(r["site"]), str(r["what"])): r for r in found}
    what = list(dict.fromkeys(str(r["what"]) for r in found))
    sites = sorted(dict.fromkeys(str(r["site"]) for r in found), key=natural)
    body = [[s, *(_cell(cells.get((s, w))) for w in what)] for s in sites[:MOST_SITES]]
    head = ["Hospital", *("Patients" if w == PATIENTS else w or "all views" for w in what)]
    lacks = any((s, w) not in cells for s in sites for w in what)
    notes = ["A dash is a view that a hospital lacks, or has too few patients with."] * lacks
    if len(sites) > MOST_SITES:
        notes.append(f"The other {len(sites) - MOST_SITES} hospitals are in results.json.")
    return h(
        "div",
        p(h("b", f"{clustered.title(run, fit)}: "), said(found)),
        table(
            head, body, numeric=range(1, len(head)),
            caption="Shift from the common model, with the adjusted p-value",
        ),
        p(" ".join(notes), class_="quiet") if notes else None,
        class_="forest",
    )  # fmt: skip


def _cell(r: Row | None) -> str | Markup:
    """Return a shift with its p-value, bold where it is clear."""
    if r is None:
        return words.MISSING
    shift = fixed(r.get("shift"), 2)
    return join(h("b", shift) if clear(r) else shift, h("small", f"p {p_value(r['p_adjusted'])}"))


def clear(r: Row) -> bool:
    """Return whether a hospital differs by this test."""
    return number(r.get("p_adjusted")) < SMALL


def said(found: Sequence[Row]) -> str:
    """Return in words which hospitals measure differently, by view, or have other patients."""
    apart, order = [r for r in found if clear(r)], dict.fromkeys(str(r["what"]) for r in found)
    patients = sorted({str(r["site"]) for r in apart if r["what"] == PATIENTS}, key=natural)
    measured: dict[str, list[str]] = {}
    for r in sorted(apart, key=lambda r: natural(str(r["site"]))):
        if r["what"] != PATIENTS:
            measured.setdefault(str(r["what"]), []).append(str(r["site"]))
    out = [
        f"{words.listed(patients)} {_verb(patients, 'has', 'have')} clearly other patients."
        if patients
        else "No hospital has clearly other patients."
    ]
    if not measured:
        return f"{out[0]} None clearly measures a view in another way."
    out += [
        f"{view or 'All'} is clearly off at {words.listed(s)}."
        for view in order
        if (s := measured.get(view))
    ]
    return " ".join(out)


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several
