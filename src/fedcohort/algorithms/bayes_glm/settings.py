"""Settings of `bayes_linear` and `bayes_logistic`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.settings import AscentSettings, PriorSettings

#: Fewest sites from which the standard deviation between sites can be learnt.
FEWEST = 2


@dataclass(frozen=True, kw_only=True)
class BySiteSettings(PriorSettings, alone={"by_site": "none", "site_effects": False}):
    """Settings of Gaussian priors on coefficients and on effects of sites."""

    by_site: str = setting(
        "none",
        "Coefficients of which each site has its own, drawn around the common one: none, the "
        "intercept, or all",
        choices=("none", "intercept", "all"),
    )
    site_scale: float = setting(
        1.0,
        "Scale of the half-normal prior of τ, the standard deviation of sites' intercepts and, "
        "per standard deviation of the covariate, of their coefficients",
        within="(0, 100]",
    )
    predictive_draws: int = setting(
        0,
        "Draws of the posterior for predictive checks of the outcome; 0: no checks",
        "draws",
        within="[0, 1000]",
    )
    site_effects: bool = setting(False, "Return each site's effects (each site's reply is visible)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            (
                "site_effects",
                self.by_site != "none" or not self.site_effects,
                "false, or by_site: intercept or all",
            ),
        )

    def check_sites(self, sites: int) -> None:
        """Refuse effects of sites with fewer than `FEWEST` sites."""
        super().check_sites(sites)
        if self.by_site != "none" and sites < FEWEST:
            raise SettingError(
                f"setting 'by_site' of method {self.method!r} is {self.by_site!r}, and {sites} "
                f"site tells nothing about how sites differ; give 'none', or {FEWEST} sites."
            )


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
