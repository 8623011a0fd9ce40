"""Settings of `multinomial` and `ordinal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.protocol import changed, setting
from fedcohort.training.settings import AscentSettings, RidgeSettings, RowWeightSettings


@dataclass(frozen=True, kw_only=True)
class ClassesSettings(RowWeightSettings, RidgeSettings, AscentSettings):
    """Settings of both methods."""

    tol: float = changed(AscentSettings, "tol", default=1e-7, unit="log odds ratio per SD")
    max_rounds: int = changed(
        AscentSettings,
        "max_rounds",
        doc="Largest number of rounds, up to 50; then the fit fails",
    )


@dataclass(frozen=True, kw_only=True)
class MultinomialSettings(ClassesSettings, method="multinomial"):
    """Settings of `multinomial`.

    Attributes
    ----------
    by_class : whether there are coefficients for each class except one.
    """

    by_class: ClassVar[bool] = True
    reference: str = setting(
        "", "Class that the others are compared with; empty: the first that has records"
    )


@dataclass(frozen=True, kw_only=True)
class OrdinalSettings(ClassesSettings, method="ordinal"):
    """Settings of `ordinal`."""

    po_check: bool = setting(
        True, "Test of proportional odds, by one more sum; not with a ridge penalty"
    )


#: The settings of either method.
OfClasses = MultinomialSettings | OrdinalSettings
