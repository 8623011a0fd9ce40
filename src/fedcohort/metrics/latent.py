"""Errors of rows reconstructed from a latent space, and classes predicted from its coordinates.

Errors are in units of each feature's standard deviation, so linear scalings do not matter. An
unknown entry is NaN and has no error.

Of a feature with two values (GenoMed4All D6.2, 7.4.1, whose mutations are 0 or 1), with b the entry
and b̂ its reconstruction on the scale of 0 and 1, b̂ cut to [0, 1],

    accuracy          mean of 1 − |b − b̂|: the expected share of right entries if b̂ is taken as the
                      probability of 1                                                          (1)
    rounded accuracy  mean of 1(b = 1(b̂ > ½))                                                  (2)

D6.2 prints no formula of its accuracy; exact equality of b and a real b̂ would be 0.
"""

from __future__ import annotations

import warnings

import numpy as np

from fedcohort.arrays import Array


def units(x: Array) -> tuple[Array, Array]:
    """Return sd and mean (p,) of the known entries of x (n, p); NaN if all have one value."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # nothing is known
        sd, mean = np.nanstd(x, axis=0), np.nanmean(x, axis=0)
        one = ~(np.nanmax(x, axis=0) > np.nanmin(x, axis=0)) if len(x) else np.ones(len(sd), bool)
    return np.where(one, np.nan, sd), mean


def distance(true: Array, said: Array, unit: Array) -> Array:
    """Return |true − said| / unit (n, p): infinite if `said` is not finite, NaN if `true` is
    unknown.
    """
    off = np.where(np.isfinite(said), np.abs(true - said), np.inf) / unit
    return np.where(np.isnan(true), np.nan, off)


def over_entries(off: Array, weights: Array) -> Array:
    """Return the mean of the known entries of `off` (n, p) at weights (B, n) of the rows: (B,)."""
    known = ~np.isnan(off)
    total = weights @ np.where(known, off, 0.0).sum(axis=1)
    entries = weights @ known.sum(axis=1)
    return np.divide(total, entries, out=np.full(len(weights), np.nan), where=entries > 0)


def agreement(x: Array, said: Array, pairs: Array) -> tuple[Array, Array]:
    """Return the terms of eqs. (1) and (2), (n, p) each: NaN for unknown entries, other features.

    An entry without a finite reconstruction counts as wrong.

    Parameters
    ----------
    x, said : entries, NaN if unknown, and reconstructions (n, p).
    pairs : the two values of each feature (p, 2), NaN for other features.
    """
    low, width = pairs[:, 0], pairs[:, 1] - pairs[:, 0]
    entry = (x - low) / width
    rebuilt = np.clip((said - low) / width, 0.0, 1.0)
    known, sound = ~np.isnan(entry), np.isfinite(said)
    expected = np.where(sound, 1.0 - np.abs(entry - rebuilt), 0.0)
    rounded = sound & ((entry > 0.5) == (rebuilt > 0.5))
    return np.where(known, expected, np.nan), np.where(known, rounded, np.nan)


def commonest(y: Array) -> int:
    """Return the most frequent class of y (n,), the first of several; 0 without rows."""
    return int(np.bincount(y).argmax()) if len(y) else 0


def discriminant(z: Array, y: Array, asked: Array) -> tuple[Array, Array]:
    """Return the class (m,) of each asked row by linear discriminant analysis, and a score (m,).

    Parameters
    ----------
    z, y : coordinates (n, q) and classes (n,) of the training rows.
    asked : (m, q).

    Returns
    -------
    said, score : the predicted class, and a score that orders rows by two classes; 0 for more
        classes. If nothing can be learnt, the most frequent class of y, and 0.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # it takes a second

    classes = np.unique(y)
    varies = np.ptp(z, axis=0) > 0 if len(z) else np.zeros(z.shape[1], bool)
    if len(classes) < 2 or len(y) <= len(classes) or not varies.any():
        return np.full(len(asked), commonest(y)), np.zeros(len(asked))
    with warnings.catch_warnings(action="ignore"):  # coordinates that are collinear
        made = LinearDiscriminantAnalysis().fit(z[:, varies], y)
        score = made.decision_function(asked[:, varies]) if len(classes) == 2 else None
        said = np.asarray(made.predict(asked[:, varies]), np.int64)
    return said, np.zeros(len(asked)) if score is None else np.asarray(score, float)
