"""Settings of `multiview_ppca`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.protocol import Settings as Base
from fedcohort.protocol import setting


@dataclass(frozen=True, kw_only=True)
class Settings(Base, method="multiview_ppca", alone={"compare": False}):
    """Settings of multi-view probabilistic PCA over sites."""

    q: int | Literal["auto"] = setting(
        2, "Latent dimensions, or auto: chosen by WAIC", within="[1, inf)"
    )
    q_range: tuple[int, ...] = setting((1, 8), "Least and largest q that q: auto tries")
    rounds: int = setting(100, "Largest number of rounds", within="[1, inf)")
    internal_epochs: int = setting(15, "EM iterations at a site in a round", within="[1, inf)")
    first_epochs: int = setting(
        30, "EM iterations at a site in the first round (no prior)", within="[1, inf)"
    )
    tol: float = setting(
        1e-4,
        "Tolerance: change of W̃ and μ̃ in a round",
        "size of W̃; 0 for all rounds",
        within="[0, inf)",
    )
    start: str = setting(
        "local",
        "Start of the first round: each site's own principal components, turned to a common frame; "
        "one random W of all sites; or a random W of each site",
        choices=("local", "common", "random"),
    )
    spread: str = setting(
        "posterior",
        "Estimate of the spread between sites: with the uncertainty of each site's parameters, or "
        "from their modes alone, which can end at 0",
        choices=("posterior", "modes"),
    )
    centres: bool = setting(
        True,
        "Sites differ in the mean of their patients' latent points. In the paper they do not: all "
        "of it goes into each view's offsets",
    )
    narrow: bool = setting(
        True,
        "A view of q columns or fewer may use all latent dimensions. In the paper it uses one less "
        "than it has columns",
    )
    compare: bool = setting(
        False, "Each site tells how its patients and its views differ from the common model"
    )
    dp_route: str = setting(
        "moments",
        "Private fit: from one noisy sum of products, or by rounds of noisy changes of parameters, "
        "as in the paper",
        choices=("moments", "differences"),
    )
    dp_rounds: int = setting(20, "Rounds of a private fit by differences", within="[1, inf)")
    noise: str = setting(
        "column",
        "Noise variance: one per column (independent of units), or one per view (the paper's)",
        choices=("view", "column"),
    )
    draws: int = setting(100, "Draws from each site's posterior for WAIC; 0 leaves it out")

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = len(self.q_range) == 2 and 1 <= self.q_range[0] <= self.q_range[1]
        self.check(
            ("q_range", fine, "two whole numbers from 1, the smaller first"),
            ("draws", self.draws == 0 or self.draws >= 10, "0, or a whole number from 10"),
        )

    @property
    def visible(self) -> str:
        """Name of the setting that shows single sites to the coordinator, or ""."""
        return "compare: true" if self.compare else ""

    @property
    def numbers(self) -> range:
        """The latent dimensions to try."""
        if self.q == "auto":
            return range(self.q_range[0], self.q_range[1] + 1)
        return range(self.q, self.q + 1)

    def free_parameters(self, features: int) -> int:
        """Return p (q + 1), with the largest q."""
        return features * (self.numbers[-1] + 1)
