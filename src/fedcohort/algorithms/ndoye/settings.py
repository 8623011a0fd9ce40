"""Settings of `ndoye`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.protocol import SettingError, check_settings, setting
from fedcohort.training.coalitions import MODELS


@dataclass(frozen=True, kw_only=True)
class NdoyeSettings:
    """Settings of `ndoye`."""

    user: str = setting("", "site that the model is for; it must be named")
    model: str = setting(
        "auto",
        "what each site fits; auto: logistic of a yes/no outcome, poisson of a count, else linear",
        choices=("auto", *MODELS),
    )
    k: int | None = setting(
        None,
        "how many of the other sites are trained with, the best first; null, without a threshold: "
        "the better half, and two at least",
        "sites",
    )
    threshold: float | None = setting(
        None, "sites up to this transfer loss are trained with", "unit of the loss"
    )
    n_folds: int = setting(5, "folds of each site's cross-validation", "folds")
    l2: float = setting(0.001, "ridge penalty λ₂ > 0", "squared unit of the covariate")
    train: bool = setting(
        True, "whether to train; false ranks alone, and the model is the user's own"
    )

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("k", self.k is None or self.k >= 1, "a whole number from 1, or null"),
            ("threshold", self.threshold is None or abs(self.threshold) < np.inf, "a number"),
            ("n_folds", self.n_folds >= 2, "a whole number from 2"),
            ("l2", 0 < self.l2 < np.inf, "a number above 0"),
            method="ndoye",
        )
        if self.k is not None and self.threshold is not None:
            raise SettingError(
                "settings 'k' and 'threshold' of method 'ndoye' are two ways to choose sites; "
                "give one of them."
            )
