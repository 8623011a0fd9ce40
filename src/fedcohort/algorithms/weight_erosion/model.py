"""Fitted Weight Erosion: a network, or coefficients, and each site's final weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.predictor import Predictor, baseline_arrays, baseline_of
from fedcohort.protocol import Row


@dataclass(frozen=True, kw_only=True, eq=False)
class ErosionModel(Predictor):
    """A model for one site.

    Attributes
    ----------
    user : the site that the model is for.
    alpha : final weight of each site that took part; the user's is 1.
    rounds : of the fit. flat : rounds without a step (`erosion.Eroded`).
    alone : site → rounds in which it was left out as the last one with a weight.
    """

    user: str
    alpha: Mapping[str, float]
    rounds: int
    flat: int
    alone: Mapping[str, int]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, if any, and each site's final weight."""
        rows = self._intercept_rows()
        for site, alpha in sorted(self.alpha.items()):
            note = "the site that the model is for" if site == self.user else "1 at the start"
            rows.append({"name": f"weight of {site}", "value": alpha, "note": note})
        return rows

    def others(self) -> list[Row]:
        """Return each other site's final α, the largest first."""
        ranked = sorted(self.alpha.items(), key=lambda one: (-one[1], one[0]))
        return [
            {"site": site, "measure": "weight α", "value": alpha, "chosen": alpha > 0}
            for site, alpha in ranked
            if site != self.user
        ]

    def cautions(self) -> tuple[str, ...]:
        """Return the sites that were left out, and whether the user's gradient was 0."""
        notes = [
            f"site {site!r} was left out of {n} of {self.rounds} rounds, in which it was the last "
            f"with a weight besides the user's"
            for site, n in sorted(self.alone.items())
        ]
        if self.flat:
            notes.append(
                f"{self.flat} of {self.rounds} rounds changed nothing: the user's gradient was 0, "
                f"or steps led back to an earlier model"
            )
        return tuple(notes)

    def arrays(self) -> dict[str, Array]:
        """Return θ, and α of each site in the order of names."""
        alpha = np.array([a for _, a in sorted(self.alpha.items())])
        return {"theta": self.theta, "alpha": alpha, **baseline_arrays(self.baseline)}

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and the course of the fit."""
        names = ("model", "network", "user", "rounds", "flat")
        lists: dict[str, Any] = {
            "features": list(self.features), "levels": list(self.levels),
            "sites": sorted(self.alpha),
        }  # fmt: skip
        return lists | {"alone": dict(self.alone)} | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given = dict(meta)
        sites, features = given.pop("sites"), tuple(given.pop("features"))
        levels = tuple(given.pop("levels", ()))
        alpha = dict(zip(sites, arrays["alpha"].tolist(), strict=True))
        baseline = baseline_of(arrays)
        return cls(
            features=features,
            levels=levels,
            theta=arrays["theta"],
            alpha=alpha,
            baseline=baseline,
            **given,
        )
