"""Settings of `mixed`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.numerics.families import USUAL
from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class MixedSettings:
    """Settings of `mixed`."""

    family: str = setting(
        "auto",
        "distribution of the outcome; auto: binomial for a yes/no outcome, poisson for a count, "
        "gaussian for others",
        choices=("auto", *USUAL.values()),
    )
    likelihood: str = setting(
        "reml",
        "of the gaussian family: restricted (reml), or full (ml), as the other families have",
        choices=("reml", "ml"),
    )
    site_effects: bool = setting(False, "whether each site reveals its own effect at the end")
    offset: str = setting("", "column that is added to the linear predictor")
    tol: float = setting(
        1e-8, "longest step at the end: of log(τ²/σ²), or of coefficients per SD and of τ"
    )
    max_rounds: int = setting(40, "rounds before the fit is given up", "rounds")
    level: float = setting(0.95, "coverage of the intervals")

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("tol", 0 < self.tol < 1e-2, "a number between 0 and 0.01"),
            ("max_rounds", self.max_rounds >= 1, "a whole number from 1"),
            ("level", 0 < self.level < 1, "a number between 0 and 1"),
            method="mixed",
        )
