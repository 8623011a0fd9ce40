"""Settings of `multiview_ppca`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of multi-view probabilistic PCA over sites."""

    q: int | Literal["auto"] = setting(2, "latent dimensions, or auto: chosen by WAIC")
    q_range: tuple[int, ...] = setting((1, 8), "least and largest q that q: auto tries")
    rounds: int = setting(100, "the most rounds")
    internal_epochs: int = setting(15, "iterations of EM at a site in a round, 1 up")
    first_epochs: int = setting(30, "the same in the first round, which knows no prior")
    tol: float = setting(
        1e-4, "end where W̃ and μ̃ move less in a round", "size of W̃; 0 for all rounds"
    )
    start: str = setting(
        "local",
        "where the first round starts: from each site's own principal components, turned to a "
        "common frame; from one random W of all sites; or from a random W of each site",
        choices=("local", "common", "random"),
    )
    spread: str = setting(
        "posterior",
        "how the spread between sites is estimated: with how uncertain each site's parameters are, "
        "or from their modes alone, which can end at 0",
        choices=("posterior", "modes"),
    )
    centres: bool = setting(
        True,
        "whether sites differ in the mean of their patients' latent points; not so in the paper, "
        "where all of it goes into each view's offsets",
    )
    narrow: bool = setting(
        True,
        "whether a view of q columns or fewer may use all latent dimensions; in the paper it uses "
        "one less than it has columns",
    )
    compare: bool = setting(
        False, "whether each site tells how its patients and its views differ from the common model"
    )
    dp_route: str = setting(
        "moments",
        "how a private fit goes: from one noisy sum of products, or by rounds of noisy changes of "
        "parameters, as in the paper",
        choices=("moments", "differences"),
    )
    dp_rounds: int = setting(20, "rounds of a private fit by differences")
    noise: str = setting(
        "column",
        "what has a noise of its own: each column, so that units do not matter, or each view, as "
        "in the paper",
        choices=("view", "column"),
    )
    draws: int = setting(100, "draws from each site's posterior for WAIC; 0 leaves it out")

    def __post_init__(self) -> None:
        whole = "a whole number from 1 up"
        fine = len(self.q_range) == 2 and 1 <= self.q_range[0] <= self.q_range[1]
        check_settings(
            self,
            ("q", self.q == "auto" or self.q >= 1, f"{whole}, or 'auto'"),
            ("q_range", fine, "two whole numbers from 1 up, the smaller first"),
            ("rounds", self.rounds >= 1, whole),
            ("internal_epochs", self.internal_epochs >= 1, whole),
            ("first_epochs", self.first_epochs >= 1, whole),
            ("dp_rounds", self.dp_rounds >= 1, whole),
            ("tol", 0 <= self.tol < float("inf"), "0 or a number above 0"),
            ("draws", self.draws == 0 or self.draws >= 10, "0, or a whole number from 10 up"),
            method="multiview_ppca",
        )

    @property
    def numbers(self) -> range:
        """The latent dimensions that are tried."""
        if self.q == "auto":
            return range(self.q_range[0], self.q_range[1] + 1)
        return range(self.q, self.q + 1)

    def free_parameters(self, features: int) -> int:
        """Return p (q + 1), with the largest q that is tried."""
        return features * (self.numbers[-1] + 1)
