"""Settings of `kmeans` and `kmodes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.numerics.centroids import AGGREGATIONS
from fedcohort.protocol import SettingError, check_settings, setting


@dataclass(frozen=True, kw_only=True)
class ModesSettings:
    """Settings of `kmodes`."""

    n_clusters: int = setting(3, "how many clusters there are")
    seeding: str = setting(
        "candidates",
        "where rounds start: from points that are drawn, weighed by counts; or from each site's "
        "own centroids, which the coordinator then sees",
        choices=("candidates", "sites"),
    )
    aggregation: str = setting(
        "double_kmeans",
        "how sites' own centroids become one set; only with seeding: sites",
        choices=tuple(AGGREGATIONS),
    )
    restarts: int = setting(25, "starts of each k-means that runs at one place before the rounds")
    tol: float = setting(
        0.0001, "end where centroids move less, as squares", "mean variance within clusters"
    )
    rounds: int = setting(300, "the most rounds")
    swaps: int = setting(
        3, "how often rounds go on after two clusters were merged and a third one was split"
    )

    def __post_init__(self) -> None:
        _check(self, "kmodes")
        _check_number(self.n_clusters, "kmodes")

    def free_parameters(self, features: int) -> int:
        """Return k p: a mode has one of each column."""
        return self.n_clusters * features


@dataclass(frozen=True, kw_only=True)
class MeansSettings:
    """Settings of `kmeans`."""

    n_clusters: int | Literal["auto"] = setting(3, "how many clusters there are, or auto")
    choose: str = setting(
        "gap",
        "what n_clusters: auto goes by: the gap statistic, or how well clusters agree when each "
        "site is left out",
        choices=("gap", "consensus"),
    )
    k_range: tuple[int, ...] = setting(
        (1, 8), "least and largest number of clusters that n_clusters: auto tries"
    )
    seeding: str = setting(
        "candidates",
        "where rounds start: from points that are drawn, weighed by counts; or from each site's "
        "own centroids, which the coordinator then sees",
        choices=("candidates", "sites"),
    )
    aggregation: str = setting(
        "double_kmeans",
        "how sites' own centroids become one set; only with seeding: sites",
        choices=tuple(AGGREGATIONS),
    )
    restarts: int = setting(25, "starts of each k-means that runs at one place before the rounds")
    tol: float = setting(
        0.0001, "end where centroids move less, as squares", "mean variance within clusters"
    )
    rounds: int = setting(300, "the most rounds")
    swaps: int = setting(
        3, "how often rounds go on after two clusters were merged and a third one was split"
    )

    def free_parameters(self, features: int) -> int:
        """Return k p, with the most clusters that are tried."""
        k = max(self.k_range) if self.n_clusters == "auto" else self.n_clusters
        return k * features

    def __post_init__(self) -> None:
        _check(self, "kmeans")
        if self.n_clusters != "auto":
            _check_number(self.n_clusters, "kmeans")
        fine = len(self.k_range) == 2 and 1 <= self.k_range[0] < self.k_range[1]
        wanted = "two whole numbers from 1 up, the smaller first"
        check_settings(self, ("k_range", fine, wanted), method="kmeans")
        if self.n_clusters == "auto" and self.seeding == "sites":
            raise SettingError(
                "setting 'n_clusters' of method 'kmeans' is 'auto', which starts from candidates. "
                "Leave out seeding: sites, or give a number."
            )

    @property
    def numbers(self) -> range:
        """The numbers of clusters that are tried."""
        return range(self.k_range[0], self.k_range[1] + 1)


def _check(config: ModesSettings | MeansSettings, method: str) -> None:
    check_settings(
        config,
        ("restarts", config.restarts >= 1, "a whole number from 1 up"),
        ("rounds", config.rounds >= 1, "a whole number from 1 up"),
        ("swaps", config.swaps >= 0, "a whole number from 0 up"),
        ("tol", 0 <= config.tol < float("inf"), "0 or a number above 0"),
        method=method,
    )


def _check_number(k: int, method: str) -> None:
    if k < 1:
        raise SettingError(
            f"setting 'n_clusters' of method {method!r} is {k!r}; give a whole number from 1 up."
        )
