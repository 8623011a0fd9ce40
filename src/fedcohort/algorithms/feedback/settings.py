"""Settings of `feedback`."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import SettingError, Settings, setting

#: Fewest sites: with two, each would learn the other's numbers.
FEWEST_SITES = 3
#: Smallest `far` that a site allows.
LEAST_FAR = 2.0


@dataclass(frozen=True, kw_only=True)
class FeedbackSettings(Settings, method="feedback"):
    """Settings of `feedback`."""

    far: float = setting(
        5.0,
        "Smallest distance from the other sites' median at which a column is named",
        "standard deviations between sites",
        within=f"[{LEAST_FAR:g}, 1_000)",
    )
    gains: int = setting(
        5,
        "Number of unrecorded columns to name per site, most useful first",
        "columns",
        within="[0, 100]",
    )
    told: bool = setting(True, "Each site sends its findings to the coordinator, or keeps them")

    def check_sites(self, sites: int) -> None:
        """Refuse a federation that is too small.

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
