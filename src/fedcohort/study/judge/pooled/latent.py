"""Latent coordinates: what they keep of a row, and tell of views that it lacks, and of classes.

With x_ij the entries of the blind rows as a model's preprocessing has them, x̂_ij what the model
makes of them, and s_j the standard deviation of the known x_ij among all blind rows,

    reconstruction_mae   mean of |x_ij − x̂_ij| / s_j over the known entries                    (1)
    imputation_mae       the same over the entries of each view in turn, hidden from the rows   (2)
                         that have it and another, x̂ being imputed from what is left
    imputation_rmse      root of the mean of its squares

so that linear scalings do not matter. A feature with one value among the blind rows is left out.
A column that a model knows nothing of, such as one of a view that a hospital alone lacks, counts as
if its mean among the blind rows were said of everybody: the best constant, which flatters such a
model. s_j is that of the rows as they are, also in the draws of the bootstrap.

With classes, linear discriminant analysis of the coordinates of the training rows says the class of
the blind rows (`latent_accuracy`), or orders them (`latent_auc`). Where it can tell none apart, as
with training rows of one class, the most frequent class is said of everybody. No fit sees a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Binary, Category, levels_of
from fedcohort.data.prepare import NumberColumn
from fedcohort.metrics import classification
from fedcohort.metrics.latent import commonest, discriminant, distance, over_entries, units
from fedcohort.privacy.disclosure.counts import fewest, hidden
from fedcohort.protocol import NotSupported, Row
from fedcohort.study.judge.pooled.base import Metrics, constant
from fedcohort.study.run.engine import Problem, Run

OF_CLASSES = ("latent_accuracy", "latent_auc")
OF_VIEWS = ("imputation_mae", "imputation_rmse")


class Feature(NamedTuple):
    """A feature of some rows: its name, its column's, its view, and values (n,), NaN unknown."""

    name: str
    column: str
    view: str
    values: Array


class Filled(NamedTuple):
    """Entries of a column of numbers in a view that was hidden, of the rows that have them.

    ``true`` and ``imputed`` (n,), in the column's unit; the rows are the same whatever the fit.
    """

    column: str
    view: str
    true: Array
    imputed: Array


class Said(NamedTuple):
    """What a fit says of the blind rows.

    Attributes
    ----------
    features : names of the features (p,), ``views`` of each (p,).
    off : |x − x̂| / s (n, p) of reconstructed entries, NaN where there is none.
    filled : the same of entries of hidden views; None where nothing imputes, of one view, or where
        few rows have another view.
    right : whether each row's class is said right (n,); None without classes.
    score : what orders the rows by two classes (n,); None without.
    """

    features: tuple[str, ...]
    views: tuple[str, ...]
    off: Array
    filled: Array | None
    right: Array | None
    score: Array | None


