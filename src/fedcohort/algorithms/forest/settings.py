"""Settings of `forest`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcohort.privacy.disclosure.models import LEAF, fewest
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.settings import GridSettings

#: Largest share of the rows in a sum over several sites.
MOST = 0.5
#: The share of rows is asked for in this many parts.
PARTS = 1000


@dataclass(frozen=True, kw_only=True)
class ForestSettings(GridSettings, method="forest", alone={"share": 1.0}):
    """Settings of a random forest."""

    strategy: str = setting(
        "sums",
        "sums: all sites grow the trees together; union: each site grows its own trees, which the "
        "coordinator sees",
        choices=("sums", "union"),
    )
    trees: int = setting(
        100, "Number of trees; with union of each site", "trees", within="[1, inf)",
        elsewhere=("n_estimators", "num_trees", "ntree", "rounds"),
    )  # fmt: skip
    depth: int = setting(
        10, "Largest number of splits above a leaf", within="[1, 30]", elsewhere=("max_depth",)
    )
    candidates: int | None = setting(
        None,
        "Covariates tried at a node; null: the root of their number, a third of it for values if "
        "that is more",
        within="[1, inf)",
        elsewhere=("max_features", "mtry", "colsample_bytree"),
    )
    leaf: int = setting(
        10,
        f"Fewest rows of a leaf, of those drawn; at least {LEAF} and min_cell over several sites",
        "rows",
        within="[1, inf)",
        elsewhere=("min_samples_leaf", "nodesize", "min_child_weight"),
    )
    share: float = setting(
        0.2,
        f"sums: share of the rows that each site draws in secret for each sum; at most {MOST:g} "
        f"over several sites",
        within="(0, 1]",
        elsewhere=("subsample", "max_samples"),
    )
    bins: int = setting(
        32,
        "Intervals of a covariate with about equally many rows, at whose ends it is split",
        within="[2, 256]",
    )
    time_grid: str | int = changed(GridSettings, "time_grid", default=32)

    @property
    def visible(self) -> str:
        """Name of the setting with which the coordinator sees each site's trees, or ""."""
        return "strategy: union" if self.strategy == "union" else ""

    def rows_of_leaf(self, min_cell: int) -> int:
        """Return the fewest rows of a leaf over several sites, of those drawn."""
        return max(self.leaf, fewest(min_cell))

    @property
    def parts(self) -> int:
        """The share of rows in a sum, in thousandths."""
        return max(1, round(self.share * PARTS))

    def least(self, min_cell: int, sites: int) -> int:
        """Return the fewest rows of a leaf.

        Raises
        ------
        SettingError : sums over several sites are of nearly all rows.
        """
        if sites < 2 or min_cell <= 1:
            return self.leaf
        if self.strategy == "sums" and self.share > MOST:
            raise SettingError(
                f"setting 'share' of method 'forest' is {self.share:g}, and over several sites "
                f"differences of sums would tell single rows. Give at most {MOST:g}."
            )
        return self.rows_of_leaf(min_cell)

    def tried(self, features: int, *, number: bool) -> int:
        """Return the number of covariates tried at a node.

        Parameters
        ----------
        features : number of covariates.
        number : whether the outcome is a value.
        """
        wanted = math.ceil(math.sqrt(features))
        if number:
            wanted = max(wanted, math.ceil(features / 3))
        return min(self.candidates or wanted, features)
