"""Settings of `influence`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.protocol import check_settings, setting
from fedcohort.training.coalitions import MODELS


@dataclass(frozen=True, kw_only=True)
class InfluenceSettings:
    """Settings of `influence`."""

    user: str = setting("", "site that the model is for; it must be named")
    model: str = setting(
        "auto",
        "what coalitions fit; auto: logistic of a yes/no outcome, poisson of a count, else linear",
        choices=("auto", *MODELS),
    )
    use: str = setting(
        "select",
        "what values are used for: to train with sites of a value above 0, with all weighted by "
        "their values above 0, or with all alike, values being reported",
        choices=("select", "weight", "report"),
    )
    private_fraction: float = setting(
        0.5, "part of the user's rows that judge models and are in none, to a hundredth"
    )
    coalitions: int = setting(
        64, "most models for which every coalition is valued; above, orders of sites are drawn"
    )
    permutations: int = setting(100, "orders of sites that are drawn", "orders")
    tolerance: float = setting(
        0.01, "an order ends where this share of the gain of all sites is left; 0 for never"
    )
    l2: float = setting(0.001, "ridge penalty λ₂ > 0", "squared unit of the covariate")
    level: float = setting(0.95, "coverage of the intervals")

    def __post_init__(self) -> None:
        check_settings(
            self,
            (
                "private_fraction",
                0.01 <= self.private_fraction <= 0.99,
                "a number from 0.01 to 0.99",
            ),
            ("coalitions", self.coalitions >= 1, "a whole number from 1"),
            ("permutations", self.permutations >= 2, "a whole number from 2"),
            ("tolerance", 0 <= self.tolerance < 1, "a number from 0 to below 1"),
            ("l2", 0 < self.l2 < np.inf, "a number above 0"),
            ("level", 0 < self.level < 1, "a number between 0 and 1"),
            method="influence",
        )

    @property
    def held(self) -> int:
        """The user's rows that judge models, in percent."""
        return round(100 * self.private_fraction)
