"""The page of a file of virtual patients: its guarantee, and the parts of `virtual_parts`.

It holds no script and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.report.markup import h, join, p, table
from fedcohort.report.page import document
from fedcohort.report.virtual_parts import Lists, blocks

NO_NOISE = (
    "The model was trained without differential privacy. Its virtual patients may reveal that "
    "somebody was among the training rows, or values of such a person. Treat the file as patient "
    "data."
)
_PRIVATE = (
    "The model was trained with differential privacy, ε = {epsilon:g} and δ = {delta:g} for each "
    "{unit}. Whatever is drawn from it has the same guarantee, however many rows."
)
_SEEDED = (
    " Its noise follows from a known seed, so the guarantee does not hold for whoever knows it: "
    "this is a simulation."
)


def privacy_words(privacy: Mapping[str, Any] | None) -> str:
    """Return the guarantee of a model in plain words.

    Parameters
    ----------
    privacy : the model's note on its noise (`epsilon`, `delta`, `unit`, `noise`); None without.
    """
    if not privacy:
        return NO_NOISE
    said = _PRIVATE.format(**privacy)
    return said + (_SEEDED if privacy.get("noise") == "seed" else "")


def page(about: Mapping[str, Any], lists: Lists, reference: Lists | None, version: str) -> str:
    """Return the page of a file of virtual patients.

    Parameters
    ----------
    about : the companion JSON of the file.
    lists : of the virtual rows, beside real ones or alone.
    reference : the same of interpolated real rows (SMOTE); None without real rows.
    """
    privacy = about["privacy"] or None
    facts = [
        ["Model", f"{about['method']}{_of_study(about)}"],
        ["Condition", about["where"] or "none"],
        ["Seed", str(about["seed"])],
        ["ε, δ", f"{privacy['epsilon']:g}, {privacy['delta']:g}" if privacy else "none"],
        ["Compared with", about["compared"]],
    ]
    guarded = (
        f"with differential privacy, ε = {privacy['epsilon']:g}"
        if privacy
        else ("without differential privacy")
    )
    top = join(
        p(f"File {about['file']}", class_="kicker"),
        h("h1", f"{about['n']:,} virtual patients, {guarded}", class_="answer"),
        h(
            "div", p(privacy_words(privacy)), p("Every row was drawn by the model."),
            *(p(line) for line in about["notes"]), class_="card soft",
        ),
        table(["", ""], facts, spoken="The file", class_="even"),
    )  # fmt: skip
    sections = [*blocks("virtual", lists, about.get("time_unit", ""), reference)]
    return document("Virtual patients", top, sections, (), version)


def _of_study(about: Mapping[str, Any]) -> str:
    parts = [about.get("study"), about.get("arm")]
    named = ", ".join(str(part) for part in parts if part)
    return f" ({named})" if named else ""
