"""Settings of the linear methods. Penalties are added to a loss averaged over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcohort.algorithms.linear.steps import MOST_FOLDS
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.admm import AdmmSettings
from fedcohort.training.settings import IntervalSettings
from fedcohort.training.settings import PathSettings as Paths

_UNIT = "squared unit of y per unit of the covariate"


@dataclass(frozen=True, kw_only=True)
class LinearSettings(AdmmSettings):
    """Settings shared by all linear methods."""

    solver: str = setting(
        "exact",
        "From one sum of cross-products, or by consensus ADMM",
        choices=("exact", "admm"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "exact":
            for name in ("penalise_intercept", "weighting"):
                default = LinearSettings.__dataclass_fields__[name].default
                fine = getattr(self, name) == default
                self.check((name, fine, f"{default!r}, or solver 'admm'"))


@dataclass(frozen=True, kw_only=True)
class RidgeSettings(IntervalSettings, LinearSettings):
    """Settings of `ridge`: (1/n) Σ (y − b₀ − xᵀβ)² + penalty/2 ‖β‖²."""

    penalty: float = setting(
        0.0,
        "Ridge penalty λ ≥ 0; 0 is ordinary least squares",
        "squared unit of the covariate",
        within="[0, inf)",
    )


@dataclass(frozen=True, kw_only=True)
class PathSettings(Paths, LinearSettings):
    """Settings shared by methods with a path of penalties."""

    penalty: float | Literal["auto"] = setting(
        "auto", "λ ≥ 0, or 'auto': chosen along a path of penalties", _UNIT, within="[0, inf)"
    )
    rule: str = setting(
        "min",
        "Criterion of 'auto': least held-out error, largest penalty within one standard error of "
        "it, or the Bayesian information criterion (no folds)",
        choices=("min", "1se", "bic"),
    )
    n_folds: int = changed(Paths, "n_folds", within=f"[2, {MOST_FOLDS}]")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "admm" and self.asked[0] is None:
            raise SettingError(
                "solver 'admm' fits one penalty, but penalty is 'auto'. Give a number, or use "
                "solver 'exact' to choose it."
            )

    @property
    def holds_out(self) -> bool:
        """Whether held-out error chooses the penalty."""
        return self.asked[0] is None and self.rule != "bic"

    @property
    def asked(self) -> tuple[float | None, float]:
        """The penalty l1 + l2, None if it is to be chosen; and the share of l1."""
        return None if isinstance(self.penalty, str) else self.penalty, 1.0


@dataclass(frozen=True, kw_only=True)
class LassoSettings(PathSettings):
    """Settings of `lasso`: (1/n) Σ (y − b₀ − xᵀβ)² + penalty ‖β‖₁."""


@dataclass(frozen=True, kw_only=True)
class ElasticNetSettings(PathSettings):
    """Settings of `elastic_net`: (1/n) Σ (y − b₀ − xᵀβ)² + l1 ‖β‖₁ + l2/2 ‖β‖².

    Either `l1` and `l2`, or `penalty` and `l1_ratio`: l1 = penalty · l1_ratio and
    l2 = penalty · (1 − l1_ratio).
    """

    l1_ratio: float = setting(0.5, "Share of `penalty` that is l1", within="[0, 1]")
    l1: float | None = setting(
        None, "λ₁ ≥ 0, in place of `penalty`; 0 if only l2 is given", _UNIT, within="[0, inf)"
    )
    l2: float | None = setting(
        None,
        "λ₂ ≥ 0, in place of `penalty`; 0 if only l1 is given",
        "squared unit of the covariate",
        within="[0, inf)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = self.penalty != "auto" or self.l1_ratio > 0
        self.check(("l1_ratio", fine, "a number above 0, up to 1"))
        if self._explicit and self.penalty != "auto":
            raise SettingError("penalty and l1 or l2 are given; give penalty, or l1 and l2.")

    @property
    def asked(self) -> tuple[float | None, float]:
        """The penalty l1 + l2, None if it is to be chosen; and the share of l1."""
        if not self._explicit:
            return super().asked[0], self.l1_ratio
        l1, l2 = self.l1 or 0.0, self.l2 or 0.0
        return l1 + l2, l1 / (l1 + l2) if l1 + l2 else 1.0

    @property
    def _explicit(self) -> bool:
        return self.l1 is not None or self.l2 is not None