@dataclass(frozen=True)
class Latent:
    """The blind rows of one repeat, and what latent coordinates are judged by.

    Attributes
    ----------
    train, test : training rows of the models that are judged, and blind rows.
    site : each training row's site (n,); None where nothing of sites may be told.
    among : all blind rows, also where `test` are some of them: units come from these.
    outcome, levels : classes that judge, in the order of their numbers; or None.
    dictionary : types and views of the columns that fits see.
    min_cell : fewer patients are not shown.
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

        Of a private study it has neither classes nor sites, and so makes nothing of training rows.
        """
        train, site = problem.pooled().frames["pooled"], _sites(problem)
        known = problem.learnt().dictionary
        outcome = problem.aside if problem.dp is None else None
        levels = levels_of(outcome, problem.dictionary)
        outcome = outcome if isinstance(outcome, (Binary, Category)) else None
        return cls(train, test, site, test, outcome, levels, known, problem.min_cell)

    def taught(self, problem: Problem) -> Latent:
        """Return the judge of models of these training rows alone."""
        return replace(self, train=problem.pooled().frames["pooled"], site=_sites(problem))

    @property
    def can_rank(self) -> bool:
        """Whether there are so many rows that their error is shown."""
        return len(self.test) >= fewest(self.min_cell)

    def on(self, rows: Array) -> Latent:
        """Return the judge of some of the test rows, by a mask (n,)."""
        return replace(self, test=self.test[rows].reset_index(drop=True))

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Said:
        """Return what a fit says of the test rows."""
        design, known = run.design, replace(run.design, impute="none")
        x, true = design.matrix(self.test), known.matrix(self.test)
        unit, _ = units(known.matrix(self.among))
        off = distance(true, run.model.reconstruct(x), unit)
        strange = self._strangers({c.name for c in design.columns})
        filled = None
        if set(OF_VIEWS) & set(wanted):
            filled = self._filled(run, x, true, unit, strange)
        if filled is not None and (~np.isnan(filled)).any(axis=1).sum() < fewest(self.min_cell):
            filled = None
        right = score = None
        if set(OF_CLASSES) & set(wanted) and self.outcome is not None:
            right, score = self._classes(run, x)
        return Said(
            (*design.features, *(f.name for f in strange)),
            (*design.views, *(f.view for f in strange)),
            np.column_stack([off, *(f.values for f in strange)]),
            filled, right, score,
        )  # fmt: skip

    def metrics(self, said: Said, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of what `predicted` returned; None where one is not defined."""
        found = self.draws(said, np.ones((1, len(self.test)), np.int64), wanted)
        return {m: float(found[m][0]) if np.isfinite(found[m][0]) else None for m in wanted}

    def draws(self, said: Said, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each."""
        found = {"reconstruction_mae": over_entries(said.off, weights)}
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
        """Return the draws (B,) of one who says each column's mean, and the most frequent class."""
        strange = self._strangers(frozenset())
        nobody = np.zeros((len(self.test), 0))
        off = np.column_stack([nobody, *(f.values for f in strange)])
        found: dict[str, Array] = {"reconstruction_mae": over_entries(off, weights)}
        if (there := self._there()) is not None:
            off = np.where(hidden_from(there, [f.view for f in strange]), off, np.nan)
            found["imputation_mae"] = over_entries(off, weights)
            found["imputation_rmse"] = np.sqrt(over_entries(np.square(off), weights))
        if self.outcome is not None:
            right = commonest(self._class_of(self.train)) == self._class_of(self.test)
            found["latent_accuracy"] = weights @ right / np.maximum(weights.sum(axis=1), 1)
            found |= constant({"latent_auc": 0.5}, weights)
        return {m: values for m, values in found.items() if m in wanted}

    def groups(self, run: Run) -> list[Row]:
        """Return nothing: coordinates predict no number that could be seen."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """Return nothing: nothing here is a risk."""
        return []

    def shown(self, said: Said) -> Array:
        """Return of which features an error may be shown: bool (p,).

        2 `min_cell` rows have a value, and `min_cell` another one than the most frequent.
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
        self, run: Run, x: Array, true: Array, unit: Array, strange: list[Feature]
    ) -> Array | None:
        """Return the errors (n, p) of eq. (2); None where nothing imputes, or of one view."""
        there, found = self._there(), self._imputed(run, x)
        if there is None or found is None:
            return None
        got, asked = found
        off = np.where(asked, distance(true, got, unit), np.nan)
        told = np.column_stack([np.zeros((len(true), 0)), *(f.values for f in strange)])
        told = np.where(hidden_from(there, [f.view for f in strange]), told, np.nan)
        return np.column_stack([off, told])

    def _imputed(self, run: Run, x: Array) -> tuple[Array, Array] | None:
        """Return what is filled in for rows x (n, p), each view hidden in turn, and which entries.

        (n, p) each; None where nothing imputes, or of one view.
        """
        there, design = self._there(), run.design
        if there is None:
            return None
        views = np.array(design.views, object)
        got, asked = np.full(x.shape, np.nan), np.zeros(x.shape, bool)
        for view in dict.fromkeys(design.views):
            columns = np.flatnonzero(views == view)
            rows = np.flatnonzero(hidden_from(there, [view])[:, 0])
            given = x[rows]
            given[:, columns] = np.nan
            cells = np.ix_(rows, columns)
            try:
                got[cells] = run.model.impute(given)[:, columns]
            except NotSupported:
                return None
            asked[cells] = True
        return got, asked

    def filled(self, run: Run) -> Iterator[Filled]:
        """Yield the columns of numbers of hidden views, with what a fit fills in for them.

        A column of which it says something that is not finite is left out.
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
        """Return by view which rows have an entry of it (n,); None of fewer views than two.

        Columns without a view are one together.
        """
        found: dict[str, Array] = {}
        for f in self._features(self.test, frozenset()):
            known = ~np.isnan(f.values)
            found[f.view] = found.get(f.view, np.zeros(len(known), bool)) | known
        return found if len(found) > 1 else None

    def _strangers(self, known: set[str] | frozenset[str]) -> list[Feature]:
        """Return |x − mean| / s of all columns but the known ones, among the test rows."""
        every = self._features(self.among, known)
        found: list[Feature] = []
        for f, whole in zip(self._features(self.test, known), every, strict=True):
            unit, mean = units(whole.values[:, None])
            found.append(f._replace(values=np.abs(f.values - mean[0]) / unit[0]))
        return found

    def _features(self, frame: pd.DataFrame, apart: set[str] | frozenset[str]) -> Iterator[Feature]:
        """Yield what columns but some ones would give as features: numbers, and levels but one."""
        variables = [v for v in self.dictionary.features() if v.name not in apart]
        encoding = Encoding(tuple(variables))
        read = encoding(frame)
        for v, values in zip(encoding.numeric, read.numbers, strict=True):
            yield Feature(v.name, v.name, v.view, values)
        for v, codes in zip(encoding.coded, read.codes, strict=True):
            for i, level in enumerate(v.levels[1:], 1):
                hot = np.where(codes < 0, np.nan, (codes == i).astype(float))
                yield Feature(f"{v.name}={level}", v.name, v.view, hot)

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
        """Return whether each row is told right (n,), and what orders rows by two classes."""
        z, learnt = run.model.transform(x), run.model.transform(run.design.matrix(self.train))
        if not (np.isfinite(z).all() and np.isfinite(learnt).all()):
            return None, None
        y, truth = self._class_of(self.train), self._class_of(self.test)
        said, score = discriminant(learnt, y, z)
        return said == truth, score if isinstance(self.outcome, Binary) else None


def hidden_from(there: Mapping[str, Array], views: list[str]) -> Array:
    """Return which rows have the view of each column, and another one: bool (n, p)."""
    n = len(next(iter(there.values())))
    several = np.sum(list(there.values()), axis=0) > 1
    return np.column_stack([np.zeros((n, 0), bool), *(there[v] & several for v in views)])


def _sites(problem: Problem) -> Array | None:
    """Return each row's site (n,), as `Problem.pooled` has rows; None where that is not told.

    That is in a private study, and where some natural site hides how many rows it has.
    """
    whole = np.array(list(problem.patients.values()), np.int64)
    if problem.dp is not None or hidden(whole, problem.min_cell).any():
        return None
    names = sorted(problem.frames)
    return np.repeat(np.array(names, object), [len(problem.frames[s]) for s in names])
