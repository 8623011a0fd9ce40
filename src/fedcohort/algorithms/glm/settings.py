"""Settings of `glm` and `logistic`; the objective is −ℓ(β)/w + l2/2 ‖β‖², w the sum of weights."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.numerics.families import FAMILIES
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.admm import AdmmSettings
from fedcohort.training.settings import RidgeSettings, WeightedSettings

_LINKS = tuple(dict.fromkeys(link for links in FAMILIES.values() for link in links))


@dataclass(frozen=True, kw_only=True)
class ScoredSettings(WeightedSettings, RidgeSettings):
    """Settings of both methods."""

    offset: str = changed(
        WeightedSettings,
        "offset",
        doc="Offset: column added to the linear predictor, such as log person-time; empty: none",
    )
    weights: str = changed(
        WeightedSettings,
        "weights",
        doc="Column of prior weights > 0: a row's variance is divided by its weight; empty: none",
    )
    tol: float = changed(WeightedSettings, "tol", default=1e-7, unit="linear predictor per SD")
    dp_rounds: int = setting(
        30, "Rounds of a differentially private fit", "rounds", within="[1, inf)"
    )

    @property
    def ridge(self) -> float:
        """The ridge penalty."""
        return self.l2


@dataclass(frozen=True, kw_only=True)
class GlmSettings(ScoredSettings, method="glm"):
    """Settings of `glm`."""

    family: str = setting(
        "auto",
        "Distribution of the outcome; auto: binomial for yes/no, Poisson for counts, otherwise "
        "Gaussian",
        choices=("auto", *FAMILIES),
    )
    link: str = setting(
        "auto",
        "Link function; auto: identity (Gaussian), logit (binomial), log (Poisson, gamma)",
        choices=("auto", *_LINKS),
    )
    max_rounds: int = changed(
        WeightedSettings,
        "max_rounds",
        doc="Largest number of rounds, up to 50; then the fit fails",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family != "auto" and self.link not in ("auto", *FAMILIES[self.family]):
            raise SettingError(
                f"link {self.link!r} does not go with family {self.family!r} in method 'glm'; give "
                f"{' or '.join(map(repr, FAMILIES[self.family]))}."
            )


@dataclass(frozen=True, kw_only=True)
class LogisticSettings(ScoredSettings, AdmmSettings, method="logistic"):
    """Settings of `logistic`."""

    penalty: float | None = changed(RidgeSettings, "l2", default=None, doc="Another name of `l2`")
    solver: str = setting(
        "exact",
        "Newton's method, or consensus ADMM (no standard errors)",
        choices=("exact", "admm"),
    )
    tol: float = changed(
        ScoredSettings,
        "tol",
        doc="Tolerance: largest step of the last iteration (exact)",
        unit="log odds ratio per SD",
    )
    max_rounds: int = changed(
        AdmmSettings,
        "max_rounds",
        doc="Largest number of rounds; of solver exact, up to 50; then the fit fails",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty is not None and self.l2 not in (0.0, self.penalty):
            raise SettingError(
                f"'penalty' and 'l2' are two names of one setting of method 'logistic', and "
                f"are {self.penalty:g} and {self.l2:g}. Give one of them."
            )
        if self.solver == "admm" and not self.ridge:
            raise SettingError(
                "solver 'admm' of method 'logistic' needs a penalty above 0: it sums no curvature, "
                "so without a penalty it cannot detect classes that a covariate separates. Give a "
                "penalty, or use solver 'exact'."
            )

    @property
    def ridge(self) -> float:
        """The ridge penalty, given as `penalty` or `l2`."""
        return self.l2 if self.penalty is None else self.penalty


#: The settings of either method.
Scored = GlmSettings | LogisticSettings
