"""Settings shared by clusterings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.numerics.centroids import AGGREGATIONS
from fedcohort.protocol import SettingError, Settings, setting


@dataclass(frozen=True, kw_only=True)
class LloydSettings(Settings):
    """Settings of Lloyd's rounds and their start."""

    seeding: str = setting(
        "candidates",
        "Start of the rounds: points that are drawn, weighed by counts; or each site's own "
        "centroids, which the coordinator then sees",
        choices=("candidates", "sites"),
    )
    aggregation: str = setting(
        "double_kmeans",
        "Merging of the sites' own centroids; only with seeding: sites",
        choices=tuple(AGGREGATIONS),
    )
    restarts: int = setting(25, "Starts of each k-means that runs at one place", within="[1, inf)")
    tol: float = setting(
        0.0001,
        "Tolerance: squared movement of centroids",
        "mean variance within clusters",
        within="[0, inf)",
    )
    rounds: int = setting(300, "Largest number of rounds", within="[1, inf)")
    swaps: int = setting(
        3, "Number of swaps: merge two clusters, split a third, continue", within="[0, inf)"
    )

    @property
    def visible(self) -> str:
        """Name of the setting that shows single sites to the coordinator, or ""."""
        return "seeding: sites" if self.seeding == "sites" else ""


@dataclass(frozen=True, kw_only=True)
class NumberSettings(Settings):
    """The number of clusters, given or chosen."""

    n_clusters: int | Literal["auto"] = setting(3, "Number of clusters, or auto", within="[1, inf)")
    choose: str = setting(
        "gap",
        "Criterion of n_clusters: auto: gap statistic, or agreement when each site is left out",
        choices=("gap", "consensus"),
    )
    k_range: tuple[int, ...] = setting(
        (1, 8), "Least and largest number of clusters that n_clusters: auto tries"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = len(self.k_range) == 2 and 1 <= self.k_range[0] < self.k_range[1]
        self.check(("k_range", fine, "two whole numbers from 1, the smaller first"))

    @property
    def numbers(self) -> range:
        """Numbers of clusters to try."""
        if self.n_clusters == "auto":
            return range(self.k_range[0], self.k_range[1] + 1)
        return range(self.n_clusters, self.n_clusters + 1)

    @property
    def visible_choice(self) -> str:
        """Name of the setting by which choosing the number shows single sites, or ""."""
        auto = self.n_clusters == "auto" and self.choose == "consensus"
        return "choose: consensus" if auto else ""

    def check_sites(self, sites: int) -> None:
        """Refuse a consensus over fewer than 3 sites."""
        super().check_sites(sites)
        if self.visible_choice and sites < 3:
            raise SettingError(
                f"setting 'choose' is 'consensus', which needs 3 sites; there are {sites}. Use gap."
            )
