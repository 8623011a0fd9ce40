"""Settings of boosting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedcohort.algorithms.boosting.objectives import PULLS
from fedcohort.privacy.disclosure.models import fewest
from fedcohort.protocol import SettingError, Task, setting
from fedcohort.training.settings import GridSettings, RowWeightSettings

#: Objectives by type of outcome, the default first.
OBJECTIVES = {
    "binary": ("logistic",), "category": ("softmax",), "ordinal": ("softmax",),
    "continuous": ("squared",), "count": ("poisson", "squared"), "survival": ("cox", "weibull"),
}  # fmt: skip
#: Weights of classes.
CLASS_WEIGHTS = ("none", "balanced")
#: Strategies over sites.
STRATEGIES = ("histogram", "top-s", "bagging", "cyclic")


@dataclass(frozen=True, kw_only=True)
class BoostingSettings(GridSettings, RowWeightSettings, method="boosting"):
    """Settings of `boosting`, with XGBoost's meaning."""

    rounds: int = setting(
        100, "Number of rounds; each grows a tree, or one for each class", "rounds",
        within="[1, 10_000]", elsewhere=("n_estimators", "num_boost_round", "trees"),
    )  # fmt: skip
    strategy: str = setting(
        "histogram",
        "Strategy over sites. histogram: sums of histograms, as on the pooled table; top-s: sites "
        "propose splits; bagging: mean of each site's own trees; cyclic: sites in turn grow a "
        "round's trees",
        choices=STRATEGIES,
    )
    proposals: int = setting(
        10, "top-s: S, number of best splits that a site proposes for a node", "splits",
        within="[1, 100_000]",
    )  # fmt: skip
    local_trees: int = setting(
        1, "bagging, cyclic: trees that a site grows in a round, for each class", "trees",
        within="[1, 100]",
    )  # fmt: skip
    learning_rate: float = setting(
        0.1, "η: factor of each leaf's weight", within="(0, 1]", elsewhere=("eta",)
    )
    max_depth: int = setting(
        4, "Depth of the trees", "levels", within="[1, 16]", elsewhere=("depth",)
    )
    objective: str = setting(
        "auto", "Loss; auto: by the outcome, of survival cox", choices=("auto", *PULLS)
    )
    max_bins: int = setting(
        64, "Most bins of a covariate", "bins", within="[2, 1024]", elsewhere=("max_bin",)
    )
    l2: float = setting(
        1.0, "λ: ridge penalty on leaves' weights", within="[0, inf)",
        elsewhere=("reg_lambda", "lambda", "l2_regularization"),
    )  # fmt: skip
    l1: float = setting(
        0.0, "α: lasso penalty on leaves' weights", within="[0, inf)",
        elsewhere=("reg_alpha", "alpha"),
    )  # fmt: skip
    gamma: float = setting(
        0.0, "γ: least gain of a split", within="[0, inf)", elsewhere=("min_split_loss",)
    )
    min_child_weight: float = setting(
        1.0, "Least Σ h of a child", within="[0, inf)", elsewhere=("min_samples_leaf", "leaf")
    )
    subsample: float = setting(
        1.0, "Share of the rows that a round's trees grow from, drawn at each site",
        within="(0, 1]", elsewhere=("max_samples",),
    )  # fmt: skip
    colsample: float = setting(
        1.0, "Share of the covariates that a tree uses", within="(0, 1]",
        elsewhere=("colsample_bytree", "max_features"),
    )  # fmt: skip
    increasing: tuple[str, ...] = setting((), "Columns whose effect may only rise")
    decreasing: tuple[str, ...] = setting((), "Columns whose effect may only fall")
    interactions: tuple[tuple[str, ...], ...] = setting(
        (), "Groups of columns that may stand together on a path; (): all"
    )
    class_weight: str = setting(
        "none", "Weights of classes. balanced: n/(K n_k)", choices=CLASS_WEIGHTS
    )
    sigma: float = setting(1.0, "σ of weibull, the scale of log time; tune it", within="(0, inf)")
    patience: int = setting(
        0, "Rounds without a better held-out loss after which training stops; 0: never", "rounds",
        within="[0, inf)",
    )  # fmt: skip
    validation_fraction: float = setting(
        0.2, "Share of each site's rows that is held out, with a patience", within="(0, 0.5]"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        both = sorted({*self.increasing} & {*self.decreasing})
        self.check(("decreasing", not both, "no column that `increasing` has too"))

    @property
    def visible(self) -> str:
        """Name of the setting with which the coordinator sees each site's own splits, or ""."""
        return "" if self.strategy == "histogram" else f"strategy: {self.strategy}"

    @property
    def held_out(self) -> float:
        """Share of each site's rows that is held out."""
        return self.validation_fraction if self.patience else 0.0

    @property
    def holds_none(self) -> str:
        """Error of a fit with a patience in which no site holds out a row."""
        return (
            f"no site has {math.ceil(1 / self.validation_fraction)} rows, so a validation_fraction "
            f"of {self.validation_fraction:g} holds out none. Set a larger one, or a patience of 0."
        )

    def rows_of_leaf(self, min_cell: int) -> int:
        """Return the fewest rows of a leaf, over several sites."""
        return fewest(min_cell)

    def objective_of(self, task: Task) -> str:
        """Return the objective.

        Raises
        ------
        SettingError : it, or `class_weight`, does not suit the outcome.
        """
        usual = OBJECTIVES[task.outcome or _USUAL[task.kind]]
        if self.class_weight != "none" and task.kind != "classification":
            raise SettingError(
                f"setting 'class_weight' of method 'boosting' is {self.class_weight!r}, and the "
                f"outcome is {task.outcome or task.kind}, without classes; leave it out."
            )
        if self.objective == "auto":
            return usual[0]
        if self.objective not in usual:
            raise SettingError(
                f"setting 'objective' of method 'boosting' is {self.objective!r}, and the outcome "
                f"is {task.outcome or task.kind}; give 'auto' or {' or '.join(map(repr, usual))}."
            )
        return self.objective

    def columns(self, name: str, names: tuple[str, ...], features: tuple[str, ...]) -> list[int]:
        """Return the features of columns.

        Parameters
        ----------
        name : the setting that names them.

        Raises
        ------
        SettingError : there is no such column.
        """
        found: list[int] = []
        for given in names:
            own = [
                j for j, f in enumerate(features)
                if f == given or f.partition("=")[0] == given
            ]  # fmt: skip
            if not own:
                raise SettingError(
                    f"setting {name!r} of method 'boosting': there is no column {given!r}; there "
                    f"are {', '.join(dict.fromkeys(f.partition('=')[0] for f in features))}."
                )
            found += own
        return found


_USUAL: dict[str, Any] = {
    "survival": "survival", "classification": "binary", "regression": "continuous",
}  # fmt: skip
