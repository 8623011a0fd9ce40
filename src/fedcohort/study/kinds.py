"""The kinds of task of a study: metrics, limits, and differences over a network.

`judge.evaluate` has their evaluation, `report.kinds` the words of the report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedcohort.data.outcome import (
    Binary,
    Category,
    Continuous,
    Count,
    Ordered,
    Outcome,
    Survival,
)
from fedcohort.protocol import Method, SettingError

Classes = tuple[type[Outcome], ...]


@dataclass(frozen=True)
class Needs:
    """Conditions of a metric.

    Attributes
    ----------
    outcome : an outcome of one of these classes.
    gives : a member that some method of the study has.
    bound : a model of pooled rows.
    exact : sums of training rows without noise.
    asked : a study that names it; by default it is left out.
    """

    outcome: Classes = ()
    gives: str = ""
    bound: bool = False
    exact: bool = False
    asked: bool = False


#: Computation of a metric over a network, in words for readers of the report.
_EXACT = "exact: the same as of the pooled rows"
_PAIRS = (
    "pairs of patients of one hospital exactly, of two hospitals by bins of risk and intervals of "
    "time; "
)
_TIMES = "every row exactly; {} times of evaluation are read off counts in fine cells of time"
_FILLED = "exact, of columns that enough blind patients have beside another view"
_PREDICTS = "predicts nothing; arms are compared by their predictions"
_CURVES = "predicts no survival curve; arms are also compared by their curves"


@dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes
    ----------
    name : its name in a study file.
    outcomes : classes of outcome for its evaluation.
    refused : error for another outcome.
    types : values of `data.outcome.type`, the default first; none if a time is predicted.
    metrics : all its metrics, with their conditions; the first leads the report.
    gives : required members of a method, and the error if it lacks one.
    timed : whether a time to an event is predicted.
    events : whether the outcome may have events.
    aside : whether an outcome is for evaluation only: no fit has it as its outcome.
    joint : whether its columns are features of a fit, such as any other; else no fit sees them.
    scores : scores without an outcome, to tune by, the default first; none if an outcome scores.
    over_network : replacement of a metric if rows stay at their sites; None for none.
    none_left : the metric to ask for if none is left.
    exactness : by metric, its computation over a network; default exact.
    lacks : parts of the results that a network does not give, with their conditions.
    alone, note : notes over a network on the lower bound, and on the other arms.
    """

    name: str
    outcomes: Classes
    metrics: Mapping[str, Needs]
    refused: str = (
        "this version cannot evaluate a study with {}. Give a survival, binary, category, ordinal, "
        "continuous or count outcome."
    )
    types: Mapping[str, type[Any]] = field(default_factory=dict[str, type[Any]])
    gives: Mapping[str, str] = field(default_factory=lambda: {"predict": _PREDICTS})
    timed: bool = False
    events: bool = False
    aside: bool = False
    joint: bool = False
    scores: tuple[str, ...] = ()
    over_network: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    none_left: str = ""
    exactness: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: Mapping[str, Needs] = field(default_factory=lambda: {"importance": Needs()})
    alone: str = (
        "Its blind rows are compared within each hospital, since every hospital has its own model."
    )
    note: str = ""

    def check(self, outcome: Outcome | None) -> None:
        """Refuse an outcome that the task cannot be evaluated by.

        Raises
        ------
        SettingError : it is of another class, or there is none and the task needs one.
        """
        if not (isinstance(outcome, self.outcomes) or (outcome is None and self.aside)):
            name = "no" if outcome is None else f"a {outcome.type}"
            raise SettingError(self.refused.format(f"{name} outcome"))

    def check_drawn(self, method: Method, outcome: Outcome | None) -> None:
        """Refuse a method that draws rows with their outcome, without an outcome that it learns.

        Raises
        ------
        SettingError : the task is joint, and there is no outcome of a task of the method.
        """
        if not self.joint or not method.overrides("sample_outcome"):
            return
        if outcome is None or outcome.kind not in method.tasks:
            found = "no outcome" if outcome is None else f"a {outcome.type} outcome"
            known = [task for task in method.tasks if not KINDS[task].aside]
            raise SettingError(
                f"method {method.name!r} draws rows with an outcome of {' or '.join(known)}, and "
                f"there is {found}. Name such an outcome, or take another method."
            )

    def metrics_of(
        self, outcome: Outcome | None, gives: Collection[str], *, pooled: bool, private: bool
    ) -> tuple[str, ...]:
        """Return the metrics that outcome, methods and bounds allow.

        Parameters
        ----------
        outcome : None if it is not known; a task with a prediction then has its default type.
        gives : members of the study's methods.
        pooled : whether pooled rows are a bound.
        """
        usual = None if self.aside else next(iter(self.types.values()), None)
        kind = usual if outcome is None else type(outcome)
        return tuple(
            name
            for name, needs in self.metrics.items()
            if (not needs.outcome or (kind is not None and issubclass(kind, needs.outcome)))
            and (not needs.gives or needs.gives in gives)
            and (pooled or not needs.bound)
            and not (private and needs.exact)
        )

    def there(self, metrics: Iterable[str]) -> tuple[str, ...]:
        """Return the metrics over a network, in place of these."""
        found = (self.over_network.get(m, m) for m in metrics)
        return tuple(m for m in found if m is not None)

    def exactness_of(self, metrics: Iterable[str]) -> dict[str, str]:
        """Return, by metric, its computation over a network."""
        return {m: self.exactness.get(m, _EXACT) for m in metrics}

    def lacking(self, outcome: Outcome | None, metrics: Iterable[str]) -> set[str]:
        """Return the parts and metrics that a network does not give.

        Parameters
        ----------
        metrics : those of the study file.
        """
        parts = {
            part
            for part, needs in self.lacks.items()
            if not needs.outcome or isinstance(outcome, needs.outcome)
        }
        return {*parts, *(m for m in metrics if m in self.over_network)}


