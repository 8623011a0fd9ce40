"""Feedback to each site: anomalies of its data compared with the others', and columns to record."""

from collections.abc import Iterator
from typing import Any

from fedcohort.algorithms.feedback.model import Feedback, Remark
from fedcohort.algorithms.feedback.program import fit, lines_for
from fedcohort.algorithms.feedback.settings import FeedbackSettings
from fedcohort.algorithms.feedback.steps import (
    STEPS,
    compare,
    keep_findings,
    vote,
    vote_place,
    vote_scale,
)
from fedcohort.protocol import Method, Step

_VOTES = (
    "As sums over all sites: location and spread of columns, shares of missing values, levels in "
    "use, and associations of columns, from anonymous votes on a coarse grid and rounded "
    "correlations. "
)
_TOLD = (
    "Of each site, once, its findings about itself: anomalous columns, the rule, the approximate "
    "size, and columns that it does not record."
)
_KEPT = "Each site keeps its findings; it tells only whether it had enough rows."


def reveals_with(config: FeedbackSettings) -> str:
    """Return what leaves a site, in plain words."""
    return _VOTES + (_TOLD if config.told else _KEPT)


def asks(config: FeedbackSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps of a fit."""
    yield from (vote_scale, vote_place, vote, compare if config.told else keep_findings)


METHOD = Method(
    name="feedback",
    title="For each site, what is off in its data against the others', and what to record",
    tasks=("survival", "classification", "regression", "clustering", "latent"),
    paper=(
        "Huber, Robust Statistics, 1981 (medians over sites); Akaike, Ann. Inst. Statist. Math. "
        "21, 1969 (what a column would add)"
    ),
    reveals=f"{_VOTES}{_TOLD} Where sites keep that (told is false), that stays there.",
    reveals_with=reveals_with,
    unguarded=(
        "Votes of sites, and nothing of fewer than 4 min_cell rows (`algorithms.feedback.steps`)."
    ),
    settings=FeedbackSettings,
    fit=fit,
    model=Feedback,
    steps=STEPS,
    asks=asks,
    for_site=lines_for,
    raw=True,
)

__all__ = ["METHOD", "Feedback", "FeedbackSettings", "Remark", "fit"]
