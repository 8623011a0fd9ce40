"""What a user chooses of consensus ADMM, and the penalty that a method asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The regulariser h(β) = l1 ‖β‖₁ + l2/2 ‖β‖², beside a loss averaged over all rows.

    Attributes
    ----------
    l1, l2 : ≥ 0, in the covariates' units.
    intercept : whether the intercept is penalised with the coefficients, as D6.2 writes it.
    """

    l1: float = 0.0
    l2: float = 0.0
    intercept: bool = False


@dataclass(frozen=True, kw_only=True)
class AdmmSettings:
    """Settings of consensus ADMM; a method that offers ``solver="admm"`` inherits them."""

    of_solver: ClassVar[str] = "admm"

    rho: float | None = setting(
        None, "ρ > 0 of the first round; null: the curvature of the loss in standardised units"
    )
    adapt_rho: bool = setting(True, "double or halve ρ where one residual is far the larger")
    over_relaxation: float = setting(1.6, "α: how far a round goes, 1 to below 2; 1 is the paper's")
    acceleration: int = setting(
        10, "earlier rounds that Anderson acceleration combines; 0 is plain ADMM", "rounds"
    )
    abs_tol: float = setting(1e-6, "absolute tolerance of both residuals", "standardised units")
    rel_tol: float = setting(1e-5, "tolerance of both residuals, relative to what they compare")
    max_rounds: int = setting(1000, "rounds before the fit is given up", "rounds")
    local: str = setting(
        "exact",
        "a site's own problem: solved, or by the paper's fixed subgradient steps",
        choices=("exact", "subgradient"),
    )
    local_steps: int = setting(10, "subgradient steps in one round", "steps")
    local_step_size: float = setting(
        0.1, "μ of a subgradient step, GenoMed4All D6.2 (2021), eq. 3.38"
    )
    weighting: str = setting(
        "rows", "each row counts alike, or each site", choices=("rows", "sites")
    )
    penalise_intercept: bool = setting(False, "penalise the intercept too, as the paper writes it")

    def __post_init__(self) -> None:
        def positive(value: float) -> bool:
            return 0 < value < np.inf

        check_settings(
            self,
            ("rho", self.rho is None or positive(self.rho), "a number above 0, or null"),
            ("over_relaxation", 1 <= self.over_relaxation < 2, "a number from 1 to below 2"),
            ("acceleration", 0 <= self.acceleration <= 50, "a whole number from 0 to 50"),
            ("abs_tol", 0 < self.abs_tol < 1, "a number between 0 and 1"),
            ("rel_tol", 0 < self.rel_tol < 1, "a number between 0 and 1"),
            ("max_rounds", self.max_rounds >= 1, "a whole number from 1"),
            ("local_steps", self.local_steps >= 1, "a whole number from 1"),
            ("local_step_size", positive(self.local_step_size), "a number above 0"),
        )
