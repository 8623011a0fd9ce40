"""Settings of `glm` and `logistic`; the objective is −ℓ(β)/w + l2/2 ‖β‖², w the sum of weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.numerics.families import FAMILIES
from fedcohort.protocol import SettingError, check_settings, setting
from fedcohort.training.admm import AdmmSettings

_L2 = "squared unit of the covariate"
_LINKS = tuple(dict.fromkeys(link for links in FAMILIES.values() for link in links))
_OFFSET = "column that is added to the linear predictor, such as log person-time; '' for none"
_WEIGHTS = "column of prior weights > 0: a row's variance is divided by its weight; '' for none"


@dataclass(frozen=True, kw_only=True)
class GlmSettings:
    """Settings of `glm`."""

    family: str = setting(
        "auto",
        "law of the outcome; 'auto': binomial of a yes/no, Poisson of a count, else Gaussian",
        choices=("auto", *FAMILIES),
    )
    link: str = setting(
        "auto",
        "from the mean to the linear predictor; 'auto': identity, logit, log, log",
        choices=("auto", *_LINKS),
    )
    offset: str = setting("", _OFFSET)
    weights: str = setting("", _WEIGHTS)
    l2: float = setting(0.0, "ridge penalty λ₂ ≥ 0", _L2)
    tol: float = setting(1e-7, "longest step at the end", "linear predictor per SD")
    max_rounds: int = setting(50, "rounds before the fit is given up, up to 50", "rounds")
    level: float = setting(0.95, "coverage of the intervals")
    dp_rounds: int = setting(30, "rounds of a differentially private fit", "rounds")

    def __post_init__(self) -> None:
        _check("glm", self)
        if self.family != "auto" and self.link not in ("auto", *FAMILIES[self.family]):
            raise SettingError(
                f"link {self.link!r} does not go with family {self.family!r} in method 'glm'; give "
                f"{' or '.join(map(repr, FAMILIES[self.family]))}."
            )

    @property
    def ridge(self) -> float:
        """The ridge penalty."""
        return self.l2


@dataclass(frozen=True, kw_only=True)
class LogisticSettings(AdmmSettings):
    """Settings of `logistic`."""

    l2: float = setting(0.0, "ridge penalty λ₂ ≥ 0", _L2)
    penalty: float | None = setting(None, "another name of `l2`", _L2)
    solver: str = setting(
        "exact",
        "how the optimum is found: Newton's method, or consensus ADMM (no standard errors)",
        choices=("exact", "admm"),
    )
    offset: str = setting("", _OFFSET)
    weights: str = setting("", _WEIGHTS)
    tol: float = setting(1e-7, "longest step at the end (exact)", "log odds ratio per SD")
    max_rounds: int = setting(
        1000, "rounds before the fit is given up; of solver exact, up to 50", "rounds"
    )
    level: float = setting(0.95, "coverage of the intervals")
    dp_rounds: int = setting(30, "rounds of a differentially private fit", "rounds")

    def __post_init__(self) -> None:
        _check("logistic", self)
        if self.penalty is not None:
            fine = 0 <= self.penalty < np.inf
            check_settings(self, ("penalty", fine, "a number from 0"), method="logistic")
            if self.l2 not in (0.0, self.penalty):
                raise SettingError(
                    f"'penalty' and 'l2' are two names of one setting of method 'logistic', and "
                    f"are {self.penalty:g} and {self.l2:g}. Give one of them."
                )
        if self.solver == "admm" and not self.ridge:
            raise SettingError(
                "solver 'admm' of method 'logistic' needs a penalty above 0: it sums no curvature, "
                "so that without one it cannot tell classes that a covariate separates. Give one, "
                "or use solver 'exact'."
            )
        super().__post_init__()

    @property
    def ridge(self) -> float:
        """The ridge penalty, by whichever name it was given."""
        return self.l2 if self.penalty is None else self.penalty


def _check(method: str, config: GlmSettings | LogisticSettings) -> None:
    """Check what both methods have in common.

    Raises
    ------
    SettingError : a number is outside its bounds.
    """
    check_settings(
        config,
        ("l2", 0 <= config.l2 < np.inf, "a number from 0"),
        ("tol", 0 < config.tol < 1e-2, "a number between 0 and 0.01"),
        ("max_rounds", config.max_rounds >= 1, "a whole number from 1"),
        ("dp_rounds", config.dp_rounds >= 1, "a whole number from 1"),
        ("level", 0 < config.level < 1, "a number between 0 and 1"),
        method=method,
    )


#: What both methods' settings have.
Scored = GlmSettings | LogisticSettings
