"""Settings of `bayes_linear` and `bayes_logistic`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import changed, setting
from fedcohort.training.settings import AscentSettings, BySiteSettings


@dataclass(frozen=True, kw_only=True)
class BayesLinearSettings(BySiteSettings, method="bayes_linear"):
    """Settings of `bayes_linear`."""

    prior_scale: float = changed(
        BySiteSettings,
        "prior_scale",
        doc="Prior standard deviation of a coefficient per standard deviation of its covariate, "
        "in residual standard deviations",
    )
    site_scale: float = changed(
        BySiteSettings,
        "site_scale",
        doc="Scale of the half-normal prior of τ, the standard deviation of sites' intercepts and, "
        "per standard deviation of the covariate, of their coefficients, in residual standard "
        "deviations",
    )
    noise_shape: float = setting(
        0.0, "Shape a₀ of the inverse-gamma prior of the residual variance", within="[0, 1000]"
    )
    noise_rate: float = setting(
        0.0,
        "Rate b₀ of the inverse-gamma prior of the residual variance",
        "squared unit of the outcome",
        within="[0, inf)",
    )


@dataclass(frozen=True, kw_only=True)
class BayesLogisticSettings(BySiteSettings, AscentSettings, method="bayes_logistic"):
    """Settings of `bayes_logistic`."""

    intercept_scale: float = setting(
        10.0,
        "Prior standard deviation of the intercept at the covariates' means",
        "log odds",
        within="(0, 1000]",
    )
    tol: float = changed(
        AscentSettings,
        "tol",
        default=1e-6,
        doc="Tolerance: largest change of a posterior mean or standard deviation, in posterior "
        "standard deviations",
        unit="",
    )
    max_rounds: int = changed(AscentSettings, "max_rounds", default=200)
    skewness: bool = setting(
        False,
        "Correct standard deviations and intervals for the skewness of the posterior, by one "
        "more sum",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            ("skewness", self.by_site == "none" or not self.skewness, "false, or by_site: none")
        )
