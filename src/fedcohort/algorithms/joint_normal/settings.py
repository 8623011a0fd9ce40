"""Settings of `joint_normal`."""

from dataclasses import dataclass

from fedcohort.protocol import Settings, setting


@dataclass(frozen=True, kw_only=True)
class JointNormalSettings(Settings, method="joint_normal"):
    """Settings of `joint_normal`."""

    draws: int = setting(
        10, "Draws of mean and covariance from their posterior; 0 for none", within="[0, inf)"
    )
