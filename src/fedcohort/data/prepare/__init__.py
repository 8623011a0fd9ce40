"""Federated preprocessing: a design from sums over sites.

call 1    rows; per number n, Σx and how many are not whole; per category its levels
call 2    Σ(x − mean)² of each number
call 3 …  only for medians, modes, ranges, ranks and outliers: histogram cells (`sketch`)
then      only if outliers are cut: sums of the remaining values
then      only for iterative imputation: expected sums, round by round (`iterative`)

Revealed: `Tally`, `Spread`, `Cells`, `Cut` and `Expected`, only as sums over all sites.
"""

from collections.abc import Mapping
from typing import Any

from fedcohort.data.prepare.bounded import bounded_design, check_options
from fedcohort.data.prepare.columns import Column, LevelColumn, NumberColumn
from fedcohort.data.prepare.design import Design, Table
from fedcohort.data.prepare.fit import (
    check_roles,
    classes_of,
    empty_views,
    fit_design,
    strata_levels,
)
from fedcohort.data.prepare.heads import KINDS as HEADS
from fedcohort.data.prepare.heads import Head, chosen, heads_asked, heads_from, plain_heads
from fedcohort.data.prepare.iterative import (
    Expected,
    IncompleteView,
    Reached,
    expected_moments,
    maximised,
)
from fedcohort.data.prepare.levels import CONSTANT
from fedcohort.data.prepare.options import (
    IMPUTERS,
    IMPUTES,
    MOST_WINSORISED,
    OPTIONS,
    SCALES,
    TABLES,
    checked,
)
from fedcohort.data.prepare.sketch import Histogram, Moments, count_between, histograms, refine
from fedcohort.data.prepare.steps import (
    Cells,
    Spread,
    column_cells,
    column_cut,
    column_spread,
    column_tally,
)
from fedcohort.protocol.step import Step

#: Every step that `fit_design` may call.
STEPS: tuple[Step[..., Any], ...] = (
    column_tally, column_spread, column_cells, column_cut, expected_moments,
)  # fmt: skip


def asked(options: Mapping[str, Any]) -> tuple[Step[..., Any], ...]:
    """Return the steps that `fit_design` may call with these options."""
    cut, impute = bool(options.get("winsorise")), options.get("impute", "median")
    scale = options.get("scale", "none")
    plain = impute in ("mean", "iterative", "none") and scale in ("none", "standard") and not cut
    return (
        column_tally,
        column_spread,
        *(column_cells,) * (not plain),
        *(column_cut,) * cut,
        *(expected_moments,) * (impute == "iterative"),
    )


__all__ = [
    "CONSTANT",
    "Cells",
    "Column",
    "Design",
    "Expected",
    "Head",
    "Histogram",
    "HEADS",
    "IMPUTERS",
    "IMPUTES",
    "IncompleteView",
    "LevelColumn",
    "MOST_WINSORISED",
    "Moments",
    "NumberColumn",
    "OPTIONS",
    "Reached",
    "SCALES",
    "Spread",
    "STEPS",
    "TABLES",
    "Table",
    "asked",
    "bounded_design",
    "check_options",
    "check_roles",
    "classes_of",
    "checked",
    "chosen",
    "count_between",
    "empty_views",
    "fit_design",
    "heads_asked",
    "heads_from",
    "histograms",
    "maximised",
    "plain_heads",
    "refine",
    "strata_levels",
]
