"""An attack on what a coordinator is told: patients' covariates by differencing sums.

Every sum of a fit is kept as it is told. A patient is recovered where a vector that an attacker can
form from them is that patient's row of covariates: of all arrays with a value for each covariate,

    rows            each row, and each difference of consecutive rows
    calls           the difference of what a step told in two consecutive calls
    ratios          any of these over the scalar that belongs to it: the same row, or difference of
                    rows, of an array with one value for each row (Σ r x over Σ r); or its own first
                    component, where a step counts the intercept; an outcome that stands last is cut
    squares         of a matrix, the leading eigenvector where nothing else is left (x xᵀ), and each
                    column over the root of its own entry (a column that one patient dominates)
    about           the same matrices and vectors with an intercept, counted from 0 in place of the
                    centre that was asked: row j over its first component is the patient who alone
                    has a value other than 0 there; a site's covariance is inverted before

each in the units in which the step was asked (centre and scale stand in its question) and raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedcohort.runtime.coordinator import Coordinator


@dataclass(frozen=True)
class Told:
    """One sum: the step's name, what was asked, and the fields of the reply as arrays."""

    step: str
    question: dict[str, Any]
    reply: dict[str, np.ndarray]


def listen(monkeypatch, *, every: bool = False) -> list[Told]:
    """Keep the sums that any coordinator is told from now on, and of sites' own replies `own_fit`.

    every : keep all replies of sites.
    """
    heard: list[Told] = []
    ask, collect = Coordinator.sum, Coordinator.gather

    def keep(step, question, reply):
        parts = {f.name: np.asarray(getattr(reply, f.name), float) for f in fields(reply)}
        heard.append(Told(step.name, question, parts))

    def sum_(self, step, /, **question):
        reply = ask(self, step, **question)
        keep(step, question, reply)
        return reply

    def gather(self, step, /, **question):
        replies = collect(self, step, **question)
        if every or step.name == "own_fit":
            for reply in replies.values():
                keep(step, question, reply)
        return replies

    monkeypatch.setattr(Coordinator, "sum", sum_)
    monkeypatch.setattr(Coordinator, "gather", gather)
    return heard


def recovered(heard: list[Told], x: np.ndarray, within: float = 1e-6) -> np.ndarray:
    """Return which rows of x (n, p) are among the vectors that can be formed: bool (n,).

    To `within` standard deviations of each covariate.
    """
    hit = np.zeros(len(x), bool)
    sd = np.maximum(x.std(axis=0), 1e-9)
    for vector in np.unique(
        np.array([*guesses(heard, x.shape[1])]).reshape(-1, x.shape[1]), axis=0
    ):
        hit |= (np.abs(x - vector) < within * sd).all(axis=1)
    return hit


def guesses(heard: list[Told], p: int) -> Iterator[np.ndarray]:
    """Yield every vector (p,) of the header, raw and in the covariates' units."""
    latest: dict[str, Told] = {}
    moment: dict[str, np.ndarray] = {}
    for told in heard:
        before = latest.get(told.step)
        latest[told.step] = told
        for name, value in told.reply.items():
            if value.ndim == 1 or (value.ndim == 2 and value.shape[1] == 1):
                moment[name] = value.reshape(-1)
            earlier = None if before is None else before.reply.get(name)
            both = (
                [value]
                if earlier is None or earlier.shape != value.shape
                else [value, value - earlier]
            )
            for array in both:
                for vector in _vectors(array, p, moment.values()):
                    yield from _in_units(vector, told.question)
                yield from _about_zero(array, p, told.question)
        for value in told.reply.values():
            if value.shape == (p,):
                yield from (value / one for one in told.reply.values() if one.ndim == 0 and one)


def _about_zero(array: np.ndarray, p: int, question: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield vectors (p,) of a matrix or vector with an intercept, counted from 0."""
    if array.shape not in ((p + 1, p + 1), (p + 1,), (1, p + 1, p + 1)):
        return
    names = ("centre", "origin") if "centre" in question else ("origin",)
    centre = np.asarray(next((question[n] for n in names if n in question), np.zeros(p)))
    assert centre.ndim == 1, "this attack knows one centre a question: ask for a class at a time"
    centre = centre[:p]
    scale = np.broadcast_to(np.asarray(question.get("scale", 1.0)), p)
    back = np.diag(np.r_[1.0, scale])
    back[1:, 0] = centre if len(centre) == p else 0.0
    whole = array.reshape(array.shape[-2:]) if array.ndim == 3 else array
    kinds = [whole]
    if whole.ndim == 2 and np.isfinite(whole).all() and np.linalg.cond(whole) < 1e12:
        kinds.append(np.linalg.inv(whole))
    for one in kinds:
        rows = np.atleast_2d(back @ one @ back.T if one.ndim == 2 else back @ one)
        for row in rows:
            if abs(row[0]) > 1e-12:
                yield row[1:] / row[0]


def _in_units(vector: np.ndarray, question: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield a vector (p,) as it is, and in the units that the question tells; 0 says nothing."""
    if not vector.any():
        return
    yield vector
    scale = np.asarray(question.get("scale", 1.0))
    for name in ("centre", "origin", "mean"):
        centre = np.asarray(question.get(name, 0.0))
        for cut in (slice(None), slice(1, None), slice(-1)):
            shift, factor = (v[cut] if v.ndim else v for v in (centre, scale))
            if shift.shape in ((), vector.shape) and factor.shape in ((), vector.shape):
                yield vector * factor + shift


def _vectors(array: np.ndarray, p: int, scalars: Any) -> Iterator[np.ndarray]:
    """Yield vectors (p,) from one array that has a value for each covariate, or for one more."""
    if array.ndim == 0 or array.shape[-1] not in (p, p + 1):
        return
    if array.ndim >= 2 and array.shape[-2:] in ((p, p), (p + 1, p + 1)):
        for matrix in array.reshape(-1, *array.shape[-2:]):
            if np.isfinite(matrix).all():
                values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
                *others, last = np.argsort(np.abs(values))
                if abs(values[last]) > 1e8 * np.abs(values[others]).max(initial=0.0):
                    alone = vectors[:, last] * np.sqrt(abs(values[last]))
                    yield from _with_intercept(alone, p)
                    yield from _with_intercept(-alone, p)
                for column, own in zip(matrix.T, matrix.diagonal(), strict=True):
                    if own > 0:
                        yield from _with_intercept(column / np.sqrt(own), p)
                        yield from _with_intercept(-column / np.sqrt(own), p)
    rows = array.reshape(-1, array.shape[-1])
    apart = np.diff(rows, axis=0)
    for row in (*rows, *apart):
        yield from _with_intercept(row, p)
    for scalar in scalars:
        if len(scalar) == len(rows) > 1:
            for top, bottom in ((rows, scalar), (apart, np.diff(scalar))):
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = top / bottom[:, None]
                for row in ratio[np.isfinite(ratio).all(axis=1)]:
                    yield from _with_intercept(row, p)


def _with_intercept(row: np.ndarray, p: int) -> Iterator[np.ndarray]:
    """Yield the covariates of a row that may have an intercept first, or an outcome last."""
    if len(row) == p:
        yield row
        return
    yield row[:p]
    if abs(row[0]) > 1e-12:
        yield row[1:] / row[0]
