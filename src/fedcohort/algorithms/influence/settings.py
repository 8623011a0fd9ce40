"""Settings of `influence`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import changed, setting
from fedcohort.training.coalitions import CoalitionSettings
from fedcohort.training.settings import IntervalSettings


@dataclass(frozen=True, kw_only=True)
class InfluenceSettings(CoalitionSettings, IntervalSettings, method="influence"):
    """Settings of `influence`."""

    model: str = changed(
        CoalitionSettings,
        "model",
        doc="Model of coalitions; auto: logistic for yes/no, Poisson for counts, otherwise linear",
    )
    use: str = setting(
        "select",
        "Use of the values: train with sites of a value above 0, with all weighted by their values "
        "above 0, or with all alike, values being reported",
        choices=("select", "weight", "report"),
    )
    private_fraction: float = setting(
        0.5,
        "Share of the user's rows that only judge models, in hundredths",
        within="[0.01, 0.99]",
    )
    coalitions: int = setting(
        64,
        "Most models for which every coalition is valued; above, orders of sites are drawn",
        within="[1, inf)",
    )
    permutations: int = setting(100, "Orders of sites that are drawn", "orders", within="[2, inf)")
    tolerance: float = setting(
        0.01,
        "An order ends where this share of the gain of all sites is left; 0 for never",
        within="[0, 1)",
    )

    @property
    def held(self) -> int:
        """The user's private rows, in percent."""
        return round(100 * self.private_fraction)
