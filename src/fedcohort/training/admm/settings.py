"""Settings of consensus ADMM, and the penalty of a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.protocol import Settings, changed, setting
from fedcohort.training.settings import RegressionSettings


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The penalty h(β) = l1 ‖β‖₁ + l2/2 ‖β‖², added to a loss averaged over all rows.

    Attributes
    ----------
    l1, l2 : ≥ 0, in the covariates' units.
    intercept : whether the intercept is penalised too, as in D6.2.
    """

    l1: float = 0.0
    l2: float = 0.0
    intercept: bool = False


@dataclass(frozen=True, kw_only=True)
class AdmmSettings(Settings):
    """Settings of consensus ADMM; a method that offers ``solver="admm"`` inherits them."""

    of_solver: ClassVar[str] = "admm"

    rho: float | None = setting(
        None, "ρ > 0 of the first round; null: the curvature of the loss in standardised units",
        within="(0, inf)",
    )  # fmt: skip
    adapt_rho: bool = setting(True, "Double or halve ρ when one residual is much larger")
    over_relaxation: float = setting(
        1.6, "α: over-relaxation of a round; 1 is the paper's", within="[1, 2)"
    )
    acceleration: int = setting(
        10,
        "Number of earlier rounds in Anderson acceleration; 0: plain ADMM",
        "rounds",
        within="[0, 50]",
    )
    abs_tol: float = setting(
        1e-6, "Absolute tolerance of both residuals", "standardised units", within="(0, 1)"
    )
    rel_tol: float = setting(
        1e-5, "Tolerance of both residuals, relative to what they compare", within="(0, 1)"
    )
    max_rounds: int = changed(RegressionSettings, "max_rounds", default=1000)
    local: str = setting(
        "exact",
        "Local problem: exact solution, or the paper's fixed subgradient steps",
        choices=("exact", "subgradient"),
    )
    local_steps: int = setting(10, "Subgradient steps in one round", "steps", within="[1, inf)")
    local_step_size: float = setting(
        0.1, "μ of a subgradient step, GenoMed4All D6.2 (2021), eq. 3.38", within="(0, inf)"
    )
    weighting: str = setting(
        "rows", "Each row counts alike, or each site", choices=("rows", "sites")
    )
    penalise_intercept: bool = setting(False, "Penalise the intercept too, as the paper writes it")
