"""Settings of the three methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.data.prepare.timegrid import check_rule
from fedcohort.metrics.survival.kaplan_meier import SCALES
from fedcohort.metrics.survival.log_rank import WEIGHTINGS
from fedcohort.protocol import check_settings, setting

_GRID = "times at which curves may step: 'protected', 'exact', or a number of intervals at most"


@dataclass(frozen=True, kw_only=True)
class CurveSettings:
    """Settings of `nelson_aalen`, and of `kaplan_meier` besides its own."""

    by: str = setting("", "column of the groups that each get a curve; '' for one curve of all")
    time_grid: str | int = setting("protected", _GRID)
    level: float = setting(0.95, "coverage of the intervals")

    method: ClassVar[str] = "nelson_aalen"

    def __post_init__(self) -> None:
        check_rule(self.time_grid)
        fine = 0 < self.level < 1
        check_settings(self, ("level", fine, "a number between 0 and 1"), method=self.method)


@dataclass(frozen=True, kw_only=True)
class KaplanMeierSettings(CurveSettings):
    """Settings of `kaplan_meier`."""

    transform: str = setting(
        "log-log", "scale on which the interval of survival is symmetric", choices=SCALES
    )
    horizon: float = setting(
        0.0, "time up to which the mean survival time is restricted; 0 for none", "unit of time"
    )

    method: ClassVar[str] = "kaplan_meier"

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = 0 <= self.horizon < float("inf")
        check_settings(self, ("horizon", fine, "a time, or 0 for none"), method=self.method)


@dataclass(frozen=True, kw_only=True)
class LogRankSettings:
    """Settings of `log_rank`; weights are w = S(t−)^rho (1 − S(t−))^gamma, n or √n."""

    by: str = setting("", "column of the groups that are compared")
    time_grid: str | int = setting("protected", _GRID)
    weighting: str = setting(
        "fleming-harrington", "weights of the times of death", choices=WEIGHTINGS
    )
    rho: float = setting(0.0, "Fleming and Harrington's weight of early deaths; 0 is the log-rank")
    gamma: float = setting(0.0, "Fleming and Harrington's weight of late deaths")

    def __post_init__(self) -> None:
        check_rule(self.time_grid)
        for name, value in (("rho", self.rho), ("gamma", self.gamma)):
            fine = 0 <= value < float("inf")
            check_settings(self, (name, fine, "a number from 0"), method="log_rank")
