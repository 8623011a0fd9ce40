"""Settings shared by regressions, and by models for one site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.data.timegrid import check_rule
from fedcohort.protocol import SettingError, Settings, changed, setting

#: Fewest sites from which the standard deviation between sites can be learnt.
FEWEST = 2
#: User of a fit that gives every site a model of its own, which the site keeps.
ALL = "all"


def kept_at_sites(method: str) -> str:
    """Return the error's text for a prediction by a model that is each site's own."""
    return (
        f"each site keeps its own model of this fit of {method!r}. Take fit.of(site), or the "
        f"folder models/ARM/sites/SITE of a simulation; over a network, 'fedcohort predict' at "
        f"the node."
    )


@dataclass(frozen=True, kw_only=True)
class UserSettings(Settings):
    """Setting of the site that a model is for.

    Attributes
    ----------
    for_all : whether the method can fit a model for each site at once.
    """

    user: str = setting("", "Site of the personal model; required")

    for_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.user == ALL and not self.for_all:
            raise SettingError(
                f"setting 'user' of method {self.method!r} is {ALL!r}, and this method fits a "
                f"model for one site. Name that site, or take 'personal', 'deepcox', 'classifier', "
                f"'regressor' or 'regression_forest'."
            )

    @property
    def every(self) -> bool:
        """Whether each site gets a model of its own, which it keeps."""
        return self.user == ALL


@dataclass(frozen=True, kw_only=True)
class IntervalSettings(Settings):
    """Setting of confidence intervals."""

    level: float = setting(0.95, "Coverage of the intervals", within="(0, 1)")


@dataclass(frozen=True, kw_only=True)
class PriorSettings(IntervalSettings):
    """Settings of a Gaussian prior on standardised covariates."""

    prior_scale: float = setting(
        2.5,
        "Prior standard deviation of a coefficient, per standard deviation of its covariate",
        within="(0, 1000]",
    )
    level: float = changed(IntervalSettings, "level", doc="Probability of the credible intervals")


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
class AscentSettings(IntervalSettings):
    """Settings of an iterative regression: end, and intervals."""

    tol: float = setting(
        1e-8, "Tolerance: largest step of the last iteration", "per SD", within="(0, 0.01)"
    )
    max_rounds: int = setting(
        50, "Largest number of rounds; then the fit fails", "rounds", within="[1, inf)"
    )


@dataclass(frozen=True, kw_only=True)
class RegressionSettings(AscentSettings):
    """The same, with an offset."""

    offset: str = setting("", "Offset: column added to the linear predictor; empty: none")


@dataclass(frozen=True, kw_only=True)
class RowWeightSettings(Settings):
    """Setting of weighted rows."""

    weights: str = setting("", "Column of case weights above 0; empty: none")


@dataclass(frozen=True, kw_only=True)
class WeightedSettings(RowWeightSettings, RegressionSettings):
    """Settings of an iterative regression with an offset and weighted rows."""


@dataclass(frozen=True, kw_only=True)
class RidgeSettings(Settings):
    """Setting of a ridge penalty."""

    l2: float = setting(
        0.0, "Ridge penalty λ₂ ≥ 0", "squared unit of the covariate", within="[0, inf)"
    )


@dataclass(frozen=True, kw_only=True)
class TiesSettings(Settings):
    """Setting of ties in Cox's model."""

    ties: str = setting("efron", "Ties of death times", choices=("efron", "breslow"))


@dataclass(frozen=True, kw_only=True)
class GridSettings(Settings, alone={"time_grid": "exact"}):
    """Setting of the times of sums in survival models."""

    time_grid: str | int = setting(
        "protected",
        "Times at which risk sets are summed: 'protected', 'exact', or a number m of intervals "
        "(also as 'quantiles(m)')",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.time_grid)


@dataclass(frozen=True, kw_only=True)
class PathSettings(Settings):
    """Settings of a path of penalties, and of the folds that choose one."""

    path: int = setting(100, "Number of penalties of the path", "penalties", within="[2, 1000]")
    path_ratio: float = setting(
        1e-3, "Smallest penalty of the path, as a share of the largest", within="(0, 1)"
    )
    folds: str = setting(
        "centre",
        "Folds: groups of sites (rows, if a site would be alone), or rows",
        choices=("centre", "rows"),
    )
    n_folds: int = setting(10, "Largest number of folds", "folds", within="[2, 100]")
