"""A fitted forest, or a weighted mean of several, for values or times to an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.protocol import NotSupported
from fedcohort.training.networks.refined import MappedModel
from fedcohort.training.settings import kept_at_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class ForestModel(MappedModel):
    """Σ_m w_m f_m(x), with the predictions f_m of forests (`models.forest`).

    Attributes
    ----------
    thetas : (M, P) their parameters; M is the number of sites for an ensemble, otherwise 1.
    weights : w (M,), with sum 1.
    centre, scale : of a value, in its unit.
    times : of survival, ends of the intervals (K,) up to the last at which it is estimated; (0,)
        of a value.
    rounds : number of rounds; smaller than the setting if training stopped early; 0 in a model
        that a site keeps.
    kept : the models after earlier rounds.
    every : whether each site keeps a model of its own; this one then has the common parameters,
        and predicts nothing.
    """

    thetas: Array
    weights: Array
    centre: float
    scale: float
    times: Array
    rounds: int
    kept: Mapping[int, ForestModel] = field(default_factory=dict[int, "ForestModel"])
    every: bool = False

    def predict(self, x: Array) -> Array:
        """Return the value (n,) of each row of x (n, p), or its risk, eq. (3) of `program`.

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        found = self._outputs(x)
        if not len(self.times):
            return self.centre + self.scale * found[:, 0]
        return -np.log(found).sum(axis=1)

    def log_hazard(self, x: Array) -> Array:
        """Return the logarithm of the summed cumulative hazard (n,) of each row of x (n, p).

        With H(t | x) = H₀(t) e^f it is f and a constant. A sum below the rounding of K survival
        probabilities counts as this rounding.
        """
        rounding = len(self.times) * np.finfo(float).eps
        return np.log(np.maximum(self.predict(x), rounding))

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) (n, m) of each row of x (n, p) at each of `times` (m,).

        Raises
        ------
        NotSupported : the outcome is a value; or each site keeps a model of its own.
        """
        if not len(self.times):
            raise NotSupported("predict_survival")
        found = np.column_stack([np.ones(len(x)), self._outputs(x)])
        return found[:, np.searchsorted(self.times, times, side="right")]

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.full(len(x), self.times[-1] if len(self.times) else np.inf)

    def _outputs(self, x: Array) -> Array:
        """Return Σ_m w_m f_m (n, 1) of a value, or the survival at `times` (n, K)."""
        if self.every:
            raise NotSupported(kept_at_sites("regression_forest"))
        net = network(self.network)
        held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
        total = np.zeros((len(x), 1))
        for theta, weight in zip(self.thetas, self.weights, strict=True):
            net.load(theta)
            total = total + weight * net.outputs(held).reshape(len(x), -1)
        return total[:, : len(self.times) or 1]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        own = {"thetas": self.thetas, "weights": self.weights, "times": self.times}
        own |= self.map_arrays
        return own | {f"round{r}.thetas": model.thetas for r, model in self.kept.items()}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "network": self.network,
            "centre": self.centre,
            "scale": self.scale,
            "rounds": self.rounds,
            "kept": sorted(self.kept),
            **({"every": True} if self.every else {}),
            **self.map_meta,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        given: dict[str, Any] = {**meta, "features": tuple(meta["features"])}
        given |= {"weights": arrays["weights"], "times": arrays["times"]}
        given |= cls.map_of(arrays, meta)

        def stage(prefix: str, rounds: int, kept: Mapping[int, ForestModel]) -> Self:
            own = dict(given)
            own |= {"thetas": arrays[f"{prefix}thetas"], "rounds": rounds, "kept": kept}
            return cls(**own)

        kept = {r: stage(f"round{r}.", r, {}) for r in meta["kept"]}
        return stage("", meta["rounds"], kept)
