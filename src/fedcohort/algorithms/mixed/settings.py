"""Settings of `mixed`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.numerics.families import USUAL
from fedcohort.protocol import changed, setting
from fedcohort.training.settings import RegressionSettings


@dataclass(frozen=True, kw_only=True)
class MixedSettings(RegressionSettings, method="mixed"):
    """Settings of `mixed`."""

    family: str = setting(
        "auto",
        "Distribution of the outcome; auto: binomial for yes/no, Poisson for counts, otherwise "
        "Gaussian",
        choices=("auto", *USUAL.values()),
    )
    likelihood: str = setting(
        "reml",
        "Likelihood of the gaussian family: restricted (reml) or full (ml); other families: full",
        choices=("reml", "ml"),
    )
    site_effects: bool = setting(False, "Return each site's effect (each site's reply is visible)")
    tol: float = changed(
        RegressionSettings,
        "tol",
        doc="Tolerance: largest step of the last iteration, of log(τ²/σ²), or of coefficients per "
        "SD and of τ",
        unit="",
    )
    max_rounds: int = changed(RegressionSettings, "max_rounds", default=40)
