"""Settings of `kaplan_meier`, `nelson_aalen` and `log_rank`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.metrics.survival.kaplan_meier import SCALES
from fedcohort.metrics.survival.log_rank import WEIGHTINGS
from fedcohort.protocol import changed, setting
from fedcohort.training.settings import GridSettings, IntervalSettings


@dataclass(frozen=True, kw_only=True)
class GroupSettings(GridSettings):
    """Groups and times."""

    by: str = setting("", "Column of the groups")
    time_grid: str | int = changed(
        GridSettings,
        "time_grid",
        doc="Times at which curves may step: 'protected', 'exact', or a number of intervals",
    )

    @property
    def ranks(self) -> bool:
        """Whether predictions differ between patients; with one curve for all they do not."""
        return bool(self.by)


@dataclass(frozen=True, kw_only=True)
class CurveSettings(GroupSettings, IntervalSettings, method="nelson_aalen"):
    """Settings of `nelson_aalen`."""

    by: str = changed(GroupSettings, "by", doc="Column of the groups, a curve each; empty: none")


@dataclass(frozen=True, kw_only=True)
class KaplanMeierSettings(CurveSettings, method="kaplan_meier"):
    """Settings of `kaplan_meier`."""

    transform: str = setting(
        "log-log", "Scale on which the interval of survival is symmetric", choices=SCALES
    )
    horizon: float = setting(
        0.0,
        "Time up to which the mean survival time is restricted; 0: none",
        "unit of time",
        within="[0, inf)",
    )


@dataclass(frozen=True, kw_only=True)
class LogRankSettings(GroupSettings, method="log_rank"):
    """Settings of `log_rank`; weights are w = S(t−)^rho (1 − S(t−))^gamma, n or √n."""

    weighting: str = setting(
        "fleming-harrington", "Weights of the times of death", choices=WEIGHTINGS
    )
    rho: float = setting(
        0.0,
        "Fleming and Harrington's weight of early deaths; 0 is the log-rank",
        within="[0, inf)",
    )
    gamma: float = setting(0.0, "Fleming and Harrington's weight of late deaths", within="[0, inf)")
