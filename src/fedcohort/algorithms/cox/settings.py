"""Settings of `cox` and `bayes_cox`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.algorithms.cox import proportional
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.settings import (
    BySiteSettings,
    GridSettings,
    PathSettings,
    RidgeSettings,
    TiesSettings,
    WeightedSettings,
)


@dataclass(frozen=True, kw_only=True)
class LikelihoodSettings(TiesSettings, GridSettings, WeightedSettings):
    """Settings of the partial likelihood and of its maximum."""

    baseline: str = setting(
        "shared",
        "Baseline hazard: shared by all sites, or stratified by site",
        choices=("shared", "stratified"),
    )
    offset: str = changed(
        WeightedSettings, "offset", doc="Offset: column added to the log hazard; empty: none"
    )
    strata: str = setting(
        "", "Column whose levels each have a baseline hazard of their own; empty: none"
    )
    tol: float = changed(WeightedSettings, "tol", default=1e-7, unit="log hazard ratio per SD")
    max_rounds: int = changed(WeightedSettings, "max_rounds", default=60)
    ph_check: str = setting(
        "km",
        "Function of time in the test of proportional hazards: 1 − Kaplan-Meier, rank of deaths, "
        "time, its logarithm; none: no test",
        choices=(*proportional.TRANSFORMS, "none"),
    )

    @property
    def stratified(self) -> bool:
        """Whether each site has its own baseline hazard."""
        return self.baseline == "stratified"

    @property
    def trend(self) -> str:
        """Function of time in the test of proportional hazards; "none" without a test."""
        return "none" if self.lasso else self.ph_check

    @property
    def lasso(self) -> bool:
        """Whether the penalty has λ₁ > 0 from the start."""
        return False

    @property
    def tried(self) -> int:
        """Number of penalties of a path; 0 without one."""
        return 0

    @property
    def fits(self) -> int:
        """Largest number of fits."""
        return 1


@dataclass(frozen=True, kw_only=True)
class CoxSettings(LikelihoodSettings, RidgeSettings, PathSettings, method="cox"):
    """Settings of `cox`; the objective is −ℓ(β)/n + l1 ‖β‖₁ + l2/2 ‖β‖², with n the total weight.

    Give l1 and l2, or `penalty` and `l1_ratio`. `penalty` "auto" fits a path of penalties and
    takes the one with the largest likelihood of held-out folds.
    """

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty and (self.l1 or self.l2):
            raise SettingError(
                f"method 'cox' has penalty {self.penalty!r} besides l1 {self.l1:g} and l2 "
                f"{self.l2:g}; give either penalty (with l1_ratio), or l1 and l2."
            )
        if self.penalty == "auto" and self.l1_ratio < 0.01:
            raise SettingError(
                f"setting 'l1_ratio' of method 'cox' is {self.l1_ratio:g} with penalty 'auto'; "
                f"give 0.01 or more, or tune l2 in a study. The path starts at the l1 with which "
                f"all coefficients are 0."
            )

    def penalties(self, penalty: float) -> tuple[float, float]:
        """Return λ₁ and λ₂ of the penalty λ."""
        return penalty * self.l1_ratio, penalty * (1 - self.l1_ratio)

    @property
    def given(self) -> tuple[float, float]:
        """λ₁ and λ₂; both 0 with penalty "auto"."""
        if self.penalty == "auto":
            return 0.0, 0.0
        return self.penalties(self.penalty) if self.penalty else (self.l1, self.l2)

    @property
    def lasso(self) -> bool:
        """Whether the penalty has λ₁ > 0 from the start."""
        return self.given[0] > 0

    @property
    def tried(self) -> int:
        """Number of penalties of a path; 0 without one."""
        return self.path if self.penalty == "auto" else 0

    @property
    def fits(self) -> int:
        """Largest number of fits: for each penalty, one per fold and one on all rows."""
        return max(1, self.tried * (self.n_folds + 1))


@dataclass(frozen=True, kw_only=True)
class BayesCoxSettings(BySiteSettings, LikelihoodSettings, method="bayes_cox"):
    """Settings of `bayes_cox`."""

    by_site: str = changed(
        BySiteSettings,
        "by_site",
        doc="What each site has of its own: none; intercept: its baseline hazard (as baseline: "
        "stratified); all: also its coefficients, drawn around the common ones",
    )
    site_scale: float = changed(
        BySiteSettings,
        "site_scale",
        doc="Scale of the half-normal prior of τ, the standard deviation of sites' coefficients "
        "per standard deviation of the covariate",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            (
                "site_effects",
                self.own_effects or not self.site_effects,
                "false, or by_site: all",
            ),
            (
                "predictive_draws",
                not (self.predictive_draws and self.weights),
                "0 with weights: a drawn outcome is of one record",
            ),
        )

    @property
    def own_effects(self) -> bool:
        """Whether each site has its own coefficients."""
        return self.by_site == "all"

    @property
    def stratified(self) -> bool:
        """Whether each site has its own baseline hazard."""
        return self.by_site != "none" or super().stratified

    @property
    def trend(self) -> str:
        """Function of time in the test of proportional hazards; none where effects differ."""
        return "none" if self.own_effects else super().trend
