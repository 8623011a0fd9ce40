"""Tables of several views over sites, fits of them, and what these are worth."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import FactorAnalysis
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedcohort as fc
from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read.simulated_views import GROUP, dictionary_of, multiview
from fedcohort.data.split import partition

FOLDS = 3
#: Scenario (table 1 of the paper) → numbers of sites.
SCENARIOS = {"IID": (1, 3, 6), "G": (3, 6), "K": (3, 6), "G/K": (3, 6)}
#: Limits of σ of the simulated views. The paper does not say its own: those of "paper" are chosen
#: so that the pooled fit's error is near that of its table 6; "quiet" are the simulator's defaults.
NOISE = {"paper": (0.5, 2.0), "quiet": (0.1, 0.5)}

Sites = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Size:
    """How much is run: tables drawn, folds of each, and fewer rounds where it is a trial."""

    repeats: int = 10
    folds: tuple[int, ...] = tuple(range(FOLDS))
    rounds: int | None = None

    @property
    def less(self) -> dict[str, Any]:
        """Settings of a trial."""
        return {} if self.rounds is None else {"rounds": self.rounds}


@dataclass(frozen=True)
class Views:
    """A table with the columns of each view, and `GROUP`: 1 or 2 of each row."""

    frame: pd.DataFrame
    views: Mapping[str, Sequence[str]]
    dictionary: Dictionary

    @property
    def columns(self) -> list[str]:
        """Columns of all views."""
        return [name for names in self.views.values() for name in names]

    def scaled(self, like: pd.DataFrame) -> Views:
        """Return the columns in units of their range in some rows, 0 at their least."""
        low, high = like[self.columns].min(), like[self.columns].max()
        frame = self.frame.copy()
        frame[self.columns] = (frame[self.columns] - low) / (high - low)
        return Views(frame, self.views, self.dictionary)


def simulated(noise: str, seed: int) -> Views:
    """Return 400 rows of three views, q 5, by the paper's sizes."""
    frame, views = multiview(seed=seed, noise=NOISE[noise])
    return Views(frame, views, dictionary_of(views))


def folds(n: int, seed: int, asked: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yield number, and which rows are for testing (n,), of those asked for of three folds."""
    fold = np.random.default_rng((seed, FOLDS)).permutation(n) % FOLDS
    for f in asked:
        yield f, fold == f


def sites_of(data: Views, rows: pd.DataFrame, scenario: str, sites: int, seed: int) -> Sites:
    """Return some rows of a table over sites, by a scenario of the paper."""
    if sites == 1:
        return {"site-1": rows}
    if scenario == "IID":
        return partition(rows, "iid", sites, seed)
    if scenario == "G":
        return partition(rows, "by-group", sites, seed, group=GROUP)
    group = {"group": GROUP} if scenario == "G/K" else {}
    return partition(rows, "views", sites, seed, views=data.views, **group)


def fitted(
    data: Views, sites: Sites, seed: int, method: str, **settings: Any
) -> tuple[fc.Fit, float]:
    """Return a fit over sites, and the CPU seconds it took, with checks and preprocessing."""
    start = time.process_time()
    fed = fc.simulate(sites, dictionary=data.dictionary, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rounds that ended early; see `settled`
        fit = fc.fit(method, fed, **settings)
    return fit, time.process_time() - start


def native(fit: fc.Fit, like: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return values in the model's scale in those of a table, column by column.

    The scale is linear, and its two numbers follow from the table's least and largest values.
    """
    names = list(found)
    raw = like[names].to_numpy(float)
    seen = np.asarray(fit.parts.design.matrix(like))
    low, high = np.nanmin(raw, axis=0), np.nanmax(raw, axis=0)
    at, to = np.nanmin(seen, axis=0), np.nanmax(seen, axis=0)
    flat = to == at
    unit = np.where(flat, 1.0, (high - low) / np.where(flat, 1.0, to - at))
    return pd.DataFrame(low + (found.to_numpy() - at) * unit, columns=names)


def complete(fit: fc.Fit, like: pd.DataFrame, rows: pd.DataFrame, names: Sequence[str]) -> Array:
    """Return what a fit makes of the columns of rows (n, p), what is missing too, in their units.

    Parameters
    ----------
    like : rows with all columns, by which the model's scale is undone.
    """
    return native(fit, like, fit.reconstruct(rows))[list(names)].to_numpy()


def imputed(fit: fc.Fit, like: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with missing entries filled by their means, of flags too, in their units."""
    design = fit.parts.design
    filled = fit.model.impute(design.matrix(rows))
    return native(fit, like, pd.DataFrame(filled, columns=list(design.features)))


def thinned(data: Views, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of which a third lacks the second view, and a third the last."""
    out, third = rows.copy(), np.arange(len(rows)) * 3 // len(rows)
    for k, name in enumerate(list(data.views)[-2:], 1):
        out.loc[third == k, list(data.views[name])] = np.nan
    return out


def settled(fit: fc.Fit) -> dict[str, Any]:
    """Return how many rounds a fit took, and whether it was done then."""
    assert fit.run is not None
    return {"rounds": fit.run.rounds, "settled": bool(getattr(fit.model, "settled", True))}


def judged(
    fit: fc.Fit, data: Views, like: pd.DataFrame, sites: Sites, test: pd.DataFrame
) -> dict[str, Any]:
    """Return errors of rows as they come back, and how well groups are told apart.

    Mean absolute errors of the entries that training rows have; of complete test rows; and of
    what test rows lack, where two thirds lack a view. The discriminant is learnt from training
    rows, with the views that their sites have, and judged by test rows, complete and not.
    """
    names = data.columns
    off = [
        np.abs(complete(fit, like, part, names) - part.reindex(columns=names).to_numpy(float))
        for part in sites.values()
    ]
    truth = test[names].to_numpy(float)
    again = complete(fit, like, test, names)
    few = thinned(data, test)
    gone = few[names].isna().to_numpy()
    filled = complete(fit, like, few, names)
    points = np.vstack([fit.transform(part) for part in sites.values()])
    groups = np.concatenate([part[GROUP].to_numpy(str) for part in sites.values()])
    rule = LinearDiscriminantAnalysis().fit(points, groups)
    own = test[GROUP].to_numpy(str)
    return {
        "train": float(np.nanmean(np.concatenate([one.ravel() for one in off]))),
        "test": float(np.abs(again - truth).mean()),
        "lacking": float(np.abs(filled - truth)[gone].mean()),
        "accuracy": float(rule.score(fit.transform(test), own)),
        "accuracy_lacking": float(rule.score(fit.transform(few), own)),
    }


def factor_analysis(data: Views, train: pd.DataFrame, test: pd.DataFrame, q: int) -> dict[str, Any]:
    """Return the same of scikit-learn's factor analysis of all training rows at one place."""
    start, names = time.process_time(), data.columns
    mean, sd = train[names].mean().to_numpy(), train[names].std().to_numpy()
    a, b = ((part[names].to_numpy() - mean) / sd for part in (train, test))
    model = FactorAnalysis(q, max_iter=2000, tol=1e-6).fit(a)
    cpu = time.process_time() - start
    rule = LinearDiscriminantAnalysis().fit(model.transform(a), train[GROUP].to_numpy(str))
    off = [np.abs(model.transform(x) @ model.components_ + model.mean_ - x) * sd for x in (a, b)]
    return {
        "train": float(off[0].mean()), "test": float(off[1].mean()),
        "accuracy": float(rule.score(model.transform(b), test[GROUP].to_numpy(str))),
        "rounds": 0, "cpu": cpu,
    }  # fmt: skip
