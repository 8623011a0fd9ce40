"""Virtual rows beside real ones: what of the real rows they keep, and what they reveal.

    likeness   errors of marginals and associations, by the blind rows (`metrics.virtual`)
    use        a model of the virtual rows, and one of the training rows, predict the outcome of the
               blind rows; their score is the C-index, the AUC or R²
    survival   log-rank test of the virtual against the blind rows
    privacy    distance of virtual and of blind rows to the nearest training row, copies of training
               rows, and two attacks on membership

The model of the outcome is `cox`, `logistic`, `multinomial`, `ordinal`, `ridge` or `glm`, with a
small ridge penalty and the same settings for both. Blind rows are rows that the model has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.restored import significant
from fedcohort.metrics import classification
from fedcohort.metrics import virtual as metrics
from fedcohort.metrics.membership import Auc, delong
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import LogRank, log_rank
from fedcohort.metrics.virtual import Associations, Columns
from fedcohort.protocol import FedcohortError, registry
from fedcohort.study.judge.leading import LEADING, Outcomes
from fedcohort.study.run.engine import Problem, Run, fit_once

#: Method and settings that predict an outcome, by its type.
PREDICTORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "survival": ("cox", {"l2": 0.01, "ph_check": "none"}),
    "binary": ("logistic", {"l2": 0.01}),
    "category": ("multinomial", {"l2": 0.01}),
    "ordinal": ("ordinal", {"l2": 0.01}),
    "continuous": ("ridge", {"penalty": 0.01}),
    "count": ("glm", {"l2": 0.01}),
}
#: Rows on either side that an attack needs.
FEWEST = 20
#: Rows that take part in comparisons of pairs of rows: at most so many.
MOST = 4_000


def compared(dictionary: Dictionary, names: Sequence[str]) -> tuple[Variable, ...]:
    """Return the variables to compare: those among `names` that hold numbers, levels or dates."""
    found = [dictionary[name] for name in names if name in dictionary]
    return tuple(v for v in found if v.type != "text" and (v.type != "date" or v.since))


def columns_of(frame: pd.DataFrame, variables: Sequence[Variable]) -> Columns:
    """Return a table's columns, numbers with the digits of virtual rows."""
    encoding = Encoding(tuple(variables))
    read = encoding(frame)
    nothing = np.zeros((len(frame), 0))
    numbers = [significant(np.asarray(x, float)) for x in read.numbers]
    return Columns(
        np.stack(numbers, axis=1) if numbers else nothing,
        np.stack(read.codes, axis=1) if read.codes else nothing.astype(np.int64),
        tuple(len(v.levels) for v in encoding.coded),
    )


def learnt(frame: pd.DataFrame, outcome: Outcome, dictionary: Dictionary, seed: int) -> Run | None:
    """Return a model of the outcome from a table's rows; None if they give none."""
    name, settings = PREDICTORS[outcome.type]
    method = registry.find(name)
    known = {v: k for v, k in dictionary.variables.items() if v in frame.columns}
    empty = [v for v in known if v not in outcome.columns and not frame[v].notna().any()]
    known = {k: v for k, v in known.items() if k not in empty}
    problem = Problem(
        {"pooled": frame.drop(columns=empty)}, replace(dictionary, variables=known), outcome
    )
    table = {**method.preprocess, "scale": "standard", "impute": "median"}
    try:
        return fit_once(
            problem, method, {**settings, **method.settings.alone}, table, seed, explained=False
        )
    except (FedcohortError, ValueError, np.linalg.LinAlgError):
        return None


class Score(NamedTuple):
    """A metric of predictions of the blind rows, and its standard error."""

    metric: str
    value: float
    error: float


