"""Survival curves and their comparison: Kaplan–Meier, Nelson–Aalen, and the log-rank test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.survival_curves.comparison import LogRankModel
from fedcohort.algorithms.survival_curves.groups import design_of
from fedcohort.algorithms.survival_curves.model import CurvesModel
from fedcohort.algorithms.survival_curves.program import (
    fit_kaplan_meier,
    fit_log_rank,
    fit_nelson_aalen,
)
from fedcohort.algorithms.survival_curves.settings import (
    CurveSettings,
    KaplanMeierSettings,
    LogRankSettings,
)
from fedcohort.algorithms.survival_curves.steps import STEPS as CURVE_STEPS
from fedcohort.data import timegrid
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.prepare import Design
from fedcohort.protocol import Method, SettingError, Task

#: Why no fit calls `data.exact`.
_UNGUARDED = (
    "Counts and sums of times in cells with 0 or at least min_cell records, of each group and of "
    "the rest (`algorithms.survival_curves.cells`)."
)

_PROTECTED = (
    "Only sums over all sites: records and deaths of each group; deaths by time once, for the "
    "grid; and how many die or leave, and the sums of their times, in intervals that hold enough."
)
_EXACT = (
    "Each site's times of death; and, summed over all sites, deaths and censored records of each "
    "group at each of these times."
)


def reveals_with(config: Any) -> str:
    """Describe what leaves a site with these settings."""
    return _EXACT if config.time_grid == "exact" else _PROTECTED


def _design(config: Any, dictionary: Dictionary, outcome: Outcome | None) -> Design:
    return design_of(config.by, dictionary, outcome)


def _design_of_groups(config: Any, dictionary: Dictionary, outcome: Outcome | None) -> Design:
    if not config.by:
        raise SettingError("method 'log_rank' compares groups; name their column with by=...")
    return design_of(config.by, dictionary, outcome)


def bounds(config: Any, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    return {"groups": (len(task.features) if config.by else 0,)}


METHOD = Method(
    name="kaplan_meier",
    title="Survival of all patients, or of groups, with intervals and numbers at risk",
    tasks=("survival",),
    paper="Kaplan & Meier, JASA 53, 1958; Greenwood, 1926",
    reveals=f"{_PROTECTED} With time_grid 'exact': {_EXACT}",
    reveals_with=reveals_with,
    unguarded=_UNGUARDED,
    settings=KaplanMeierSettings,
    fit=fit_kaplan_meier,
    model=CurvesModel,
    steps=(*CURVE_STEPS, *timegrid.STEPS),
    bounds=bounds,
    design=_design,
)

NELSON_AALEN = replace(
    METHOD,
    name="nelson_aalen",
    title="The cumulative hazard of all patients, or of groups, with intervals",
    paper="Nelson, Technometrics 14(4), 1972; Aalen, Ann. Stat. 6(4), 1978",
    unguarded=_UNGUARDED,
    settings=CurveSettings,
    fit=fit_nelson_aalen,
)

LOG_RANK = replace(
    METHOD,
    name="log_rank",
    title="Do groups of patients die at different rates? The log-rank test, and weighted ones",
    paper="Mantel, Cancer Chemother. Rep. 50, 1966; Peto & Peto, JRSS A 135, 1972",
    unguarded=_UNGUARDED,
    settings=LogRankSettings,
    fit=fit_log_rank,
    model=LogRankModel,
    design=_design_of_groups,
)

__all__ = [
    "LOG_RANK",
    "METHOD",
    "NELSON_AALEN",
    "CurveSettings",
    "CurvesModel",
    "KaplanMeierSettings",
    "LogRankModel",
    "LogRankSettings",
    "fit_kaplan_meier",
    "fit_log_rank",
    "fit_nelson_aalen",
]
