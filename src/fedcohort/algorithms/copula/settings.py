"""Settings of `copula`."""

from dataclasses import dataclass

from fedcohort.protocol import Settings, setting


@dataclass(frozen=True, kw_only=True)
class CopulaSettings(Settings, method="copula"):
    """Settings of `copula`."""

    cells: int = setting(
        16,
        "Cells of each number's histogram in a differentially private fit",
        "cells",
        within="[4, 200]",
    )
