"""Settings of `shift`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class ShiftSettings:
    """Settings of `shift`."""

    conditional: bool = setting(
        True, "whether the outcome is compared within cells of each feature, as a table of both"
    )
    gradients: bool = setting(
        True, "whether the directions in which sites would change a common model are compared"
    )
    level: float = setting(0.05, "adjusted p-value below which a difference is called clear")

    def __post_init__(self) -> None:
        check_settings(
            self, ("level", 0 < self.level < 1, "a number between 0 and 1"), method="shift"
        )
