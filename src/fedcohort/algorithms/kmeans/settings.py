"""Settings of `kmeans` and `kmodes`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import SettingError, setting
from fedcohort.training.clusters.settings import LloydSettings, NumberSettings


@dataclass(frozen=True, kw_only=True)
class ModesSettings(LloydSettings, method="kmodes"):
    """Settings of `kmodes`."""

    n_clusters: int = setting(3, "Number of clusters", within="[1, inf)")

    def free_parameters(self, features: int) -> int:
        """Return k p: a mode has one value per column."""
        return self.n_clusters * features


@dataclass(frozen=True, kw_only=True)
class MeansSettings(NumberSettings, LloydSettings, method="kmeans", alone={"choose": "gap"}):
    """Settings of `kmeans`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_clusters == "auto" and self.seeding == "sites":
            raise SettingError(
                "setting 'n_clusters' of method 'kmeans' is 'auto', which starts from candidates. "
                "Leave out seeding: sites, or give a number."
            )

    @property
    def visible(self) -> str:
        """Name of the setting that shows single sites to the coordinator, or ""."""
        return self.visible_choice or super().visible

    def free_parameters(self, features: int) -> int:
        """Return k p, with the largest number of clusters."""
        return self.numbers[-1] * features
