"""Latent variables: errors of reconstruction and of imputed views, and prediction of classes.

With x_ij the entries of the blind rows after a model's preprocessing, x̂_ij the model's, and s_j
the standard deviation of the known x_ij among all blind rows,

    reconstruction_mae   mean of |x_ij − x̂_ij| / s_j over the known entries                    (1)
    imputation_mae       the same over the entries of each view in turn, hidden from the rows   (2)
                         that have it and another, x̂ being imputed from the other views
    imputation_rmse      root of the mean of its squares

    g_ratio              mean of (x_ij − x̂_ij)² / s_j² over the known entries of the training rows,
                         over that of the blind rows                                           (3)

so linear scalings do not matter. `reconstruction_accuracy` and `rounded_accuracy` are those of
`metrics.latent.agreement`, of known entries with two values. They and (3) are of the columns that
the model has. A feature with one value among the blind rows is left out. For a
column that a model lacks, such as one of another hospital's view, x̂ is its mean among the blind
rows: the best constant, which flatters such a model. Bootstrap draws use the same s_j.

Classes are predicted by linear discriminant analysis of the training rows' latent variables:
`latent_accuracy` and `latent_auc` on the blind rows. If it cannot separate classes, as with
training rows of one class, it predicts the most frequent class. No fit sees a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array, ratio
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Binary, Category, levels_of
from fedcohort.data.prepare import NumberColumn
from fedcohort.data.variable import Variable
from fedcohort.metrics import classification
from fedcohort.metrics.latent import (
    agreement,
    commonest,
    discriminant,
    distance,
    over_entries,
    units,
)
from fedcohort.privacy.disclosure.counts import fewest, hidden
from fedcohort.protocol import NotSupported, Row
from fedcohort.study.judge.pooled.base import Metrics, constant
from fedcohort.study.run.engine import Problem, Run

OF_CLASSES = ("latent_accuracy", "latent_auc")
OF_VIEWS = ("imputation_mae", "imputation_rmse")
OF_PAIRS = ("reconstruction_accuracy", "rounded_accuracy")


class Feature(NamedTuple):
    """A feature of some rows: its name, column and view, and values (n,), NaN if unknown."""

    name: str
    column: str
    view: str
    values: Array


class Filled(NamedTuple):
    """Entries of a numeric column of a hidden view, of the rows that have them.

    ``true`` and ``imputed`` (n,), in the column's unit; the rows are the same for every fit.
    """

    column: str
    view: str
    true: Array
    imputed: Array


class Said(NamedTuple):
    """A fit's errors and predictions on the blind rows.

    Attributes
    ----------
    features : names of the features (p,), ``views`` of each (p,).
    off : |x − x̂| / s (n, p) of reconstructed entries, NaN without.
    filled : the same for entries of hidden views; None without imputation, with one view, or if few
        rows have another view.
    right : whether each row's class is predicted correctly (n,); None without classes.
    score : order of the rows by two classes (n,); None without.
    agreed : of each row's entries with two values, their number, and the sums of both accuracies'
        terms (3, n); None if not wanted.
    squares : of each row's entries, their number, and the sum of eq. (3) (2, n).
    trained : mean of eq. (3) of the training rows; NaN if not wanted.
    """

    features: tuple[str, ...]
    views: tuple[str, ...]
    off: Array
    filled: Array | None
    right: Array | None
    score: Array | None
    agreed: Array | None
    squares: Array
    trained: float


@dataclass(frozen=True)
class Latent:
    """The blind rows of one repeat, and what their metrics need.

    Attributes
    ----------
    train, test : training rows of the models, and blind rows.
    site : each training row's site (n,); None if sites may not be published.
    among : all blind rows, also if `test` are some of them: s_j comes from these.
    outcome, levels : classes for evaluation, in the order of their numbers; or None.
    dictionary : types and views of the columns that fits see.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    site: Array | None
    among: pd.DataFrame
    outcome: Binary | Category | None
    levels: tuple[str, ...]
    dictionary: Dictionary
    min_cell: int

    leading: ClassVar[str] = "reconstruction_mae"

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """Return the judge of blind rows; `problem` holds the training rows of all sites.

        In a private study it has neither classes nor sites, and so publishes nothing of training
        rows.
        """
        train, site = problem.rows, _sites(problem)
        known = problem.learnt().dictionary
        outcome = problem.aside if problem.dp is None else None
        levels = levels_of(outcome, problem.dictionary)
        outcome = outcome if isinstance(outcome, (Binary, Category)) else None
        return cls(train, test, site, test, outcome, levels, known, problem.min_cell)

    def taught(self, problem: Problem) -> Latent:
        """See `Judge`."""
        return replace(self, train=problem.rows, site=_sites(problem))

    @property
    def can_rank(self) -> bool:
        """Whether there are enough rows to publish their error."""
        return len(self.test) >= fewest(self.min_cell)

    def on(self, rows: Array) -> Latent:
        """See `Judge`."""
        return replace(self, test=self.test[rows].reset_index(drop=True))

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Said:
        """See `Judge`."""
        design, known = run.design, replace(run.design, impute="none")
        x, true = design.matrix(self.test), known.matrix(self.test)
        unit, _ = units(known.matrix(self.among))
        back = run.model.reconstruct(x)
        off = distance(true, back, unit)
        squares = np.stack([(~np.isnan(off)).sum(axis=1), np.nansum(off**2, axis=1)])
        agreed, trained = None, np.nan
        if set(OF_PAIRS) & set(wanted):
            terms = agreement(true, back, np.array(design.pairs).reshape(-1, 2))
            counts = (~np.isnan(terms[0])).sum(axis=1)
            agreed = np.stack([counts, *(np.nansum(t, axis=1) for t in terms)])
        if "g_ratio" in wanted:
            again = run.model.reconstruct(design.matrix(self.train))
            missed = np.square(distance(known.matrix(self.train), again, unit))
            trained = float(np.nanmean(missed)) if (~np.isnan(missed)).any() else np.nan
        unmodelled = self._unmodelled({c.name for c in design.columns})
        filled = None
        if set(OF_VIEWS) & set(wanted):
            filled = self._filled(run, x, true, unit, unmodelled)
        if filled is not None and (~np.isnan(filled)).any(axis=1).sum() < fewest(self.min_cell):
            filled = None
        right = score = None
        if set(OF_CLASSES) & set(wanted) and self.outcome is not None:
            right, score = self._classes(run, x)
        return Said(
            (*design.features, *(f.name for f in unmodelled)),
            (*design.views, *(f.view for f in unmodelled)),
            np.column_stack([off, *(f.values for f in unmodelled)]),
            filled, right, score, agreed, squares, trained,
        )  # fmt: skip

    def metrics(self, said: Said, wanted: tuple[str, ...]) -> Metrics:
        """See `Judge`."""
        found = self.draws(said, np.ones((1, len(self.test)), np.int64), wanted)
        return {m: float(found[m][0]) if np.isfinite(found[m][0]) else None for m in wanted}

    def draws(self, said: Said, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        found = {"reconstruction_mae": over_entries(said.off, weights)}
        found["g_ratio"] = ratio(
            np.full(len(weights), said.trained),
            ratio(weights @ said.squares[1], weights @ said.squares[0]),
        )
        if said.agreed is not None:
            entries = weights @ said.agreed[0]
            found |= {
                m: ratio(weights @ part, entries)
                for m, part in zip(OF_PAIRS, said.agreed[1:], strict=True)
            }
        if said.filled is not None:
            found["imputation_mae"] = over_entries(said.filled, weights)
            found["imputation_rmse"] = np.sqrt(over_entries(np.square(said.filled), weights))
        if said.right is not None:
            found["latent_accuracy"] = weights @ said.right / np.maximum(weights.sum(axis=1), 1)
        if said.score is not None:
            found["latent_auc"] = classification.auc(self._class_of(self.test), said.score, weights)
        nothing = np.full(len(weights), np.nan)
        return {m: found.get(m, nothing) for m in wanted}

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of column means and the most frequent class as predictions."""
        unmodelled = self._unmodelled(frozenset())
        nobody = np.zeros((len(self.test), 0))
        off = np.column_stack([nobody, *(f.values for f in unmodelled)])
        found: dict[str, Array] = {"reconstruction_mae": over_entries(off, weights)}
        if (there := self._there()) is not None:
            off = np.where(hidden_from(there, [f.view for f in unmodelled]), off, np.nan)
            found["imputation_mae"] = over_entries(off, weights)
            found["imputation_rmse"] = np.sqrt(over_entries(np.square(off), weights))
        if self.outcome is not None:
            right = commonest(self._class_of(self.train)) == self._class_of(self.test)
            found["latent_accuracy"] = weights @ right / np.maximum(weights.sum(axis=1), 1)
            found |= constant({"latent_auc": 0.5}, weights)
        return {m: values for m, values in found.items() if m in wanted}

    def groups(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as latent variables predict no observed number."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as there is no risk."""
        return []

    def shown(self, said: Said) -> Array:
        """Return whether a feature's error may be published: bool (p,).

        At least 2 `min_cell` rows have a value, and `min_cell` another one than the most frequent.
        """
        found: list[bool] = []
        values = {f.name: f.values for f in self._features(self.test, frozenset())}
        for name, off in zip(said.features, said.off.T, strict=True):
            known = values.get(name, np.zeros(0))
            known = known[~np.isnan(known)]
            _, counts = np.unique(known, return_counts=True)
            rest = len(known) - int(counts.max(initial=0))
            found.append(
                len(known) >= 2 * self.min_cell
                and rest >= self.min_cell
                and int(np.count_nonzero(~np.isnan(off))) >= 2 * self.min_cell
            )
        return np.array(found, bool)

    # views ----------------------------------------------------------------------------

    def _filled(
        self, run: Run, x: Array, true: Array, unit: Array, unmodelled: list[Feature]
    ) -> Array | None:
        """Return the errors (n, p) of eq. (2); None without imputation, or with one view."""
        there, found = self._there(), self._imputed(run, x)
        if there is None or found is None:
            return None
        got, asked = found
        off = np.where(asked, distance(true, got, unit), np.nan)
        told = np.column_stack([np.zeros((len(true), 0)), *(f.values for f in unmodelled)])
        told = np.where(hidden_from(there, [f.view for f in unmodelled]), told, np.nan)
        return np.column_stack([off, told])

    def _imputed(self, run: Run, x: Array) -> tuple[Array, Array] | None:
        """Return imputed values for rows x (n, p), each view hidden in turn, and a mask of them.

        (n, p) each; None without imputation, or with one view.
        """
        if (there := self._there()) is None:
            return None
        asked = hidden_from(there, list(run.design.views))
        try:
            return filled_in(run, x, asked), asked
        except NotSupported:
            return None

    def filled(self, run: Run) -> Iterator[Filled]:
        """Yield the numeric columns of hidden views, with a fit's imputed values.

        A column with imputed values that are not finite is left out.
        """
        found = self._imputed(run, run.design.matrix(self.test))
        if found is None:
            return
        (got, asked), at = found, 0
        known = {f.column: f.values for f in self._features(self.test, frozenset())}
        for c in run.design.columns:
            if isinstance(c, NumberColumn) and c.type != "binary":
                true = known[c.name]
                rows = asked[:, at] & ~np.isnan(true)
                said = c.undone(got[rows, at][:, None])
                if np.isfinite(said).all():
                    yield Filled(c.name, c.view, true[rows], said)
            at += len(c.features)

    def _there(self) -> dict[str, Array] | None:
        """Return, by view, which rows have an entry of it (n,); None with fewer than two views.

        Columns without a view form one view.
        """
        found: dict[str, Array] = {}
        for f in self._features(self.test, frozenset()):
            known = ~np.isnan(f.values)
            found[f.view] = found.get(f.view, np.zeros(len(known), bool)) | known
        return found if len(found) > 1 else None

    def _unmodelled(self, known: set[str] | frozenset[str]) -> list[Feature]:
        """Return |x − mean| / s of all columns but the `known` ones, among the test rows."""
        every = self._features(self.among, known)
        found: list[Feature] = []
        for f, whole in zip(self._features(self.test, known), every, strict=True):
            unit, mean = units(whole.values[:, None])
            found.append(f._replace(values=np.abs(f.values - mean[0]) / unit[0]))
        return found

    def _features(
        self, frame: pd.DataFrame, excluded: set[str] | frozenset[str]
    ) -> Iterator[Feature]:
        """Yield the features of all columns but the `excluded` ones."""
        return features_of([v for v in self.dictionary.features() if v.name not in excluded], frame)

    # classes --------------------------------------------------------------------------

    def class_names(self) -> Array | None:
        """Return the name of each training row's class (n,); None without classes."""
        if self.outcome is None:
            return None
        return np.array(self.levels, object)[self._class_of(self.train)]

    def _class_of(self, frame: pd.DataFrame) -> Array:
        """Return the class (n,) of each row, a whole number from 0."""
        assert self.outcome is not None
        return self.outcome.values(frame, self.levels).astype(np.int64)

    def _classes(self, run: Run, x: Array) -> tuple[Array | None, Array | None]:
        """Return whether each row's class is correct (n,), and the order of rows by two classes."""
        z, learnt = run.model.transform(x), run.model.transform(run.design.matrix(self.train))
        if not (np.isfinite(z).all() and np.isfinite(learnt).all()):
            return None, None
        y, truth = self._class_of(self.train), self._class_of(self.test)
        said, score = discriminant(learnt, y, z)
        return said == truth, score if isinstance(self.outcome, Binary) else None


def features_of(variables: Sequence[Variable], frame: pd.DataFrame) -> Iterator[Feature]:
    """Yield the features of columns: numbers, and all levels but the first."""
    encoding = Encoding(tuple(variables))
    read = encoding(frame)
    for v, values in zip(encoding.numeric, read.numbers, strict=True):
        yield Feature(v.name, v.name, v.view, values)
    for v, codes in zip(encoding.coded, read.codes, strict=True):
        for i, level in enumerate(v.levels[1:], 1):
            hot = np.where(codes < 0, np.nan, (codes == i).astype(float))
            yield Feature(f"{v.name}={level}", v.name, v.view, hot)


def filled_in(run: Run, x: Array, asked: Array) -> Array:
    """Return a model's imputation of each view from the others (n, p); NaN outside `asked`.

    Parameters
    ----------
    asked : whether a row has the view of a column, and another one (n, p); see `hidden_from`.

    Raises
    ------
    NotSupported : the model does not impute.
    """
    views, found = np.array(run.design.views, object), np.full(x.shape, np.nan)
    for view in dict.fromkeys(run.design.views):
        columns = np.flatnonzero(views == view)
        rows = np.flatnonzero(asked[:, columns[0]])
        given = x[rows]
        given[:, columns] = np.nan
        found[np.ix_(rows, columns)] = run.model.impute(given)[:, columns]
    return found


def hidden_from(there: Mapping[str, Array], views: list[str]) -> Array:
    """Return whether a row has the view of each column, and another one: bool (n, p)."""
    n = len(next(iter(there.values())))
    several = np.sum(list(there.values()), axis=0) > 1
    return np.column_stack([np.zeros((n, 0), bool), *(there[v] & several for v in views)])


def _sites(problem: Problem) -> Array | None:
    """Return each row's site (n,), in the order of `Problem.pooled`; None if it must stay hidden.

    That holds for a private study, and if a natural site hides its number of rows.
    """
    whole = np.array(list(problem.patients.values()), np.int64)
    if problem.dp is not None or hidden(whole, problem.min_cell).any():
        return None
    names = sorted(problem.frames)
    return np.repeat(np.array(names, object), [len(problem.frames[s]) for s in names])
