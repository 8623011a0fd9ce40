"""Settings of `lda`."""

from dataclasses import dataclass

from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class LdaSettings:
    """Settings of `lda`."""

    shrinkage: float = setting(
        0.0, "share s of the covariance that becomes the mean variance of all covariates, 0 to 1"
    )

    def __post_init__(self) -> None:
        fine = 0 <= self.shrinkage <= 1
        check_settings(self, ("shrinkage", fine, "a number from 0 to 1"), method="lda")
