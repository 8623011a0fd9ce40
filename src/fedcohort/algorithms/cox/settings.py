"""The settings of `cox`, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.algorithms.cox import proportional
from fedcohort.data.prepare.timegrid import check_rule
from fedcohort.protocol import SettingError, check_settings, setting


@dataclass(frozen=True, kw_only=True)
class CoxSettings:
    """Settings of `cox`; the objective is −ℓ(β)/n + l1 ‖β‖₁ + l2/2 ‖β‖², with n the weight of all.

    `penalty` and `l1_ratio` are another way to give l1 and l2, and the only one to have them
    chosen: "auto" fits a path of penalties and takes the one under which sites that were left out
    are most likely.
    """

    ties: str = setting("efron", "how equal times of death count", choices=("efron", "breslow"))
    baseline: str = setting(
        "shared",
        "one baseline hazard for all sites, or each site its own",
        choices=("shared", "stratified"),
    )
    l1: float = setting(0.0, "lasso penalty λ₁ ≥ 0", "unit of the covariate")
    l2: float = setting(0.0, "ridge penalty λ₂ ≥ 0", "squared unit of the covariate")
    penalty: float | Literal["auto"] = setting(
        0.0, "λ ≥ 0, in place of l1 and l2, or 'auto': chosen by cross-validation over sites"
    )
    l1_ratio: float = setting(1.0, "share of the penalty that is lasso: l1 = ratio λ, the rest l2")
    path: int = setting(20, "penalties that 'auto' tries", "penalties")
    path_ratio: float = setting(0.01, "smallest penalty of the path, as a share of the largest")
    folds: str = setting(
        "centre",
        "what 'auto' holds out: groups of sites (rows, where that would leave a site alone), or "
        "rows",
        choices=("centre", "rows"),
    )
    n_folds: int = setting(5, "folds, at most", "folds")
    offset: str = setting("", "column that is added to the log hazard as it is; none if empty")
    weights: str = setting("", "column of case weights above 0; none if empty")
    strata: str = setting(
        "", "column whose levels each have a baseline hazard of their own; none if empty"
    )
    time_grid: str | int = setting(
        "protected",
        "times at which risk sets are summed: 'protected', 'exact', or a number m of intervals "
        "(also as 'quantiles(m)')",
    )
    tol: float = setting(1e-7, "longest step at the end", "log hazard ratio per SD")
    max_rounds: int = setting(60, "rounds before the fit is given up", "rounds")
    level: float = setting(0.95, "coverage of the intervals")
    ph_check: str = setting(
        "km",
        "function of time with which effects are tested to change: 1 − Kaplan-Meier, the rank of "
        "deaths, time, its logarithm, or none",
        choices=(*proportional.TRANSFORMS, "none"),
    )

    def __post_init__(self) -> None:
        check_rule(self.time_grid)
        number = self.penalty if self.penalty != "auto" else 0.0
        check_settings(
            self,
            ("l1", 0 <= self.l1 < np.inf, "a number from 0"),
            ("l2", 0 <= self.l2 < np.inf, "a number from 0"),
            ("penalty", 0 <= number < np.inf, "a number from 0, or 'auto'"),
            ("l1_ratio", 0 <= self.l1_ratio <= 1, "a number from 0 to 1"),
            ("path", 2 <= self.path <= 1000, "a whole number from 2 to 1000"),
            ("path_ratio", 0 < self.path_ratio < 1, "a number between 0 and 1"),
            ("n_folds", 2 <= self.n_folds <= 100, "a whole number from 2 to 100"),
            ("tol", 0 < self.tol < 1e-2, "a number between 0 and 0.01"),
            ("max_rounds", self.max_rounds >= 1, "a whole number from 1"),
            ("level", 0 < self.level < 1, "a number between 0 and 1"),
            method="cox",
        )
        if self.penalty and (self.l1 or self.l2):
            raise SettingError(
                f"method 'cox' has penalty {self.penalty!r} besides l1 {self.l1:g} and l2 "
                f"{self.l2:g}; give either penalty (with l1_ratio), or l1 and l2."
            )
        if self.penalty == "auto" and self.l1_ratio < 0.01:
            raise SettingError(
                f"setting 'l1_ratio' of method 'cox' is {self.l1_ratio:g} with penalty 'auto'; "
                f"give 0.01 or more, or tune l2 in a study: a path begins where l1 leaves nothing."
            )

    def penalties(self, penalty: float) -> tuple[float, float]:
        """Return λ₁ and λ₂ of one number."""
        return penalty * self.l1_ratio, penalty * (1 - self.l1_ratio)

    @property
    def given(self) -> tuple[float, float]:
        """λ₁ and λ₂; 0 and 0 where they are to be chosen."""
        if self.penalty == "auto":
            return 0.0, 0.0
        return self.penalties(self.penalty) if self.penalty else (self.l1, self.l2)

    @property
    def fits(self) -> int:
        """How many fits there may be, one for each penalty and fold, and for all rows."""
        return self.path * (self.n_folds + 1) if self.penalty == "auto" else 1
