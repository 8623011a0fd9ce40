"""Settings of `meta_analysis`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.numerics.families import FAMILIES
from fedcohort.protocol import SettingError, check_settings, setting


@dataclass(frozen=True, kw_only=True)
class MetaSettings:
    """Settings of `meta_analysis`."""

    family: str = setting(
        "auto",
        "distribution of the outcome; auto: binomial for a yes/no outcome, poisson for a count, "
        "gaussian for other values; of survival it is Cox's model that is fitted",
        choices=("auto", *FAMILIES),
    )
    link: str = setting(
        "auto",
        "from the mean to the linear predictor; auto: identity, logit, log and log, by family",
        choices=("auto", *sorted({link for links in FAMILIES.values() for link in links})),
    )
    pool: str = setting(
        "random",
        "how sites are pooled: random effects of each coefficient, fixed effects, or fixed effects "
        "of all coefficients together with their covariances",
        choices=("random", "fixed", "multivariate"),
    )
    ties: str = setting(
        "efron", "how equal times of death count, survival", choices=("efron", "breslow")
    )
    offset: str = setting("", "column that is added to the linear predictor")
    weights: str = setting("", "column of how much each record counts")
    tol: float = setting(1e-8, "longest step at the end of a site's fit", "per SD")
    max_rounds: int = setting(50, "steps before a site's fit is given up", "steps")
    level: float = setting(0.95, "coverage of the intervals")

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("tol", 0 < self.tol < 1e-2, "a number between 0 and 0.01"),
            ("max_rounds", self.max_rounds >= 1, "a whole number from 1"),
            ("level", 0 < self.level < 1, "a number between 0 and 1"),
            method="meta_analysis",
        )
        known = FAMILIES.get(self.family, ())
        if known and self.link != "auto" and self.link not in known:
            raise SettingError(
                f"link {self.link!r} of method 'meta_analysis' does not go with family "
                f"{self.family!r}; give {', '.join(known)}, or auto."
            )
