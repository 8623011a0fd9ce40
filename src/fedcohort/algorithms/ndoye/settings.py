"""Settings of `ndoye`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import SettingError, setting
from fedcohort.training.coalitions import CoalitionSettings


@dataclass(frozen=True, kw_only=True)
class NdoyeSettings(CoalitionSettings, method="ndoye"):
    """Settings of `ndoye`."""

    k: int | None = setting(
        None,
        "Number of other sites to train with, best first; null without a threshold: the better "
        "half, at least two",
        "sites",
        within="[1, inf)",
    )
    threshold: float | None = setting(
        None, "Largest transfer loss of a chosen site", "unit of the loss", within="(-inf, inf)"
    )
    n_folds: int = setting(5, "Folds of each site's cross-validation", "folds", within="[2, inf)")
    train: bool = setting(True, "Train; false ranks alone, and the model is the user's own")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.threshold is not None:
            raise SettingError(
                "settings 'k' and 'threshold' of method 'ndoye' are two ways to choose sites; "
                "give one of them."
            )