@dataclass(frozen=True)
class Privacy:
    """What virtual rows reveal of training rows.

    Attributes
    ----------
    near, usual : median distance to the nearest training row, of virtual and of blind rows.
    copied, alike : number of virtual, and of blind, rows that equal a training row.
    rows, blind : numbers of rows these are of.
    attacks : AUC of each attack, by name.
    """

    near: float
    usual: float
    copied: int
    alike: int
    rows: int
    blind: int
    attacks: Mapping[str, Auc]

    @property
    def ratio(self) -> float:
        """`near` over `usual`: 1 if virtual rows are as far from training rows as new patients."""
        return self.near / self.usual if self.usual > 0 else float("nan")


@dataclass(frozen=True)
class Comparison:
    """Virtual rows, the training rows of their model, and blind rows; one place has all of them.

    Attributes
    ----------
    variables : to compare; numbers first in `names`.
    outcome : among them, or None.
    """

    virtual: pd.DataFrame
    train: pd.DataFrame
    blind: pd.DataFrame
    dictionary: Dictionary
    variables: tuple[Variable, ...]
    outcome: Outcome | None = None
    seed: int = 0

    @classmethod
    def of(
        cls,
        virtual: pd.DataFrame,
        train: pd.DataFrame,
        blind: pd.DataFrame,
        dictionary: Dictionary,
        outcome: Outcome | None,
        seed: int = 0,
    ) -> Comparison:
        """Return the comparison of the columns with a virtual value."""
        full = [name for name in dictionary.variables if virtual[name].notna().any()]
        there = {*train.columns} & {*blind.columns}
        variables = compared(dictionary, [name for name in full if name in there])
        return cls(virtual, train, blind, dictionary, variables, outcome, seed)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the compared columns: numbers, then levels."""
        encoding = Encoding(self.variables)
        return tuple(v.name for v in (*encoding.numeric, *encoding.coded))

    @cached_property
    def real(self) -> Columns:
        """The blind rows."""
        return columns_of(self.blind, self.variables)

    @cached_property
    def drawn(self) -> Columns:
        """The virtual rows."""
        return columns_of(self.virtual, self.variables)

    @cached_property
    def associations(self) -> Associations:
        """Correlations of blind and of virtual rows."""
        return metrics.associations(self.real, self.drawn)

    def marginal_errors(self, weights: Array | None = None) -> Array:
        """Return the error of each column (B, c), for weights (B, n) of the blind rows."""
        w = np.ones((1, len(self.blind))) if weights is None else np.asarray(weights, float)
        return metrics.marginal_errors(self.real, self.drawn, w)

    def association_errors(self, weights: Array) -> Array:
        """Return the association error (B,), for weights (B, n) of the blind rows."""
        x, _ = metrics.features(self.real)
        x = x[:, self.associations.kept]
        return np.array([
            metrics.association_error(self.associations, metrics.correlations(x, w))
            for w in np.asarray(weights, float)
        ])  # fmt: skip

    @cached_property
    def virtual_model(self) -> Run | None:
        """A model of the outcome from virtual rows; None if they give none."""
        return self._model(self.virtual)

    @cached_property
    def training_model(self) -> Run | None:
        """A model of the outcome from training rows; None if they give none."""
        return self._model(self.train)

    def _model(self, frame: pd.DataFrame) -> Run | None:
        if self.outcome is None:
            return None
        names = [*self.names]
        return learnt(frame[names], self.outcome, self.dictionary, self.seed)

    def score(self, run: Run | None) -> Score:
        """Return the score of a model of the outcome on the blind rows; NaN without a model."""
        assert self.outcome is not None
        leading = LEADING[self.outcome.kind]
        if run is None:
            return Score(leading.metric, float("nan"), float("nan"))
        seen = Outcomes.of(self.blind, self.outcome, self.dictionary)
        said = seen.fits(run.model.predict(run.design.matrix(self.blind)))
        one = leading.influence(said, seen)
        return Score(leading.metric, float(one.value), float(one.error))

    @cached_property
    def log_rank(self) -> LogRank | None:
        """Test of virtual against blind rows; None without survival."""
        if not isinstance(self.outcome, Survival):
            return None
        parts = [self.outcome.arrays(frame) for frame in (self.virtual, self.blind)]
        time, event = (np.concatenate(both) for both in zip(*parts, strict=True))
        group = np.repeat([0, 1], [len(self.virtual), len(self.blind)])
        return log_rank(group_leavers(group, 2, time, event, np.unique(time)))

    @cached_property
    def _points(self) -> tuple[Array, Array, Array]:
        """Training, blind and virtual rows as points, (n, d) each."""
        train = columns_of(self.train, self.variables)
        tables = (train, self.real, self.drawn)
        return tuple(metrics.points(table, train) for table in tables)  # pyright: ignore[reportReturnType]

    @cached_property
    def _attack(self) -> metrics.Attack:
        """Scores of the nearest-record attack on at most `MOST` training rows, and blind ones."""
        train, blind, virtual = self._points
        rng = np.random.default_rng((self.seed, 0x6E656172))
        return metrics.nearest_record(_some(train, rng), blind, virtual)

    def membership(self, weights: Array) -> Array:
        """Return the AUC of the nearest-record attack (B,), for weights (B, n) of blind rows."""
        members, others = self._attack
        y = np.repeat([1.0, 0.0], [len(members), len(others)])
        w = np.column_stack([np.ones((len(weights), len(members))), weights])
        return classification.auc(y, np.concatenate([members, others]), w)

    @cached_property
    def privacy(self) -> Privacy:
        """What the virtual rows reveal of the training rows, by at most `MOST` rows of each."""
        rng = np.random.default_rng((self.seed, 0x70726976))
        all_train, blind, virtual = self._points
        virtual, blind, members = (_some(rows, rng) for rows in (virtual, blind, all_train))
        attacks: dict[str, Auc] = {}
        if min(len(members), len(blind)) >= FEWEST:
            made = {
                "nearest virtual row": self._attack,
                "nearest virtual row, calibrated": metrics.calibrated(members, blind, virtual, rng),
            }
            attacks = {name: delong(*attack) for name, attack in made.items()}
        near, usual = (metrics.nearest(rows, all_train) for rows in (virtual, blind))
        return Privacy(
            float(np.median(near)) if len(near) else float("nan"),
            float(np.median(usual)) if len(usual) else float("nan"),
            int(metrics.copies(virtual, all_train).sum()),
            int(metrics.copies(blind, all_train).sum()),
            len(virtual), len(blind), attacks,
        )  # fmt: skip


def interpolated(frame: pd.DataFrame, dictionary: Dictionary, n: int, seed: int) -> pd.DataFrame:
    """Return n rows of SMOTE: a row and one of its five nearest, numbers between them.

    Whole numbers are rounded; levels, dates, binary values and missing cells are those of either
    row, by the share. It copies neighbours: a reference for likeness, none for privacy, and no
    model that may leave a hospital.
    """
    rng = np.random.default_rng((seed, 0x736D6F7465))
    variables = compared(dictionary, [c for c in frame.columns if c in dictionary])
    read = columns_of(frame, variables)
    one, other, share = metrics.smote(metrics.points(read, read), n, rng)
    out: dict[str, Any] = {}
    for name in frame.columns:
        a, b = (frame[name].iloc[rows].reset_index(drop=True) for rows in (one, other))
        v = dictionary.variables.get(name)
        second = rng.random(n) < share
        if v is not None and v.type in ("number", "integer", "time") and not v.coded:
            x, y = (part.to_numpy(float) for part in (a, b))
            mixed = significant(x + share * (y - x))
            mixed = np.rint(mixed) if v.type == "integer" else mixed
            out[name] = np.where(np.isnan(mixed), np.where(second, y, x), mixed)
        else:
            out[name] = a.where(~second, b)
    return pd.DataFrame(out)


def _some(rows: Array, rng: np.random.Generator) -> Array:
    """Return the rows, or `MOST` of them."""
    return rows if len(rows) <= MOST else rows[np.sort(rng.choice(len(rows), MOST, replace=False))]