_ALWAYS, _ASKED = Needs(), Needs(asked=True)
_CLASSES: Mapping[str, type[Any]] = {
    "binary": Binary, "category": Category, "ordinal": Ordered,
}  # fmt: skip
_RANKS = _PAIRS + "in studies of 170 blind rows, off by a tenth of its standard error"
_CURVE_RANKS = _RANKS.replace("bins of risk", "bins of predicted survival")

SURVIVAL = Kind(
    "survival",
    (Survival,),
    dict.fromkeys(("c_index", "uno_c", "ibs", "calibration_slope", "d_calibration_p"), _ALWAYS)
    | {"antolini_c": _ASKED},
    gives={"predict": _PREDICTS, "predict_survival": _CURVES},
    timed=True,
    events=True,
    exactness={
        "c_index": _RANKS,
        "uno_c": _RANKS,
        "antolini_c": _CURVE_RANKS,
        "calibration_slope": "exact, but not the pooled rows’: the Cox model of the risk score is "
        "stratified by hospital, so that each has a baseline hazard of its own",
        "ibs": _TIMES.format("the censoring distribution and the"),
        "d_calibration_p": _TIMES.format("the"),
    },
)
CLASSIFICATION = Kind(
    "classification",
    (Binary, Category),
    {
        "auc": _ALWAYS,
        "accuracy": _ALWAYS,
        "balanced_accuracy": Needs((Category,)),
        "brier": _ALWAYS,
        "calibration_slope": Needs((Binary,)),
        "log_loss": _ALWAYS,
    },
    types=_CLASSES,
    events=True,
    exactness={
        "auc": "pairs of patients of one hospital exactly, of two hospitals by bins of the "
        "predicted probability; in studies of 140 blind rows, off by a tenth of its standard error",
    },
)
REGRESSION = Kind(
    "regression",
    (Continuous, Count),
    dict.fromkeys(("r2", "rmse", "mae", "calibration_slope", "calibration_intercept"), _ALWAYS)
    | {"poisson_deviance": Needs((Count,)), "pcc": _ASKED, "nrmse": _ASKED},
    types={"continuous": Continuous, "count": Count},
    lacks=dict.fromkeys(("calibration", "residuals", "importance"), _ALWAYS),
)
CLUSTERING = Kind(
    "clustering",
    (Survival, Binary, Category),
    {
        "silhouette": _ALWAYS,
        "calinski_harabasz": _ALWAYS,
        "cycle_accuracy": Needs(gives="reconstruct"),
        "reconstruction": Needs(gives="reconstruct"),
        "reconstruction_accuracy": Needs(gives="reconstruct", asked=True),
        "rounded_accuracy": Needs(gives="reconstruct", asked=True),
        "g_ratio": Needs(gives="reconstruct", exact=True, asked=True),
        "smallest_share": _ALWAYS,
        "c_index": Needs((Survival,)),
        "log_rank_p": Needs((Survival,)),
        "accuracy": Needs((Binary, Category)),
        "ari": Needs((Binary, Category)),
        "nmi": Needs((Binary, Category)),
        "agreement": Needs(bound=True),
    },
    refused="clusters are evaluated by survival or by classes, not by a number.",
    types=_CLASSES,
    aside=True,
    scores=("silhouette", "stability", "reconstruction"),
    # a silhouette compares all pairs of rows, and pooled clusters take all rows
    over_network={"silhouette": "simplified_silhouette", "agreement": None},
    none_left="silhouette",
    exactness={
        "simplified_silhouette": "exact, but no silhouette: distances to clusters’ means stand for "
        "mean distances to their patients",
        "c_index": _PAIRS + "clusters are not binned",
        **dict.fromkeys(
            ("reconstruction_accuracy", "rounded_accuracy"),
            "exact, of columns that enough blind patients have",
        ),
        "log_rank_p": "events and patients at risk are counted in intervals of time that hold "
        "several events, and not at every time",
    },
    lacks={"at_risk": Needs((Survival,))},
    alone="Each hospital evaluates its own clusters on its own blind rows; each value is the mean "
    "over hospitals.",
    note="Features and positions of its clusters are of blind rows, by sums over hospitals. These, "
    "and metrics of distances, are left out if clusters have few blind rows, or differ by few "
    "patients from those of an earlier model.",
)
#: A discriminant of classes needs training rows: there is none in a private study, nor over a
#: network, where its sums by class would be a second set beside those of the fit.
LATENT = Kind(
    "latent",
    (Survival, Binary, Category),
    {
        "reconstruction_mae": _ALWAYS,
        "imputation_mae": Needs(gives="impute"),
        "imputation_rmse": Needs(gives="impute"),
        "latent_accuracy": Needs((Binary, Category), exact=True),
        "latent_auc": Needs((Binary,), exact=True),
        "reconstruction_accuracy": _ASKED,
        "rounded_accuracy": _ASKED,
        "g_ratio": Needs(exact=True, asked=True),
    },
    refused="latent variables are evaluated by classes, not by a number.",
    types=_CLASSES,
    gives={
        what: f"has no {what}; arms are compared by it" for what in ("transform", "reconstruct")
    },
    aside=True,
    scores=("reconstruction", "imputation"),
    over_network={"latent_accuracy": None, "latent_auc": None},
    none_left="reconstruction_mae",
    exactness={
        **dict.fromkeys(
            ("reconstruction_mae", "reconstruction_accuracy", "rounded_accuracy", "g_ratio"),
            "exact, of columns that enough blind patients have",
        ),
        "imputation_mae": _FILLED,
        "imputation_rmse": _FILLED,
    },
    lacks=dict.fromkeys(("latent_filled", "latent_map"), _ALWAYS),
    alone="Each hospital evaluates its own latent variables on its own blind rows, in standard "
    "deviations of these; each value is the mean over hospitals.",
    note="Its errors are of blind rows, by sums over hospitals; columns with few values there are "
    "left out. Classes are not predicted from its latent variables: a discriminant needs training "
    "rows.",
)
#: Virtual rows are compared with training rows, which a network does not have in one place: there
#: each hospital compares them with its own blind rows.
SYNTHESIS = Kind(
    "synthesis",
    (Survival, Binary, Category, Continuous, Count),
    {
        "marginal_error": _ALWAYS,
        "association_error": _ALWAYS,
        "utility": Needs((Survival, Binary, Category, Continuous, Count)),
        "utility_ratio": Needs((Survival, Binary, Category, Continuous, Count), exact=True),
        "log_rank_p": Needs((Survival,)),
        "distance_ratio": Needs(exact=True),
        "copies": Needs(exact=True),
        "membership_auc": Needs(exact=True),
    },
    types={**_CLASSES, "continuous": Continuous, "count": Count},
    gives={"sample": "draws no rows; arms are compared by them"},
    aside=True,
    joint=True,
    over_network=dict.fromkeys(
        ("utility", "utility_ratio", "log_rank_p", "distance_ratio", "copies", "membership_auc")
    ),
    none_left="marginal_error",
    exactness=dict.fromkeys(
        ("marginal_error", "association_error"),
        "mean over hospitals of the error by their own blind patients",
    ),
    lacks=dict.fromkeys(("virtual_scores", "virtual_privacy", "virtual_curves"), _ALWAYS),
    alone="Each hospital draws rows from its own model and compares them with its own blind rows; "
    "each value is the mean over hospitals.",
    note="Each hospital compares rows drawn from the model with its own blind rows; each value is "
    "the mean over hospitals. What needs training rows, or all blind rows, in one place is left "
    "out: models of the outcome, distances, copies, and attacks.",
)
#: Entries are hidden at each hospital, which does not tell which: so each has errors of its own.
IMPUTATION = Kind(
    "imputation",
    (Survival, Binary, Category, Continuous, Count),
    {
        "masked_rmse": _ALWAYS,
        "masked_mae": _ALWAYS,
        "masked_wrong": _ALWAYS,
        "masked_coverage": Needs(gives="impute_drawn"),
        "masked_rmse_by_value": _ALWAYS,
        "masked_rmse_by_view": _ALWAYS,
        "masked_wrong_by_view": _ALWAYS,
    },
    types=_CLASSES | {"continuous": Continuous, "count": Count},
    gives={"impute": "imputes no missing values; arms are compared by these"},
    aside=True,
    none_left="masked_rmse",
    exactness=dict.fromkeys(
        ("masked_rmse", "masked_mae", "masked_wrong", "masked_coverage", "masked_rmse_by_value",
         "masked_rmse_by_view", "masked_wrong_by_view"),
        "mean over hospitals of the error among their own blind patients",
    ),
    lacks={"imputation_errors": _ALWAYS},
    alone="Each hospital hides and imputes entries of its own blind rows, in standard deviations "
    "of these; each value is the mean over hospitals.",
    note="Each hospital hides and imputes entries of its own blind rows; each value is the mean "
    "over hospitals. Errors by column are left out.",
)  # fmt: skip
KINDS: Mapping[str, Kind] = {
    k.name: k
    for k in (SURVIVAL, CLASSIFICATION, REGRESSION, CLUSTERING, LATENT, SYNTHESIS, IMPUTATION)
}
TASKS = tuple(KINDS)
#: Kinds with an outcome for evaluation only.
ASIDE = tuple(k.name for k in KINDS.values() if k.aside)
