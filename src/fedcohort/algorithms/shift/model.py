"""The shift between sites: a row for each pair and table, matrices, and a map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.shift import holm, scaled
from fedcohort.protocol import Fitted, Row

#: Kinds of comparison; see `program`.
KINDS = ("feature", "label", "conditional", "gradient")


@dataclass(frozen=True)
class ShiftModel(Fitted):
    """Differences between sites.

    Attributes
    ----------
    sites : S names, in order.
    rows : one for each pair of sites and table: kind, variable, site, other, value (Jensen-Shannon
        divergence in bits, 0 to 1; a cosine for kind gradient), expected (by chance, with these
        numbers of rows), p, p_adjusted over all rows, clear.
    level : adjusted p-value below which a difference is clear.
    left_out : why a site is not compared, by site.
    """

    sites: tuple[str, ...]
    rows: list[Row]
    level: float
    left_out: Mapping[str, str]

    @classmethod
    def of(
        cls, sites: Sequence[str], rows: Sequence[Row], level: float, left_out: Mapping[str, str]
    ) -> Self:
        """Return the model; the rows' p-values are not adjusted."""
        adjusted = holm([r["p"] for r in rows]).tolist()
        complete: list[Row] = [
            {**r, "p": _or_none(r["p"]), "expected": _or_none(r["expected"])}
            | {"p_adjusted": _or_none(q), "clear": bool(q < level)}
            for r, q in zip(rows, adjusted, strict=True)
        ]
        order = {kind: i for i, kind in enumerate(KINDS)}
        complete.sort(key=lambda r: order[str(r["kind"])])
        return cls(tuple(sites), complete, level, dict(left_out))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the rows, in order."""
        return tuple(k for k in KINDS if any(r["kind"] == k for r in self.rows))

    def matrix(self, kind: str, *, expected: bool = False) -> Array:
        """Return the mean (S, S) over the variables of one kind; nan without a value.

        Parameters
        ----------
        expected : of the values expected by chance, not of those observed.
        """
        key, s = "expected" if expected else "value", len(self.sites)
        place = {site: i for i, site in enumerate(self.sites)}
        total, count = np.zeros((s, s)), np.zeros((s, s))
        for r in self.rows:
            if r["kind"] == kind and r[key] is not None:
                i, j = place[r["site"]], place[r["other"]]
                total[[i, j], [j, i]] += r[key]
                count[[i, j], [j, i]] += 1
        out = np.divide(total, count, out=np.full((s, s), math.nan), where=count > 0)
        np.fill_diagonal(out, 1.0 if kind == "gradient" else 0.0)
        return out

    def distances(self, kind: str) -> Array:
        """Return √ (S, S) of the divergence, or of 1 − cosine, beyond its value by chance."""
        seen, chance = self.matrix(kind), self.matrix(kind, expected=True)
        beyond = chance - seen if kind == "gradient" else seen - chance
        np.fill_diagonal(beyond, 0.0)
        return np.sqrt(np.maximum(beyond, 0.0))

    def places(self, kind: str) -> tuple[tuple[str, ...], Array, float]:
        """Return sites (m,), their places (m, 2), and the share of `distances` that these show.

        Sites without some distance are left out, the site with most of them missing first.
        """
        d, names = self.distances(kind), list(self.sites)
        while np.isnan(d).any():
            worst = int(np.argmax(np.isnan(d).sum(axis=1)))
            d = np.delete(np.delete(d, worst, 0), worst, 1)
            del names[worst]
        at, share = scaled(d)
        return tuple(names), at, share

    def summary(self) -> list[Row]:
        """Return all rows."""
        return self.rows

    def parameters(self, times: Array) -> list[Row]:
        """Return the matrices, one row per entry; `times` are not used."""
        out: list[Row] = []
        for kind in self.kinds:
            seen, chance = self.matrix(kind), self.matrix(kind, expected=True)
            for i, one in enumerate(self.sites):
                for j in range(i + 1, len(self.sites)):
                    if not math.isnan(seen[i, j]):
                        name = f"{kind}: {one} and {self.sites[j]}"
                        note = f"by chance {chance[i, j]:.3g}"
                        out.append({"name": name, "value": float(seen[i, j]), "note": note})
        return out

    def arrays(self) -> dict[str, Array]:
        """Return the matrix of each kind, and the places of the map."""
        out: dict[str, Array] = {}
        for kind in self.kinds:
            out |= {kind: self.matrix(kind), f"{kind}_map": self.places(kind)[1]}
        return out

    def meta(self) -> dict[str, Any]:
        """Return all attributes."""
        return {
            "sites": list(self.sites),
            "rows": self.rows,
            "level": self.level,
            "left_out": dict(self.left_out),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from the result of `meta`."""
        return cls(
            tuple(meta["sites"]), list(meta["rows"]), float(meta["level"]), dict(meta["left_out"])
        )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
