"""Settings of `huber`."""

from dataclasses import dataclass

from fedcohort.protocol import Settings, changed, setting
from fedcohort.training.settings import RegressionSettings


@dataclass(frozen=True, kw_only=True)
class HuberSettings(Settings, method="huber"):
    """Settings of `huber`: each has a default, a sentence and, where it has one, a unit.

    `within` is the interval that a number lies in. What other methods have too is taken from a
    block of `training.settings`, with another default; a class that inherits a block has all of it.
    """

    threshold: float = setting(
        1.345,
        "k: residuals beyond it count linearly",
        "standard deviations of the outcome",
        within="(0, inf)",
    )
    max_rounds: int = changed(RegressionSettings, "max_rounds", default=200)
    tol: float = setting(
        1e-10,
        "Tolerance: movement of the coefficients in a round, against their size",
        within="(0, inf)",
    )
