"""What a fitted booster makes of its columns, as means over training rows.

    mean |φ|     of each column: its mean absolute Shapley value
    mean φ       of the rows whose value of a column lies in a group of bins
    PD(v)        mean prediction of all rows with the column set to v: its partial dependence

Shapley values φ are in units of the margin. PD is a mean probability (logistic, softmax), and
otherwise a mean margin, since a mean of exponentials is that of a few rows.

Means are rounded to a 10⁻⁵ of the largest, so that none tells how many rows it is of, and the
number of rows of a group is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit, softmax

from fedcohort.arrays import Array
from fedcohort.protocol import Row

#: By objective of XGBoost, the unit of the margin, and what PD is a mean of.
WORDS = {
    "binary:logistic": ("log odds", "probability"),
    "multi:softprob": ("margin of the class", "probability"),
    "reg:squarederror": ("predicted value", "predicted value"),
    "count:poisson": ("logarithm of the expected count", "logarithm of the expected count"),
    "survival:cox": ("log hazard ratio", "log hazard ratio"),
    "survival:aft": ("logarithm of the predicted time", "logarithm of the predicted time"),
}
#: Covariates with curves; most groups of the values of one, and points of its curve.
COLUMNS, GROUPS, POINTS = 6, 12, 20
#: Names of saved arrays begin with this.
SAVED = "explained_"


def averaged(objective: str, margin: Array) -> Array:
    """Return what PD averages, of margins (…, K): probabilities, or the margins.

    Parameters
    ----------
    objective : of XGBoost, or its name in `objectives`.
    """
    if objective in ("softmax", "multi:softprob"):
        return softmax(margin, axis=-1)
    return expit(margin) if objective in ("logistic", "binary:logistic") else margin


def value_in(edges: Array, number: int) -> float:
    """Return a value in a bin of a covariate; NaN in bin 0, of missing values.

    The middle of a bin between two edges; the first and the last bin count as wide as their
    neighbours. A whole number, if all edges lie half way between such.

    Parameters
    ----------
    edges : (E,) float32, ascending. Bin 1 is below the first, bin E + 1 from the last on.
    """
    if number == 0:
        return math.nan
    known, last = np.asarray(edges, float), len(edges)
    if not last:
        return 0.0
    whole = bool((known == np.floor(known) + 0.5).all())
    width = np.diff(known) if last > 1 else np.array([1.0 if whole else 0.0])
    low = known[number - 2] if number > 1 else known[0] - width[0]
    high = known[number - 1] if number <= last else known[-1] + width[-1]
    found = float(np.floor((low + high) / 2) if whole else np.float32((low + high) / 2))
    if number <= last and not found < known[number - 1]:
        found = float(np.nextafter(np.float32(known[number - 1]), np.float32(-np.inf)))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """Means over training rows of all sites.

    Attributes
    ----------
    rows : (2,) numbers of the rows that the means are of, and of all training rows.
    absolute : (K, p) mean |φ|.
    group_of : (G,) covariate of each group of values.
    group : (G, 3) a value in it, and its limits: low ≤ x < high, NaN for no limit; all NaN of
        missing values.
    shift : (K, G) mean φ of its rows.
    point_of : (P,) covariate of each point.
    point : (P,) the value that all rows are given; NaN for a missing one.
    curve : (P, K) PD there.
    """

    rows: Array
    absolute: Array
    group_of: Array
    group: Array
    shift: Array
    point_of: Array
    point: Array
    curve: Array

    def rounded(self) -> Self:
        """Return the same with rounded means."""
        kept = {"absolute", "shift", "curve"}
        own = {k: _rounded(v) if k in kept else v for k, v in vars(self).items()}
        return type(self)(**own)

    def listed(
        self, features: tuple[str, ...], levels: tuple[str, ...], objective: str
    ) -> Iterator[Row]:
        """Yield one row for each mean, those of the largest mean |φ| first.

        Parameters
        ----------
        levels : classes of several outputs; () of one.
        """
        margin, averaged_ = WORDS[objective]
        names = levels or (None,)
        rows, of = self.rows.tolist()
        yield {"kind": "about", "rows": rows, "of": of, "margin": margin, "mean": averaged_}
        order = np.argsort(-self.absolute.sum(axis=0), kind="stable").tolist()
        for j in order:
            for k, name in enumerate(names):
                if self.absolute[:, j].any():
                    yield {
                        "kind": "absolute", "covariate": features[j], "class": name,
                        "value": float(self.absolute[k, j]),
                    }  # fmt: skip
        place = {j: i for i, j in enumerate(order)}
        for i in np.argsort([place[j] for j in self.group_of.tolist()], kind="stable").tolist():
            at, low, high = (_known(v) for v in self.group[i].tolist())
            for k, name in enumerate(names):
                yield {
                    "kind": "shift", "covariate": features[self.group_of[i]], "class": name,
                    "at": at, "low": low, "high": high, "value": float(self.shift[k, i]),
                }  # fmt: skip
        for i in np.argsort([place[j] for j in self.point_of.tolist()], kind="stable").tolist():
            for k, name in enumerate(names):
                yield {
                    "kind": "curve", "covariate": features[self.point_of[i]], "class": name,
                    "at": _known(float(self.point[i])), "value": float(self.curve[i, k]),
                }  # fmt: skip

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, to save."""
        return {SAVED + name: np.asarray(a) for name, a in vars(self).items()}

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], outputs: int, p: int) -> Self | None:
        """Return the explanation of saved arrays; None without.

        Raises
        ------
        LookupError, ValueError : they are not of a model of p covariates.
        """
        if f"{SAVED}rows" not in arrays:
            return None
        own = {name: np.asarray(arrays[SAVED + name]) for name in cls.__dataclass_fields__}
        made = cls(**own)
        g, n = len(made.group_of), len(made.point_of)
        shapes = {
            "rows": (2,), "absolute": (outputs, p), "group_of": (g,), "group": (g, 3),
            "shift": (outputs, g), "point_of": (n,), "point": (n,), "curve": (n, outputs),
        }  # fmt: skip
        whole = (made.rows, made.group_of, made.point_of)
        if any(own[k].shape != shape for k, shape in shapes.items()) or any(
            a.dtype.kind not in "iu" or (a < 0).any() for a in whole
        ):
            raise ValueError("means over rows are not of these covariates")
        if max(made.group_of.max(initial=0), made.point_of.max(initial=0)) >= p:
            raise ValueError("means over rows are of a covariate that does not exist")
        return made


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(a: Array) -> Array:
    """Return numbers as multiples of a power of ten, at most 10⁻⁵ of the largest."""
    most = float(np.abs(a).max(initial=0.0))
    if not most > 0:
        return np.asarray(a, float)
    return np.round(a, 5 - math.floor(math.log10(most)) - 1)
