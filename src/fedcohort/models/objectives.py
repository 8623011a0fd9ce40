"""Objectives: training losses that need more than the slope at a network's outputs.

A `Loss` (`models.losses`) takes a network's outputs (n,) and returns their slope. An `Objective`
takes the module itself, and torch computes the slope. `loss_of` builds both from a plan's `loss`.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.arrays import Array
from fedcohort.models.dec import DecNet
from fedcohort.models.dgd import DgdNet
from fedcohort.models.forest import ForestNet, codes_of
from fedcohort.models.losses import Loss, Worded, built
from fedcohort.models.network import FlatNet
from fedcohort.models.prior import Common
from fedcohort.models.reconstruction import Noise, mixed
from fedcohort.models.representations import Search, represented
from fedcohort.models.savae import Lives, SavaeNet
from fedcohort.models.vae import VaeNet
from fedcohort.models.variational import LatentNet


class Objective(ABC):
    """Interface of an objective."""

    @property
    def informative(self) -> bool:
        """Whether its rows carry information for training."""
        return True

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers besides those of dropout."""
        return False

    @property
    def kinds(self) -> tuple[int, ...] | None:
        """Numbers of rows of each kind (`losses.Loss.kinds`); None if there is no outcome."""
        return None

    @abstractmethod
    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p).

        Parameters
        ----------
        seed : of all draws of a training step; None draws nothing.
        """

    @abstractmethod
    def take(self, rows: Array) -> Self:
        """Return the objective of the rows with these numbers."""

    def pull(self, net: FlatNet, x: Tensor, seed: int = 0) -> float:
        """Write the gradient of a training step into `net.grad`; return the value."""
        return net.descend(lambda module: self(module, x, seed), seed)

    def settle(self, module: nn.Module, x: Tensor) -> None:  # noqa: B027  most have nothing to do
        """Write the parameters that no gradient step moves, after a visit to the rows x (n, p)."""


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective):
    """Eq. (1) of `models.reconstruction`, from inputs with noise.

    Attributes
    ----------
    beta : β in [0, 1]; above 0 the network's output must be a probability (a sigmoid).
    noise : of the inputs in training; the target has none.
    """

    beta: float = 0.0
    noise: Noise = Noise()  # noqa: RUF009  frozen, so sharing is safe

    @property
    def spec(self) -> str:
        """JSON text that determines the objective, for a plan's `loss`."""
        return json.dumps({"kind": "reconstruction", **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers."""
        return self.noise.draws

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p)."""
        seen = x if seed is None else self.noise(x, seed)
        return mixed(module(seen), x, self.beta)

    def pull(self, net: FlatNet, x: Tensor, seed: int = 0) -> float:
        """Write the gradient into `net.grad`: at y by autograd, below by the network's layers."""
        if not net.layered:
            return super().pull(net, x, seed)

        def slope(y: Array) -> tuple[float, Array]:
            with torch.enable_grad():
                leaf = torch.from_numpy(y.reshape(x.shape)).requires_grad_()
                value = mixed(leaf, x, self.beta)
                return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

        return net.pull(self.noise(x, seed), slope, seed)

    def take(self, rows: Array) -> Self:
        """Return itself, because it does not depend on the rows."""
        return self


@dataclass(frozen=True)
class KlObjective(Objective):
    """KL(P‖Q)/n + γL: thesis 003, eq. 2.19, averaged; with γ > 0 the decoder is kept.

    The second term is IDEC's (Guo et al., IJCAI 2017, eq. 7), who write L + KL/γ. The module is of
    kind "dec"; P is fixed. Dropout is the module's own; its spec has 0 for none.

    Attributes
    ----------
    targets : P (n, k), on the network's device, in its type.
    gamma : γ ≥ 0; 0 is DEC, which leaves the decoder of an untied network unchanged.
    reconstruction : L, without its noise.
    """

    targets: Tensor
    gamma: float = 0.0
    reconstruction: Reconstruction = Reconstruction()

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p)."""
        net = cast("DecNet", module)
        z = net.encode(x)
        p = self.targets
        value = (torch.xlogy(p, p) - p * net.log_assign(z)).sum() / len(x)
        if self.gamma:
            value = value + self.gamma * mixed(net.decode(z), x, self.reconstruction.beta)
        return value

    def take(self, rows: Array) -> Self:
        """Return the objective of the rows with these numbers."""
        at = torch.from_numpy(rows).to(self.targets.device)
        return dataclasses.replace(self, targets=self.targets[at])


@dataclass(frozen=True, kw_only=True)
class Elbo(Objective):
    """−ELBO, eq. (3) of `models.vae` or (1) of `models.mcvae`, of a module of these kinds.

    Attributes
    ----------
    beta : β ≥ 0, the weight of the divergence from the prior.
    free_bits : λ ≥ 0 of `models.vae`, in nats; in training steps alone.
    prior : of `models.prior`, given in a round; None for the network's own.
    """

    beta: float = 1.0
    free_bits: float = 0.0
    prior: Common | None = None

    @property
    def spec(self) -> str:
        """JSON text that determines the objective, for a plan's `loss`, without a prior."""
        entries: dict[str, Any] = {"kind": "elbo", "beta": self.beta}
        if self.free_bits:
            entries["free_bits"] = self.free_bits
        return json.dumps(entries, sort_keys=True)

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers: always, z of each row."""
        return True

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p), which may hold NaN."""
        free = 0.0 if seed is None else self.free_bits
        if self.prior is not None:
            return -cast("VaeNet", module).elbo(x, self.beta, seed, free, self.prior).mean()
        return -cast("LatentNet", module).elbo(x, self.beta, seed, free).mean()

    def annealed(self, share: float) -> Self:
        """Return the objective with a share of β."""
        return self if share == 1.0 else dataclasses.replace(self, beta=share * self.beta)

    def take(self, rows: Array) -> Self:
        """Return itself, because it does not depend on the rows."""
        return self


@dataclass(frozen=True, kw_only=True)
class Joint(Objective):
    """Loss of a module of kind "dgd" (`models.dgd`), of given representations or of new rows.

    Attributes
    ----------
    weight, decay : w and λ of eq. (5) there.
    starts, steps : of the search for new rows' representations.
    """

    weight: float = 1.0
    decay: float = 0.0
    starts: int = 5
    steps: int = 100

    @property
    def spec(self) -> str:
        """JSON text that determines the objective, for a plan's `loss`."""
        return json.dumps({"kind": "joint", **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def search(self) -> Search:
        """How representations of new rows are sought."""
        return Search(self.starts, self.steps)

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return −ln p(x, z) (), averaged over new rows x (n, p), each at its own best z."""
        return -represented(cast("DgdNet", module), x, self.search)[1].mean()

    def at(self, module: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        """Return eq. (5) () of rows x (n, p) with the representations z (n, q)."""
        net = cast("DgdNet", module)
        rows = net.log_joint(x, z).mean()
        return self.decay * net.decay() - rows - self.weight * net.log_hyperprior()

    def take(self, rows: Array) -> Self:
        """Return itself, because it does not depend on the rows."""
        return self


@dataclass(frozen=True, kw_only=True)
class SurvivalElbo(Objective):
    """−L, eq. (1) of `models.savae`, of a module of that kind.

    Attributes
    ----------
    lives : times of the rows.
    weight, beta, free_bits : w, β and λ.
    """

    lives: Lives
    weight: float
    beta: float
    free_bits: float

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of events."""
        return (int(self.lives.ends[0].sum()),)

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers: always, z of each row."""
        return True

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p), which may hold NaN."""
        found = cast("SavaeNet", module).survival_elbo(
            x, self.lives.to(x), weight=self.weight, beta=self.beta, seed=seed,
            free_bits=0.0 if seed is None else self.free_bits,
        )  # fmt: skip
        return -found.mean()

    def annealed(self, share: float) -> Self:
        """Return the objective with a share of β."""
        return self if share == 1.0 else dataclasses.replace(self, beta=share * self.beta)

    def take(self, rows: Array) -> Self:
        """Return the objective of the rows with these numbers."""
        at = torch.from_numpy(rows)
        return dataclasses.replace(self, lives=self.lives.take(at))


def lifted(weight: float, beta: float, free_bits: float) -> str:
    """Return the name of `SurvivalElbo` but for the unit of the times, and the edges in it."""
    return f"savae {weight!r} {beta!r} {free_bits!r}"


@dataclass(frozen=True)
class InTimes(Worded):
    """Of any unit above 0, and `parts` − 1 edges that ascend from above 0 (`lifted`).

    Attributes
    ----------
    parts : J, or 0 for no edges.
    """

    parts: int

    def allows(self, numbers: Sequence[float]) -> bool:
        """Return whether these are a unit and edges."""
        unit, *edges = numbers
        ascend = all(a < b for a, b in pairwise((0.0, *edges)))
        return unit > 0 and len(edges) == max(self.parts - 1, 0) and ascend


@dataclass(frozen=True)
class ForestLikelihood(Objective):
    """Loss of a forest, −(1/T) Σ log p(y | x; tree) of `models.forest`, of a module of that kind.

    Attributes
    ----------
    targets : outcomes (n,), standardised, or by `models.forest.codes_of`.
    """

    targets: Tensor

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows; of survival of deaths, which have the odd codes."""
        y = self.targets
        return (len(y) if y.is_floating_point() else int((y % 2).sum()),)

    def __call__(self, module: nn.Module, x: Tensor, seed: int | None = None) -> Tensor:
        """Return the value (), averaged over the rows of x (n, p)."""
        return -cast("ForestNet", module).log_likelihood(x, self.targets).mean()

    def take(self, rows: Array) -> Self:
        """Return the objective of the rows with these numbers."""
        return type(self)(self.targets[torch.from_numpy(rows)])

    def settle(self, module: nn.Module, x: Tensor) -> None:
        """Write the leaves."""
        cast("ForestNet", module).settle(x, self.targets)


def lifetimes(times: Array) -> str:
    """Return the name of a forest's loss of survival, on a grid of times (K,).

    All who leave in an interval are at risk until its end (`numerics.survival.slots`).
    """
    return " ".join(["lifetimes", *map(repr, times.tolist())])


def times_of(loss: str) -> Array:
    """Return the times (K,) of a loss's name; (0,) of other losses."""
    model, *numbers = loss.split(" ")
    return np.array(numbers if model == "lifetimes" else (), float)


@dataclass(frozen=True)
class Regridded(Worded):
    """Of any grid of times above 0 (`lifetimes`).

    Attributes
    ----------
    most : largest number of times.
    """

    most: int

    def allows(self, numbers: Sequence[float]) -> bool:
        """Return whether these are times, strictly increasing."""
        return len(numbers) <= self.most and all(a < b for a, b in pairwise((0.0, *numbers)))


def _values(numbers: Sequence[str], table: Any) -> ForestLikelihood:
    centre, scale = map(float, numbers or ("0", "1"))
    return ForestLikelihood(torch.from_numpy((np.asarray(table.y, float) - centre) / scale))


def _lifetimes(numbers: Sequence[str], table: Any) -> ForestLikelihood:
    codes = codes_of(table.time, table.event, np.array(numbers, float), together=True)
    return ForestLikelihood(torch.from_numpy(codes))


def _survival_elbo(numbers: Sequence[str], table: Any) -> SurvivalElbo:
    weight, beta, free_bits, unit, *edges = map(float, numbers)
    time, event = (torch.from_numpy(np.asarray(a, float)) for a in (table.time, table.event))
    lives = Lives.of(time / unit, event, torch.tensor(edges, dtype=torch.float64))
    return SurvivalElbo(lives=lives, weight=weight, beta=beta, free_bits=free_bits)


#: Objectives with an outcome, by the first word of their name (`losses.scaled`, `lifetimes`,
#: `lifted`): functions of the other words and the table.
OF_OUTCOMES: Mapping[str, Callable[[Sequence[str], Any], Objective]] = {
    "leaves": _values, "lifetimes": _lifetimes, "savae": _survival_elbo,
}  # fmt: skip


def _reconstruction(entries: Mapping[str, Any]) -> Reconstruction:
    noise = dict(entries["noise"])
    noise["frequencies"] = tuple(noise["frequencies"])
    return Reconstruction(beta=entries["beta"], noise=Noise(**noise))


#: Objectives by the kind in their spec: functions of the spec.
OBJECTIVES: Mapping[str, Callable[[Mapping[str, Any]], Objective]] = {
    "reconstruction": _reconstruction,
    "elbo": lambda entries: Elbo(beta=entries["beta"], free_bits=entries.get("free_bits", 0.0)),
    "joint": lambda entries: Joint(**{k: v for k, v in entries.items() if k != "kind"}),
}


def loss_of(text: str, table: Any) -> Loss | Objective:
    """Return the loss of a table.

    Parameters
    ----------
    text : a name that `losses.built` knows or of `OF_OUTCOMES`, or the spec of an objective, a JSON
        text with its kind.
    """
    model, *numbers = text.split(" ")
    if model in OF_OUTCOMES:
        return OF_OUTCOMES[model](numbers, table)
    return _objective(text) if text.startswith("{") else built(text, table)


@lru_cache(maxsize=64)
def _objective(text: str) -> Objective:
    entries = json.loads(text)
    return OBJECTIVES[entries["kind"]](entries)
