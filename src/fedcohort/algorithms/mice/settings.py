"""Settings of `mice`."""

from dataclasses import dataclass

from fedcohort.protocol import Settings, setting


@dataclass(frozen=True, kw_only=True)
class MiceSettings(Settings, method="mice"):
    """Settings of `mice`."""

    draws: int = setting(
        10, "Draws of the coefficients, from chains that run side by side", within="[2, inf)"
    )
    sweeps: int = setting(10, "Sweeps over all columns before the draws", within="[1, inf)")
