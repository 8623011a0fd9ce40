"""A table with one draw of its missing values, as a view of a site's table.

Draws are made at the site. Their seed is the study's, the number of the table, and a hash of the
site's rows, so that sites draw independently and a repeated call draws the same. The features of
imputation contain the outcome, as they must for unbiased coefficients (Moons et al., J. Clin.
Epidemiol. 59(10), 2006); of survival, the event and the cumulative hazard at the time (White,
Royston, Stat. Med. 28(15), 2009). Nothing is revealed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.imputing.chained import Chain
from fedcohort.data.imputing.normal import Normals
from fedcohort.data.imputing.values import completed, values_of
from fedcohort.data.prepare import Design, Table, heads_from, plain_heads
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol.views import view

#: What draws missing values.
Drawing = Chain | Normals


@view("imputed")
@dataclass(frozen=True, eq=False)
class ImputedView:
    """View of a table: a design's features and outcome, after one draw of missing values.

    Attributes
    ----------
    design : of the analysis.
    features : design of the imputation: the same columns and the outcome, as features.
    drawing : distribution of the missing values, with known parameters.
    seed, number : of the study, and of the table.
    """

    design: Design
    features: Design
    drawing: Drawing
    seed: int
    number: int

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        plain = {
            "design": self.design.spec,
            "features": self.features.spec,
            "drawing": plain_drawing(self.drawing),
            "seed": self.seed,
            "number": self.number,
        }
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild a view from `spec`."""
        plain = json.loads(text)
        return cls(
            Design.from_spec(plain["design"]),
            Design.from_spec(plain["features"]),
            drawing_from(plain["drawing"]),
            int(plain["seed"]),
            int(plain["number"]),
        )

    def __call__(self, frame: pd.DataFrame, /) -> Table:
        """Return the table that programs use, without missing values."""
        found = self.features(frame)
        assert isinstance(found, FeatureTable)
        own = int.from_bytes(blake2b(found.x.tobytes(), digest_size=8).digest(), "big")
        rng = np.random.default_rng((self.seed, self.number, own))
        return self.design(completed(frame, self.table(self.drawing.drawn(found.x, rng))))

    def table(self, x: Array) -> pd.DataFrame:
        """Return the columns of the analysis from features x (n, p) of the imputation."""
        whole = values_of(self.features, x)
        return whole[[c.name for c in self.design.columns if c.name in whole]]


def plain_drawing(drawing: Drawing) -> dict[str, Any]:
    """Return a distribution of missing values as JSON-able values."""
    heads = plain_heads(drawing.heads)
    if isinstance(drawing, Normals):
        return {
            "heads": heads, "mean": drawing.mean.tolist(),
            "covariance": drawing.covariance.tolist(),
        }  # fmt: skip
    return {
        "heads": heads, "uses": [u.tolist() for u in drawing.uses],
        "coefficients": [c.tolist() for c in drawing.coefficients],
        "spread": drawing.spread.tolist(),
    }  # fmt: skip


def drawing_from(plain: dict[str, Any]) -> Drawing:
    """Return the distribution of `plain_drawing`, also after JSON."""
    heads = heads_from(plain["heads"])
    if "mean" in plain:
        return Normals(heads, np.array(plain["mean"]), np.array(plain["covariance"]))
    coefficients = tuple(np.array(c) for c in plain["coefficients"])
    uses = tuple(np.array(u, np.int64) for u in plain["uses"])
    return Chain(heads, uses, coefficients, np.array(plain["spread"]))
