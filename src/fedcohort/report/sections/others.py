"""Who helps: the other hospitals as they rank for the user of a model, and what k would include.

Rows are those of results.json, `others`, of the first repeat. The reader picks how many of them to
look at; the page has no script, so that styles alone (`:has`, `:checked`) show the choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number, significant

#: So many choices can be looked at; styles have as many.
MOST = 12
#: What a measure says.
MEANS = {
    "transfer loss": (
        "Transfer loss: what a hospital’s own model loses on the user’s patients beside its own; "
        "near 0 where both are of one population, and less is better."
    ),
    "Shapley value": (
        "Shapley value: by how much the user’s own loss falls for a hospital’s being there, "
        "averaged over who else is; below 0 it does harm. Values add up to the whole gain."
    ),
    "weight α": (
        "Weight α: what is left at the end of the 1 that each hospital began with; at 0 "
        "it has no part any more."
    ),
}


def section(run: Run) -> Section | None:
    """Return a ranking for each arm that is for one hospital; None without."""
    found = [fit for fit in clustered.fits(run, "others") if _rows(run, fit)]
    if not found:
        return None
    drawn = [(fit, _block(run, fit, f"pick-{i}")) for i, fit in enumerate(found)]
    return Section(
        "others", "Who helps", "Which hospitals help the one that the model is for?",
        "A personal model is for one hospital, the user. The others stand in the order in which "
        "they help it, by the user’s own training rows. Choose how many to look at: what is shaded "
        "is what so many of the first would include. First repeat.",
        clustered.led(drawn),
    )  # fmt: skip


def _rows(run: Run, fit: Fit) -> list[Row]:
    """Return what one fit of the first repeat says of the others."""
    return [r for r in clustered.rows(run, "others", fit) if not int(r.get("repeat") or 0)]


def _block(run: Run, fit: Fit, name: str) -> Markup:
    """Return one fit's table under its choices."""
    found = _rows(run, fit)
    user = str(fit[0].settings.get("user", ""))
    intervals = any(r.get("low") is not None for r in found)
    measure = str(found[0]["measure"])
    body = [
        [str(r["site"]), _number(r["value"]), *([_interval(r)] if intervals else []),
         "yes" if r.get("chosen") else "no"]
        for r in found
    ]  # fmt: skip
    head = ["Hospital", measure.capitalize(), *(["Interval"] if intervals else []), "In the model"]
    taken = max(1, min(sum(bool(r.get("chosen")) for r in found), MOST))
    ks = range(1, min(len(found), MOST) + 1)
    return h(
        "div",
        p(h("b", clustered.title(run, fit)), f": for {user}. " if user else ". ",
          MEANS.get(measure)),
        h("div", "The first ", (_choice(name, k, k == taken) for k in ks), class_="choices"),
        (p(_says(found, k), class_=f"says k{k}-says") for k in ks),
        table(head, body, numeric=range(1, len(head) - 1), caption=f"Others, by {measure}"),
        class_="pick",
    )  # fmt: skip


def _choice(name: str, k: int, taken: bool) -> Markup:
    button = h("input", type="radio", name=name, class_=f"k{k}", checked=taken)
    return h("label", button, f" {k}")


def _says(found: Sequence[Row], k: int) -> str:
    """Return whom the first k are, and where a threshold would lie that includes the same."""
    names = words.listed([str(r["site"]) for r in found[:k]])
    side = "up to" if found[0].get("least") else "from"
    edge = f"{found[0]['measure']} {side} {_number(found[k - 1]['value'])}"
    return f"{words.of(k, 'hospital')}, {edge}: {names}."


def _number(value: object) -> str:
    return significant(number(value), 3)


def _interval(row: Row) -> str:
    low, high = number(row.get("low")), number(row.get("high"))
    return f"{_number(low)} to {_number(high)}" if low == low else words.MISSING
