"""Settings of `describe`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.data.describe.shown_number import QUARTILES
from fedcohort.protocol import SettingError, Settings, setting


@dataclass(frozen=True, kw_only=True)
class DescribeSettings(Settings, method="describe"):
    """Settings of `describe`."""

    by: str = setting("", "Column of the groups; empty: none")
    quantiles: tuple[float, ...] = setting(
        (), "Quantiles besides the quartiles, such as 0.05 and 0.95", "share of rows"
    )
    histograms: bool = setting(True, "Histograms of numbers")
    correlation: bool = setting(True, "Pearson's correlations")
    rounding: bool = setting(True, "Round numbers; False needs a min_cell of 1")

    def __post_init__(self) -> None:
        super().__post_init__()
        for q in self.quantiles:
            if not 0 < q < 1 or q in QUARTILES:
                raise SettingError(
                    f"setting 'quantiles' of method 'describe' holds {q!r}; give shares between 0 "
                    f"and 1 other than the quartiles, which are always there."
                )
        if len(set(self.quantiles)) < len(self.quantiles):
            raise SettingError("setting 'quantiles' of method 'describe' names a share twice.")
