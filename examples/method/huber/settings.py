"""Settings of `huber`."""

from dataclasses import dataclass

from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class HuberSettings:
    """Settings of `huber`: each has a default, a sentence and, where it has one, a unit."""

    threshold: float = setting(
        1.345, "k: residuals beyond it count linearly", "standard deviations of the outcome"
    )
    max_rounds: int = setting(200, "most rounds", "rounds")
    tol: float = setting(
        1e-10, "ends where a round moves the coefficients less, against their size"
    )

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("threshold", self.threshold > 0, "a number above 0"),
            ("max_rounds", self.max_rounds >= 1, "1 or more"),
            ("tol", self.tol > 0, "a number above 0"),
        )
