"""What a DeepCox fit is: one network or a vote of several, and a baseline hazard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Fitted, NotSupported


@dataclass(frozen=True)
class DeepCoxModel(Fitted):
    """log h(t | x) = log h₀(t) + Σ_m w_m f_m(x) − c.

    The likelihood leaves a constant open; c is the mean of Σ_m w_m f_m over all rows of the sites,
    so that the scores of different fits, such as the folds of a tuning, compare.

    Attributes
    ----------
    network : spec of the networks f_m.
    thetas : (M, P) their parameters; M = 1 but for an ensemble, where it is the number of sites.
    weights : w (M,), summing to 1.
    centre : c, in log hazard.
    baseline : Breslow's, of the rows that the model was trained on; None of some private fits.
    rounds : how many were run; fewer than asked for where training stopped early.
    kept : the models after earlier rounds.
    """

    network: str
    thetas: Array
    weights: Array
    centre: float
    baseline: Baseline | None
    rounds: int
    kept: Mapping[int, DeepCoxModel] = field(default_factory=dict[int, "DeepCoxModel"])

    def predict(self, x: Array) -> Array:
        """Return the log risk of each row of x (n, p) over the mean: (n,); higher dies sooner."""
        net = network(self.network)
        held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
        risk = np.full(len(held), -self.centre)
        for theta, weight in zip(self.thetas, self.weights, strict=True):
            net.load(theta)
            risk += weight * net.outputs(held)
        return risk

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m).

        Raises
        ------
        NotSupported : the fit was differentially private, and no times are usual.
        """
        if self.baseline is None:
            raise NotSupported(
                "this private fit of 'deepcox' has no baseline hazard, and predicts risks alone; "
                "to protect records and have one, give the time column 'usual: [0, horizon]'."
            )
        return self.baseline.survival(self.predict(x), np.asarray(times, float))

    def known_until(self, x: Array) -> Array:
        """Return the time up to which the fit knows the survival of each row of x (n, p): (n,)."""
        return np.full(len(x), np.inf if self.baseline is None else self.baseline.end)

    def at_round(self, rounds: int) -> DeepCoxModel:
        """Return what a fit of so many rounds would have given.

        Raises
        ------
        NotSupported : the fit did not keep that round; those kept are named.
        """
        if rounds >= self.rounds:
            return self
        if rounds not in self.kept:
            raise NotSupported(
                f"this fit kept the models after rounds {sorted(self.kept)} and {self.rounds}, not "
                f"after {rounds}. Name the rounds you want in the setting 'keep_rounds'."
            )
        return self.kept[rounds]

    def arrays(self) -> dict[str, Array]:
        """Return all numbers of the model and of those kept, by name."""
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
        """Return the network's spec and the numbers of rounds."""
        return {"network": self.network, "rounds": self.rounds, "kept": sorted(self.kept)}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""

        def stage(prefix: str, rounds: int, kept: Mapping[int, DeepCoxModel]) -> Self:
            a = {k: arrays[prefix + k] for k in ("thetas", "weights")}
            baseline = None
            if prefix + "times" in arrays:
                baseline = Baseline(arrays[prefix + "times"], arrays[prefix + "cumulative"])
            centre = float(arrays[prefix + "centre"])
            return cls(meta["network"], a["thetas"], a["weights"], centre, baseline, rounds, kept)

        return stage("", meta["rounds"], {r: stage(f"round{r}.", r, {}) for r in meta["kept"]})
