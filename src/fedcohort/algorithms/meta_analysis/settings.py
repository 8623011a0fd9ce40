"""Settings of `meta_analysis`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.numerics.families import FAMILIES
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.settings import TiesSettings, WeightedSettings


@dataclass(frozen=True, kw_only=True)
class MetaSettings(WeightedSettings, TiesSettings, method="meta_analysis", alone={"pool": "fixed"}):
    """Settings of `meta_analysis`."""

    family: str = setting(
        "auto",
        "Distribution of the outcome; auto: binomial for yes/no, Poisson for counts, otherwise "
        "Gaussian; survival: Cox's model",
        choices=("auto", *FAMILIES),
    )
    link: str = setting(
        "auto",
        "Link function; auto: identity (Gaussian), logit (binomial), log (Poisson, gamma)",
        choices=("auto", *sorted({link for links in FAMILIES.values() for link in links})),
    )
    pool: str = setting(
        "random",
        "Pooling of sites: random effects of each coefficient, fixed effects, or fixed effects of "
        "all coefficients together with their covariances",
        choices=("random", "fixed", "multivariate"),
    )
    max_rounds: int = changed(
        WeightedSettings,
        "max_rounds",
        doc="Largest number of steps at a site; then its fit fails",
        unit="steps",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        links = FAMILIES.get(self.family, ())
        if links and self.link != "auto" and self.link not in links:
            raise SettingError(
                f"link {self.link!r} of method 'meta_analysis' does not go with family "
                f"{self.family!r}; give {', '.join(links)}, or auto."
            )
