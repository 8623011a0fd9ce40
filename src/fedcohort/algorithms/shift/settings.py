"""Settings of `shift`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import Settings, setting


@dataclass(frozen=True, kw_only=True)
class ShiftSettings(Settings, method="shift"):
    """Settings of `shift`."""

    conditional: bool = setting(True, "Compare the outcome within the cells of each feature")
    gradients: bool = setting(True, "Compare the sites' gradients at a common model")
    level: float = setting(
        0.05, "Adjusted p-value below which a difference is called clear", within="(0, 1)"
    )
