"""How sure models with a posterior are of the blind patients.

Files: results.json, `posterior` and `unlike`.
"""

from __future__ import annotations

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, key
from fedcohort.report.words import number

#: Text where shares of the model are known, intervals of values were judged, or densities are
#: known.
_SHARE = (
    "A patient’s outcome is uncertain because the model was learnt from few patients, and "
    "because patients with the same covariates differ. Only the first part falls with more "
    "training rows; its share is shown."
)
_COVERED = (
    " An interval of {} should hold the outcome of {} of the patients: a lower share shows that "
    "the model is too sure, a higher one that it is not sure enough."
)
_DENSITY = (
    " The log density is the mean of minus the logarithm of the probability density that was "
    "predicted at the outcome: lower is better. It depends on the unit of the outcome, so compare "
    "arms of this study only."
)
_UNLIKE = (
    "Each hospital was left out of a further fit. The AUC says how often a patient of that "
    "hospital is more unlike the training rows than a patient of the others: 0.5 where its "
    "patients are like those of the others, or where the model does not see that they are not."
)


def section(run: Run) -> Section | None:
    """Return a row for each fit of the first repeat that has a posterior."""
    found = run.rows("posterior")
    if not found:
        return None
    levels = {number(r.get("level")) for r in found if number(r.get("covered")) >= 0}
    shown = [
        name for name in ("epistemic", "covered", "nlpd")
        if any(number(r.get(name)) == number(r.get(name)) for r in found)
    ]  # fmt: skip
    said = _SHARE * ("epistemic" in shown)
    said += "".join(_COVERED.format(*2 * (words.percent(x),)) for x in sorted(levels))
    said += _DENSITY * ("nlpd" in shown)
    return Section(
        "posterior", "Uncertainty", "How sure is the model of its predictions?", said.strip(),
        h("div", _table(run, shown), *_unlike(run)),
    )  # fmt: skip


def _tenths(share: object) -> str:
    x = number(share)
    return f"{words.fixed(100 * x, 1)} %" if x == x else words.MISSING


def _table(run: Run, shown: list[str]) -> Markup:
    arms = {arm.name: arm for arm in run.arms}
    heads = {
        "epistemic": "Share due to the model",
        "covered": "Outcome in its interval (95 % interval)", "nlpd": "Negative log density",
    }  # fmt: skip
    body: list[list[str | Markup]] = []
    for r in run.rows("posterior"):
        arm, where = arms[str(r["arm"])], str(r["scenario"])
        line: list[str | Markup] = [key(arm), run.scenarios.get(where, where), words.count(r["n"])]
        ends = [_tenths(r.get(k)) for k in ("covered", "low", "high")]
        known = words.MISSING not in ends
        density = number(r.get("nlpd"))
        cells = {
            "epistemic": _tenths(r.get("epistemic")),
            "covered": f"{ends[0]} ({ends[1]} to {ends[2]})" if known else words.MISSING,
            "nlpd": words.fixed(density, 3) if density == density else words.MISSING,
        }
        body.append([*line, *(cells[name] for name in shown)])
    head = ["Arm", "Setting", "Blind patients", *(heads[name] for name in shown)]
    return table(
        head, body, numeric=range(2, len(head)), caption="First repeat, mean over blind patients"
    )


def _unlike(run: Run) -> list[Markup]:
    """Return how well hospitals that were left out are told from the others; [] without."""
    arms = {arm.name: arm for arm in run.arms}
    body: list[list[str | Markup]] = [
        [
            key(arms[str(r["arm"])]), str(r["site"]),
            words.fixed(v, 3) if (v := number(r.get("value"))) == v else words.MISSING,
            words.between(r.get("low"), r.get("high"), 3) or str(r.get("note")),
        ]
        for r in run.rows("unlike")
    ]  # fmt: skip
    if not body:
        return []
    head = ["Arm", "Hospital left out", "AUC", "95 % interval"]
    caption = "Patients of a hospital left out, told from others by how unlike they are"
    return [h("p", _UNLIKE), table(head, body, numeric=range(2, 4), caption=caption)]
