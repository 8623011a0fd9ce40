"""Words and rules of the report, the approval and the model card, by kind of task: one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Words and rules of one kind of task.

    Attributes
    ----------
    use : purpose of columns, within a sentence; "" for a prediction.
    verb : what is done with an outcome, before its name; "" if it is left aside.
    judged : what an outcome judges if fits do not see it; "" if they do.
    asked : title of the block of settings on the outcome.
    goes : what a covariate is associated with.
    leads : the metric that leads the page; "" for the study's first.
    predicts : rows get a prediction of an outcome: TRIPOD+AI, and its guideline, apply.
    ranks : models rank patients by risk.
    shares : a prediction is a probability.
    closes : arms close a gap between bounds.
    scored : a coefficient adds to a risk score.
    output : item 15 of TRIPOD+AI.
    written : columns that a saved model writes for each row.
    performance : the section on accuracy of predictions.
    """

    use: str = "predict from"
    verb: str = "Predict"
    judged: str = ""
    asked: str = "What is predicted"
    goes: str = "risk"
    leads: str = "c_index"
    predicts: bool = True
    ranks: bool = True
    shares: bool = True
    closes: bool = True
    scored: bool = True
    output: str | None = None
    written: str = "prediction"
    performance: str = "Discrimination"


KINDS: Mapping[str, Kind] = {
    "survival": Kind(
        output="A log risk score and a survival curve for each patient; no threshold.",
        written="risk score, median survival time and survival curve",
    ),
    "classification": Kind(
        output="A probability for each patient; accuracy is at 0.5, a threshold that nobody chose "
        "for clinical use.",
        written="probability",
    ),
    "regression": Kind(
        goes="outcome", shares=False, scored=False, written="predicted value",
        output="An expected value for each patient; no interval for a single patient.",
        performance="Errors",
    ),
    "clustering": Kind(
        use="group by", verb="Judge groups by", judged="clusters", asked="What judges the groups",
        leads="", predicts=False, ranks=False, closes=False, written="cluster",
    ),
    "latent": Kind(
        use="describe a patient by", verb="", judged="latent coordinates",
        asked="What judges the latent coordinates", predicts=False,
        written="point of the latent space",
    ),
    "synthesis": Kind(
        use="draw virtual patients by", verb="", judged="virtual patients",
        asked="What virtual patients are compared by", leads="marginal_error", predicts=False,
        ranks=False, written="virtual patient",
    ),
    "imputation": Kind(
        use="impute missing values by", verb="", judged="imputed values",
        asked="What is left aside", leads="masked_rmse", predicts=False, ranks=False,
        written="completed row",
    ),
}  # fmt: skip


#: The entry of classification with more than two classes.
SEVERAL = Kind(
    goes="class",
    output="A probability of each class for each patient; the likeliest class is no decision that "
    "somebody chose for clinical use.",
    written="class and a probability of every class",
)


def kind_of(task: str, outcome: Mapping[str, object] | None = None) -> Kind:
    """Return the entry of a kind of task; of an unknown one, that of survival.

    Parameters
    ----------
    outcome : as in results.json.
    """
    if task == "classification" and outcome is not None and outcome.get("levels"):
        return SEVERAL
    return KINDS.get(task, Kind())
