"""The settings of `cox`, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.algorithms.cox import proportional
from fedcohort.data.timegrid import check_rule
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.settings import PathSettings, RidgeSettings, WeightedSettings


@dataclass(frozen=True, kw_only=True)
class CoxSettings(
    WeightedSettings, RidgeSettings, PathSettings, method="cox", alone={"time_grid": "exact"}
):
    """Settings of `cox`; the objective is −ℓ(β)/n + l1 ‖β‖₁ + l2/2 ‖β‖², with n the weight of all.

    `penalty` and `l1_ratio` are another way to give l1 and l2, and the only one to have them
    chosen: "auto" fits a path of penalties and takes the one under which sites that were left out
    are most likely.
    """

    ties: str = setting("efron", "Ties of death times", choices=("efron", "breslow"))
    baseline: str = setting(
        "shared",
        "Baseline hazard: shared by all sites, or stratified by site",
        choices=("shared", "stratified"),
    )
    l1: float = setting(0.0, "Lasso penalty λ₁ ≥ 0", "unit of the covariate", within="[0, inf)")
    penalty: float | Literal["auto"] = setting(
        0.0,
        "λ ≥ 0, in place of l1 and l2, or 'auto': chosen by cross-validation over sites",
        within="[0, inf)",
    )
    l1_ratio: float = setting(
        1.0, "Share of the penalty that is lasso: l1 = ratio λ, the rest l2", within="[0, 1]"
    )
    path: int = changed(PathSettings, "path", default=20, doc="Number of penalties of 'auto'")
    path_ratio: float = changed(PathSettings, "path_ratio", default=0.01)
    folds: str = changed(
        PathSettings,
        "folds",
        doc="Folds of 'auto': groups of sites (rows, if a site would be alone), or rows",
    )
    n_folds: int = changed(PathSettings, "n_folds", default=5)
    offset: str = changed(
        WeightedSettings, "offset", doc="Offset: column added to the log hazard; empty: none"
    )
    strata: str = setting(
        "", "Column whose levels each have a baseline hazard of their own; empty: none"
    )
    time_grid: str | int = setting(
        "protected",
        "Times at which risk sets are summed: 'protected', 'exact', or a number m of intervals "
        "(also as 'quantiles(m)')",
    )
    tol: float = changed(WeightedSettings, "tol", default=1e-7, unit="log hazard ratio per SD")
    max_rounds: int = changed(WeightedSettings, "max_rounds", default=60)
    ph_check: str = setting(
        "km",
        "Function of time of the test of proportional hazards: 1 − Kaplan-Meier, the rank of "
        "deaths, time, its logarithm, or none",
        choices=(*proportional.TRANSFORMS, "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.time_grid)
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
