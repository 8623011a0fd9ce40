"""A fitted network, or a weighted mean of several, for classes, values or counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.models.predictor import predicted
from fedcohort.protocol import NotSupported
from fedcohort.training.networks.refined import MappedModel
from fedcohort.training.settings import kept_at_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuralModel(MappedModel):
    """Σ_m w_m g(f_m(x)), with the networks' outputs f_m.

        logistic   g(f) = 1/(1 + e^−f), the probability of class 1
        softmax    g(f)_k = e^f_k / Σ_c e^f_c, of class k
        linear     g(f) = centre + scale f
        poisson    g(f) = scale e^f

    Attributes
    ----------
    levels : classes in the order of their numbers (K,); () without.
    model : one of the four.
    thetas : (M, P) their parameters; M is the number of sites for an ensemble, otherwise 1.
    weights : w (M,), with sum 1.
    centre, scale : in the outcome's unit.
    rounds : number of rounds; smaller than the setting if training stopped early; 0 in a model
        that a site keeps.
    absent : classes without a record.
    kept : the models after earlier rounds.
    every : name of the method if each site keeps a model of its own; this one then has the common
        parameters, and predicts nothing. Otherwise "".
    """

    levels: tuple[str, ...]
    model: str
    thetas: Array
    weights: Array
    centre: float
    scale: float
    rounds: int
    absent: tuple[str, ...] = ()
    kept: Mapping[int, NeuralModel] = field(default_factory=dict[int, "NeuralModel"])
    every: str = ""

    def predict(self, x: Array) -> Array:
        """Return the prediction for each row of x (n, p).

        The probability of class 1 (n,), of each of K > 2 classes (n, K), the value or the count
        (n,).

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        if self.every:
            raise NotSupported(kept_at_sites(self.every))
        net = network(self.network)
        held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
        total = 0.0
        for theta, weight in zip(self.thetas, self.weights, strict=True):
            net.load(theta)
            total = total + weight * predicted(self.model, net.outputs(held))
        return self.centre + self.scale * np.asarray(total)

    def cautions(self) -> tuple[str, ...]:
        """Return the classes without a record."""
        named = ", ".join(map(repr, self.absent))
        return (f"no record is of class {named}: its probability is a guess",) * bool(named)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        own = {"thetas": self.thetas, "weights": self.weights}
        own |= self.map_arrays
        return own | {f"round{r}.thetas": model.thetas for r, model in self.kept.items()}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "levels": list(self.levels),
            "model": self.model,
            "network": self.network,
            "centre": self.centre,
            "scale": self.scale,
            "rounds": self.rounds,
            "absent": list(self.absent),
            "kept": sorted(self.kept),
            **({"every": self.every} if self.every else {}),
            **self.map_meta,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        given: dict[str, Any] = {**meta, "weights": arrays["weights"]}
        given |= cls.map_of(arrays, meta)
        for name in ("features", "levels", "absent"):
            given[name] = tuple(meta[name])

        def stage(prefix: str, rounds: int, kept: Mapping[int, NeuralModel]) -> Self:
            own = dict(given)
            own |= {"thetas": arrays[f"{prefix}thetas"], "rounds": rounds, "kept": kept}
            return cls(**own)

        kept = {r: stage(f"round{r}.", r, {}) for r in meta["kept"]}
        return stage("", meta["rounds"], kept)
