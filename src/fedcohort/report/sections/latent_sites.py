"""How hospitals differ from the common model: in their patients, and in how they measure a view.

Rows are those of results.json, `latent_sites`, of the first repeat; p-values are adjusted by Holm
over all hospitals and views of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedcohort.report import words
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import fixed, number, p_value

#: Below this adjusted p-value a hospital is said to differ.
SMALL = 0.05
#: A table has so many hospitals.
MOST_SITES = 40
#: What rows call the test of a hospital's patients.
PATIENTS = "patients"


def section(run: Run) -> Section | None:
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
    """Return one fit's table, after what it says in words."""
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
    """Return in words which hospital differs in which view, and which has other patients."""
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
