"""Settings of `regression_forest`, and the plan made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcohort.data.timegrid import intervals_of
from fedcohort.models.forest import STARTS, Forest
from fedcohort.protocol import changed, setting
from fedcohort.training.networks.fit_settings import ALONE, FitSettings
from fedcohort.training.networks.net_settings import NetSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import AveragingSettings, VisitSettings
from fedcohort.training.personal.settings import PERSONAL, MaybeOwnSettings
from fedcohort.training.settings import GridSettings

#: Ways of a personal forest; apfl would mix the leaves of two networks.
WAYS = tuple(way for way in PERSONAL if way != "apfl")
#: Outputs of the network for each split node of a tree: 150 for 127 in Nolte et al. 2023.
SHARE = 150 / 127


@dataclass(frozen=True, kw_only=True)
class ForestSettings(GridSettings, NetSettings, method="regression_forest", alone=ALONE):
    """Settings of the forest, and of the network whose outputs its split nodes read."""

    trees: int = setting(
        5, "T: number of trees", "trees", within="[1, 1000]", elsewhere=("n_estimators",)
    )
    depth: int = setting(
        4, "D: each tree has 2^D leaves and 2^D − 1 split nodes", "levels", within="[0, 10]",
        elsewhere=("max_depth",),
    )  # fmt: skip
    outputs: int | None = setting(
        None,
        "Outputs of the network, of which each split node reads one; null: 1.18 for each split "
        "node of a tree",
        "units",
        within="[1, 100_000]",
    )
    leaf_iterations: int = setting(
        10, "Steps of the leaves after each visit", "steps", within="[1, 1000]"
    )
    leaf_rows: float | None = setting(
        None,
        "Rows with which a leaf is updated, as the sum of their probabilities; a leaf with fewer "
        "keeps its values. null: min_cell. With 0 a leaf may hold one patient's outcome",
        "rows",
        within="[0, inf)",
        elsewhere=("min_samples_leaf",),
    )
    leaf_start: str = setting(
        "moments",
        "Leaves before the first round. moments: around the mean and the variance of all rows; "
        "normal: Normal(1, 1), in units of the standard deviation",
        choices=STARTS,
    )
    time_grid: str | int = changed(
        GridSettings, "time_grid", default=20,
        doc="Survival: number of intervals of time (also as 'quantiles(m)'), with a hazard in each "
        "leaf",
    )  # fmt: skip
    internal_epochs: int = changed(VisitSettings, "internal_epochs", default=1)
    rounds: int = changed(FitSettings, "rounds", default=100)
    learning_rate: float = changed(
        AveragingSettings, "learning_rate", default=0.02, elsewhere=("eta",)
    )
    personal: str = changed(MaybeOwnSettings, "personal", choices=WAYS)

    def __post_init__(self) -> None:
        super().__post_init__()
        counted = intervals_of(self.time_grid) is not None
        self.check(("time_grid", counted, "a number of intervals, as in 20"))

    @property
    def intervals(self) -> int:
        """Most intervals of a grid: one more follows those of `time_grid`."""
        return (intervals_of(self.time_grid) or 0) + 1

    @property
    def n_outputs(self) -> int:
        """Outputs of the network."""
        return self.outputs or max(1, round(SHARE * (2**self.depth - 1)))

    def forest(self, least: float, *, survival: bool) -> Forest:
        """Return the forest.

        Parameters
        ----------
        least : rows of a leaf, where `leaf_rows` is null.
        """
        return Forest(
            trees=self.trees,
            depth=self.depth,
            intervals=self.intervals if survival else 0,
            start=self.leaf_start,
            iterations=self.leaf_iterations,
            least=float(least if self.leaf_rows is None else self.leaf_rows),
        )

    def free_parameters(self, features: int, classes: int = 0) -> int:
        """Return the number of parameters, with those of Gaussian leaves."""
        return self.sized(features, self.n_outputs) + self.forest(0.0, survival=False).size

    def forest_plan(
        self,
        features: int,
        loss: str,
        least: float,
        *,
        survival: bool,
        maps: Sequence[Sequence[int]] = (),
    ) -> Plan:
        """Return the plan of each site.

        Parameters
        ----------
        features : number of columns. loss : as in `Plan`. least : as in `forest`.
        maps : of images made of columns, see `network`.
        """
        base = self.network(features, self.n_outputs, maps)
        return self.plan_by(self.forest(least, survival=survival).spec(base), loss)
