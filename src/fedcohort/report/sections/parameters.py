"""The table of a model's other parameters, below its coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from fedcohort.report import words
from fedcohort.report.clock import said
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.modelling import is_posterior
from fedcohort.report.run import Arm, Run
from fedcohort.report.words import effect, number

Row = Mapping[str, Any]
#: What the table is called.
CAPTION = "Rest of the model"
#: The same of posterior predictive checks, and their columns.
CHECKS = "Posterior predictive checks: a share near 0 or 1 shows what the model misses"
CHECKED = ("Of the outcome", "Observed", "95 % of data drawn from the model", "Share drawn above")


def level_of(arm: Arm) -> str:
    """Return the coverage of an arm's intervals, ``95 %``."""
    return coverage(arm.settings)


def coverage(settings: Mapping[str, Any]) -> str:
    """Return the coverage of intervals by a method's settings; 95 % where they have none."""
    level = number(settings.get("level"))
    return f"{100 * (level if 0 < level < 1 else 0.95):g} %"


def penalised_bar(level: str) -> str:
    """Return the meaning of a shrunken effect's bar: standard errors, not an interval."""
    share = number(float(level.removesuffix(" %")) / 100)
    return f"± {NormalDist().inv_cdf(0.5 + share / 2):.2f} SE, no CI"


def credible(level: str) -> str:
    """Return the name of a posterior's interval."""
    return f"{level} credible interval"


def parameters(run: Run, arm: Arm, level: str) -> Markup | None:
    """Return the table of a model's intercept and other parameters; None without any.

    Parameters
    ----------
    level : coverage of the intervals, in words.
    """
    every = run.model_rows("parameters", arm.name)
    if not every:
        return None
    rows = [r for r in every if not is_check(r)]
    valued = [r for r in rows if r.get("value") is not None]
    known = [k for k in ("standard_error", "low", "p") if any(r.get(k) is not None for r in valued)]
    penalty = any(r.get("shrunken") for r in run.model_rows("coefficients", arm.name))
    posterior = is_posterior(run.model_rows("coefficients", arm.name))
    if (penalty or posterior) and "p" in known:
        known.remove("p")
    around = penalised_bar(level) if penalty else f"{level} CI"
    heads = {"standard_error": "SE", "low": around, "p": "p"}
    if posterior:
        heads = {"standard_error": "Posterior SD", "low": credible(level)}
    body: list[list[str]] = []
    for r in valued:
        cells = {
            "standard_error": effect(r.get("standard_error")),
            "low": interval(r),
            "p": words.p_value(r.get("p")),
        }
        body.append([name(r), effect(r["value"]), *(cells[k] for k in known)])
    head = ["Parameter", "Value", *(heads[k] for k in known)]
    notes = [
        h("p", h("b", name(r)), f": {r['note']}.", class_="quiet") for r in rows if r.get("note")
    ]
    shown = table(head, body, numeric=range(1, len(head)), caption=CAPTION) if body else None
    checks = [
        [name(r), effect(r["value"]), interval(r), words.fixed(number(r["share_above"]), 3)]
        for r in every
        if is_check(r)
    ]
    drawn = table(CHECKED, checks, numeric=range(1, len(CHECKED)), caption=CHECKS)
    return h("div", shown, *notes, *([drawn] if checks else []))


def is_check(row: Row) -> bool:
    """Return whether a row is a posterior predictive check."""
    return "share_above" in row


def name(row: Row) -> str:
    """Return a parameter's name, with its time and unit."""
    if (time := row.get("time")) is None:
        return str(row["name"])
    return f"{row['name']} at {said(number(time), str(row.get('unit') or ''))}"


def interval(row: Row) -> str:
    """Return an interval's ends, or a dash where one is missing."""
    low, high = effect(row.get("low")), effect(row.get("high"))
    if words.MISSING in (low, high):
        return words.MISSING
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"
