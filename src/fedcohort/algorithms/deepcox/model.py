"""A fitted DeepCox model: one network, or a weighted mean of several, and a baseline hazard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import NotSupported
from fedcohort.training.networks.fits import StagedModel
from fedcohort.training.settings import kept_at_sites


@dataclass(frozen=True)
class DeepCoxModel(StagedModel):
    """log h(t | x) = log h₀(t) + Σ_m w_m f_m(x) − c.

    The likelihood does not determine a constant. c is the mean of Σ_m w_m f_m over all rows of the
    sites, so that scores of different fits (the folds of a tuning) can be compared.

    Attributes
    ----------
    network : spec of the networks f_m.
    thetas : (M, P) their parameters; M is the number of sites for an ensemble, otherwise 1.
    weights : w (M,), with sum 1.
    centre : c, in log hazard.
    baseline : Breslow's, of all rows; None in some private fits.
    rounds : number of rounds; smaller than the setting if training stopped early; 0 in a model
        that a site keeps.
    kept : the models after earlier rounds.
    every : whether each site keeps a model of its own; this one has the common parameters, and
        predicts nothing.
    """

    network: str
    thetas: Array
    weights: Array
    centre: float
    baseline: Baseline | None
    rounds: int
    kept: Mapping[int, DeepCoxModel] = field(default_factory=dict[int, "DeepCoxModel"])
    every: bool = False

    def predict(self, x: Array) -> Array:
        """Return the log risk (n,) of each row of x (n, p), relative to the mean.

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        if self.every:
            raise NotSupported(kept_at_sites("deepcox"))
        net = network(self.network)
        held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
        risk = np.full(len(held), -self.centre)
        for theta, weight in zip(self.thetas, self.weights, strict=True):
            net.load(theta)
            risk += weight * net.outputs(held)
        return risk

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) (n, m) of each row of x (n, p) at each of `times` (m,).

        Raises
        ------
        NotSupported : a private fit without usual times has no baseline.
        """
        if self.every:
            raise NotSupported(kept_at_sites("deepcox"))
        if self.baseline is None and not self.rounds:
            raise NotSupported(
                "this site's own model has no baseline hazard, for lack of deaths here, and "
                "predicts only risks."
            )
        if self.baseline is None:
            raise NotSupported(
                "this private fit of 'deepcox' has no baseline hazard and predicts only risks; to "
                "protect records and have one, give the time column 'usual: [0, horizon]'."
            )
        return self.baseline.survival(self.predict(x), np.asarray(times, float))

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.full(len(x), np.inf if self.baseline is None else self.baseline.end)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        own = {
            "thetas": self.thetas,
            "weights": self.weights,
            "centre": np.array(self.centre),
        }
        if self.baseline is not None:
            own |= {"times": self.baseline.times, "cumulative": self.baseline.cumulative}
        for r, model in self.kept.items():
            own |= {f"round{r}.{name}": a for name, a in model.arrays().items()}
        return own

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        found: dict[str, Any] = {"network": self.network, "rounds": self.rounds}
        return found | {"kept": sorted(self.kept)} | ({"every": True} if self.every else {})

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""

        def stage(prefix: str, rounds: int, kept: Mapping[int, DeepCoxModel]) -> Self:
            a = {k: arrays[prefix + k] for k in ("thetas", "weights")}
            baseline = None
            if prefix + "times" in arrays:
                baseline = Baseline(arrays[prefix + "times"], arrays[prefix + "cumulative"])
            centre = float(arrays[prefix + "centre"])
            every = bool(meta.get("every"))
            return cls(
                meta["network"], a["thetas"], a["weights"], centre, baseline, rounds, kept, every
            )

        return stage("", meta["rounds"], {r: stage(f"round{r}.", r, {}) for r in meta["kept"]})
