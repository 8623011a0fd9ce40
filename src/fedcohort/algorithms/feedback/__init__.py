"""Feedback to each site: what is off in its data against the others', and what it might record."""

from fedcohort.algorithms.feedback.model import Feedback, Remark
from fedcohort.algorithms.feedback.program import fit
from fedcohort.algorithms.feedback.settings import FeedbackSettings, over
from fedcohort.algorithms.feedback.steps import STEPS
from fedcohort.protocol import Method

METHOD = Method(
    name="feedback",
    title="For each site, what is off in its data against the others', and what to record",
    tasks=(
        "survival",
        "classification",
        "regression",
        "clustering",
        "latent",
        "synthesis",
        "imputation",
    ),
    paper=(
        "Huber, Robust Statistics, 1981 (medians over sites); Akaike, Ann. Inst. Statist. Math. "
        "21, 1969 (what a column would add)"
    ),
    reveals=(
        "Of all sites together, as sums: where sites' columns lie and how wide, which share is "
        "missing, which levels are used, how columns go together, each told by an anonymous vote "
        "on a coarse grid or a rounded correlation. Of each site, once, what it finds of itself: "
        "which column is off, by which rule, about how much, and which columns it does not record."
    ),
    settings=FeedbackSettings,
    fit=fit,
    model=Feedback,
    steps=STEPS,
    over=over,
    gives=frozenset({"summary"}),
    raw=True,
)

__all__ = ["METHOD", "Feedback", "FeedbackSettings", "Remark", "fit"]
