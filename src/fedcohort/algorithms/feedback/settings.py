"""Settings of `feedback`, checked when they are built."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import SettingError, check_settings, setting

#: Fewer sites than this are not compared: of two, each would learn the other's numbers.
FEWEST_SITES = 3
#: A site tells nothing that is less off than this.
LEAST_FAR = 2.0


@dataclass(frozen=True, kw_only=True)
class FeedbackSettings:
    """Settings of `feedback`."""

    far: float = setting(
        5.0,
        "how far from the other sites' middle a column's values must lie to be named",
        "standard deviations between sites",
    )
    gains: int = setting(
        5, "how many unrecorded columns are named at each site, the most useful first", "columns"
    )
    told: bool = setting(
        True, "whether each site tells the coordinator what it finds, or keeps it to itself"
    )

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("far", LEAST_FAR <= self.far < 1e3, "a number from 2"),
            ("gains", 0 <= self.gains <= 100, "a whole number from 0 to 100"),
            method="feedback",
        )


def over(config: FeedbackSettings, sites: int) -> None:
    """Refuse a federation of so few sites.

    Raises
    ------
    SettingError : there are fewer than `FEWEST_SITES`.
    """
    if sites < FEWEST_SITES:
        raise SettingError(
            f"method 'feedback' compares each site with at least two others, and there "
            f"{'is' if sites == 1 else 'are'} {sites}: a site alone with one other would learn "
            f"its numbers. Use `fedcohort data check` on one table."
        )
