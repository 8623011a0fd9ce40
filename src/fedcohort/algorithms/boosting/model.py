"""A fitted booster: trees whose leaf values add up to a margin, and predictions from it.

    F_k(x) = b_k + Σ_{trees t of output k} value of the leaf that x reaches in t

It predicts without XGBoost. `files` writes it for XGBoost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from fedcohort.algorithms.boosting.explanation import Explanation
from fedcohort.algorithms.boosting.response import Objective
from fedcohort.algorithms.boosting.xgboost_file import XGBoostModel, written
from fedcohort.arrays import Array
from fedcohort.numerics.survival import Baseline
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.shapley import shapley
from fedcohort.protocol import Fitted, NotSupported, Row

#: Name of the XGBoost model file beside a saved model.
FILE = "xgboost.json"
_PREDICTED = {
    "binary:logistic": "the probability is 1/(1 + exp(−F))",
    "multi:softprob": "the probability of a class is exp(F) divided by the sum of exp(F) over all",
    "reg:squarederror": "the predicted value is F",
    "count:poisson": "the predicted value is exp(F)",
    "survival:cox": "the risk score is F, a log hazard ratio",
    "survival:aft": "the risk score is −F, and F is the logarithm of the predicted time",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class BoostedModel(Fitted):
    """Boosted trees.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    levels : classes of the outcome, (K,) of multi:softprob, 2 of a binary outcome; () without.
    objective : the loss.
    ensemble : the trees and the base margins b (K,).
    baselines : of survival:cox Breslow's hazard at F = 0 after each number of rounds, from 0 to
        that of the model; all at the same times. () without.
    known : of survival:aft the time up to which the sites' sums tell survival; inf in a model read
        from a file.
    caution : a warning if sums of the fit tell of few records; "" in a model read from a file.
    explanation : means of Shapley values and predictions over training rows; None if not asked for.

    Raises
    ------
    ValueError : multi:softprob without an output for each class, or another objective with several;
        or baselines are not those of all rounds.
    """

    features: tuple[str, ...]
    objective: Objective
    ensemble: Ensemble
    levels: tuple[str, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    known: float = math.inf
    caution: str = ""
    explanation: Explanation | None = None

    def __post_init__(self):
        outputs, several = len(self.ensemble.base), self.objective.several
        if (outputs > 1) != several or (several and len(self.levels) != outputs):
            raise ValueError(f"objective {self.objective.name} with {outputs} outputs")
        if len(self.baselines) not in (0, self.rounds + 1):
            raise ValueError(f"{len(self.baselines)} baselines of {self.rounds} rounds")

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.ensemble.round_of.max(initial=-1)) + 1

    @property
    def classes_(self) -> Array:
        """The classes (K,), under scikit-learn's name."""
        return np.array(self.levels)

    def margins(self, x: Array) -> Array:
        """Return F (n, K) of each row of x (n, p); K is 1 but for multi:softprob."""
        return self.ensemble.margins(x)

    def predict(self, x: Array) -> Array:
        """Return the prediction of each row of x (n, p); missing values are NaN.

        By objective: the probability of class 1 (n,), of each class (n, K), a value or a count
        (n,). Of survival a risk score (n,): F of survival:cox, −F of survival:aft.
        """
        margin = self.margins(x)
        if self.objective.name.startswith("survival:"):
            return margin[:, 0] * (-1 if self.objective.name == "survival:aft" else 1)
        return self.objective.predicted(margin)

    def log_hazard(self, x: Array) -> Array:
        """Return F of survival:cox, and −F/σ of survival:aft, of each row of x (n, p): (n,).

        With an error of distribution "extreme" the latter is a log hazard (Weibull), up to a
        constant.
        """
        found = self.predict(x)
        return found / self.objective.sigma if self.objective.name == "survival:aft" else found

    def median_survival(self, x: Array) -> Array | None:
        """Return the median time (n,) of survival:aft, NaN after `known`; None of others."""
        if self.objective.name != "survival:aft":
            return None
        found = self.objective.median(self.margins(x))
        return np.where(found <= self.known, found, np.nan)

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) (n, m) of each row of x (n, p) at each of `times` (m,).

        Raises
        ------
        NotSupported : the outcome is no survival time, or the fit has no baseline hazard.
        """
        if self.objective.name == "survival:aft":
            return self.objective.survival(self.margins(x), times)
        if self.objective.name != "survival:cox":
            raise NotSupported("predict_survival")
        if not self.baselines:
            raise NotSupported("this booster has no baseline hazard and predicts only risks.")
        return self.baselines[-1].survival(self.predict(x), np.asarray(times, float))

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.full(len(x), self.baselines[-1].end if self.baselines else self.known)

    def shapley(self, x: Array) -> tuple[Array, Array]:
        """Return the Shapley values (n, K, p) of rows x (n, p), and the mean margin (K,).

        See `fedcohort.numerics.trees.shapley`.
        """
        return shapley(self.ensemble, x)

    def splits(self) -> list[Row]:
        """Return one row per covariate with a split, see `Fitted.splits`."""
        found = self.ensemble.importance(len(self.features))
        whole = float(found["total_gain"].sum()) or 1.0
        order = np.argsort(-found["total_gain"], kind="stable").tolist()
        return [
            {
                "covariate": self.features[j],
                "share": float(found["total_gain"][j]) / whole,
                **{name: values[j].item() for name, values in found.items()},
            }
            for j in order
            if found["weight"][j]
        ]

    def explained(self) -> list[Row]:
        """Return the means of Shapley values and predictions, see `Fitted.explained`."""
        if self.explanation is None:
            return []
        several = self.levels if self.objective.several else ()
        return list(self.explanation.listed(self.features, several, self.objective.name))

    def parameters(self, times: Array) -> list[Row]:
        """Return the base margins, with a note on how a prediction is made."""
        names = [f"margin without trees, {name}" for name in self.levels]
        names = names if self.objective.several else ["margin without trees"]
        rows: list[Row] = [
            {"name": name, "value": float(b)}
            for name, b in zip(names, self.ensemble.base, strict=True)
        ]
        rows[0]["note"] = (
            f"F is the margin without trees plus the values of the leaves that a row reaches; "
            f"{_PREDICTED[self.objective.name]}"
        )
        return rows

    def cautions(self) -> tuple[str, ...]:
        """Return what sums tell of few records, and whether no tree has a split."""
        found = (self.caution,) if self.caution else ()
        if self.splits():
            return found
        return (*found, "no split has rows and a gain enough, so all rows have one prediction")

    def at_round(self, rounds: int) -> Self:
        """Return the model after a number of rounds; itself if it has no more."""
        if rounds >= self.rounds:
            return self
        return replace(
            self, ensemble=self.ensemble.first(rounds), baselines=self.baselines[: rounds + 1],
            explanation=None,
        )  # fmt: skip

    def files(self) -> dict[str, bytes]:
        """Return the XGBoost model file, whose covariates are x of `predict`."""
        held = XGBoostModel(
            ensemble=self.ensemble, objective=self.objective, features=self.features
        )
        return {FILE: written(held)}

    def arrays(self) -> dict[str, Array]:
        """Return nodes, gains, covers, base margins, and means of the explanation.

        Of survival also what is known of time: the baseline hazards (R + 1, T), or the last time.
        """
        own = self.ensemble.arrays()
        if self.baselines:
            own["times"] = self.baselines[-1].times
            own["cumulative"] = np.array([b.cumulative for b in self.baselines])
        if self.known < math.inf:
            own["known"] = np.array(self.known)
        return own if self.explanation is None else own | self.explanation.arrays()

    def meta(self) -> dict[str, Any]:
        """Return names, classes and the objective."""
        return {
            "features": list(self.features),
            "levels": list(self.levels),
            "objective": asdict(self.objective),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from the results of `arrays` and `meta`.

        Raises
        ------
        LookupError, TypeError, ValueError : they are not of such a model.
        """
        features = tuple(meta["features"])
        baselines: tuple[Baseline, ...] = ()
        if "times" in arrays:
            times, cumulative = arrays["times"], arrays["cumulative"]
            if times.ndim != 1 or cumulative.ndim != 2 or cumulative.shape[1] != len(times):
                raise ValueError("baselines differ in length from their times")
            baselines = tuple(Baseline(times, row) for row in cumulative)
        ensemble = Ensemble.from_arrays(arrays, len(features))
        return cls(
            features=features,
            levels=tuple(meta["levels"]),
            objective=Objective(**meta["objective"]),
            ensemble=ensemble,
            baselines=baselines,
            known=float(arrays.get("known", math.inf)),
            explanation=Explanation.restored(arrays, len(ensemble.base), len(features)),
        )
