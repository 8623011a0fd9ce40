"""Settings of `lda`."""

from dataclasses import dataclass

from fedcohort.protocol import Settings, setting


@dataclass(frozen=True, kw_only=True)
class LdaSettings(Settings, method="lda"):
    """Settings of `lda`."""

    shrinkage: float = setting(
        0.0,
        "Share s of the covariance that becomes the mean variance of all covariates",
        within="[0, 1]",
    )
