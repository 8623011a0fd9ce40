"""How sure models with a posterior are of the blind patients.

Files: results.json, `posterior`, which a study over a network has not.
"""

from __future__ import annotations

from fedcohort.report import words
from fedcohort.report.markup import Markup, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, key
from fedcohort.report.words import number

#: Text where intervals of values were judged.
_COVERED = (
    " An interval of {} should hold the outcome of {} of the patients: a lower share shows that "
    "the model is too sure, a higher one that it is not sure enough."
)


def section(run: Run) -> Section | None:
    """Return a row for each fit of the first repeat that has a posterior."""
    found = run.rows("posterior")
    if not found:
        return None
    levels = {number(r.get("level")) for r in found if number(r.get("covered")) >= 0}
    judged = "".join(_COVERED.format(*2 * (words.percent(x),)) for x in sorted(levels))
    return Section(
        "posterior", "Uncertainty", "How sure is the model of its predictions?",
        "A patient’s outcome is uncertain because the model was learnt from few patients, and "
        "because patients with the same covariates differ. Only the first part falls with more "
        "training rows; its share is shown." + judged,
        _table(run, judged=bool(judged)),
    )  # fmt: skip


def _tenths(share: object) -> str:
    x = number(share)
    return f"{words.fixed(100 * x, 1)} %" if x == x else words.MISSING


def _table(run: Run, *, judged: bool) -> Markup:
    arms = {arm.name: arm for arm in run.arms}
    body: list[list[str | Markup]] = []
    for r in run.rows("posterior"):
        arm, where = arms[str(r["arm"])], str(r["scenario"])
        line: list[str | Markup] = [key(arm), run.scenarios.get(where, where)]
        line += [words.count(r["n"]), _tenths(r.get("epistemic"))]
        if judged:
            ends = [_tenths(r.get(k)) for k in ("covered", "low", "high")]
            known = words.MISSING not in ends
            line.append(f"{ends[0]} ({ends[1]} to {ends[2]})" if known else words.MISSING)
        body.append(line)
    head = ["Arm", "Setting", "Blind patients", "Share due to the model"]
    head += ["Outcome in its interval (95 % interval)"] * judged
    return table(
        head, body, numeric=range(2, len(head)), caption="First repeat, mean over blind patients"
    )
