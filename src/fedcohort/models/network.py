"""Networks whose parameters are one flat vector θ (P,).

Messages and optimisers use only θ. The torch module's parameters and gradients are views into two
buffers, so a training step copies no state dictionary: it writes θ, runs the module, and reads ∇θ.
A perceptron on the processor computes in NumPy (`models.perceptrons`), in the same buffers.

A network is identified by its spec, a JSON text, from which every site builds the same module.
Built modules are cached per thread; θ is written before each use.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from threading import get_ident
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.arrays import Array, Product
from fedcohort.models.autoencoder import Autoencoder, AutoencoderNet
from fedcohort.models.bayes import Bayes, Noisy
from fedcohort.models.conv import Conv, ConvNet
from fedcohort.models.dec import Dec
from fedcohort.models.dgd import Dgd, DgdNet
from fedcohort.models.forest import Forest, ForestNet, Leaves
from fedcohort.models.layers import PIECE, Flat, Seeded, SeededDropout, dense
from fedcohort.models.mcvae import Mcvae
from fedcohort.models.perceptrons import Perceptron
from fedcohort.models.prior import LearntMixture
from fedcohort.models.radial import Radial
from fedcohort.models.savae import Savae
from fedcohort.models.vae import Vae

#: Value (a number) and slope (same shape) of a loss at a network's outputs, (n,) or (n, K).
Slope = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """A perceptron: inputs – hidden widths – outputs.

    Attributes
    ----------
    inputs : p, number of covariates.
    hidden : widths of the hidden layers, first to last.
    activation : one of `ACTIVATIONS`, after each hidden layer.
    dropout : probability that a hidden unit is dropped in a training step.
    intercept : the output has a bias. A partial likelihood does not depend on it: its gradient
        would be rounding noise, which Adam would turn into a random walk.
    outputs : K, number of outputs.
    """

    inputs: int
    hidden: tuple[int, ...] = (8, 4)
    activation: str = "tanh"
    dropout: float = 0.0
    intercept: bool = True
    outputs: int = 1

    @property
    def spec(self) -> str:
        """JSON text that determines the network; one output is not written."""
        entries = {"kind": "mlp", **dataclasses.asdict(self)}
        if self.outputs == 1:
            del entries["outputs"]
        return json.dumps(entries, sort_keys=True)

    @property
    def sizes(self) -> tuple[int, ...]:
        """p, the hidden widths, K."""
        return (self.inputs, *self.hidden, self.outputs)

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        biases = sum(self.sizes[1:]) - (0 if self.intercept else self.outputs)
        return sum(a * b for a, b in pairwise(self.sizes)) + biases

    def build(self) -> nn.Module:
        """Return the module with uninitialised parameters."""
        return PerceptronNet(self)


@lru_cache(maxsize=64)
def shape_of(spec: str) -> Mlp | None:
    """Return the perceptron of a spec, if it has one output and no dropout; else None."""
    entries: dict[str, Any] = json.loads(spec)
    if entries.pop("kind") != "mlp":
        return None
    found = Mlp(hidden=tuple(entries.pop("hidden")), **entries)
    return found if found.outputs == 1 and not found.dropout else None


class PerceptronNet(nn.Sequential):
    """The module of an `Mlp`, which it knows."""

    def __init__(self, of: Mlp):
        super().__init__(
            *dense(of.inputs, of.hidden, of.activation, of.dropout, of.outputs, of.intercept)
        )
        self.of = of


#: Kinds of network by the name in their spec: functions of the spec's other entries. A "forest" and
#: a "bayes" stand on one of these, whose spec is their "base".
NETWORKS: dict[str, Callable[..., Any]] = {
    "mlp": Mlp, "conv": Conv, "autoencoder": Autoencoder, "dec": Dec, "vae": Vae, "mcvae": Mcvae,
    "dgd": Dgd, "radial": Radial, "savae": Savae,
}  # fmt: skip


class FlatNet:
    """A module that computes from one flat vector.

    Attributes
    ----------
    theta, grad : (P,), buffers of the module's parameters and gradients.
    first : positions of the first layer's weights in θ, without its bias; with several images, of
        the first one's.
    by_column : whether each of these belongs to one column of x; not in a convolution.
    block : rows whose outputs are computed at once; None for all.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, device: str):
        self.module = module.to(dtype).to(device)
        parameters = self._parameters = list(self.module.parameters())
        self._slopes: list[Tensor] = []
        size = sum(p.numel() for p in parameters)
        self.theta = torch.zeros(size, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.theta)
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = self.theta[start:stop].view(p.shape)
            p.grad = self.grad[start:stop].view(p.shape)
            self._slopes.append(p.grad)
            start = stop
        self.first = slice(0, parameters[0].numel())
        self.by_column = not any(isinstance(m, ConvNet) for m in module.modules())
        self.block = module.block if isinstance(module, (ConvNet, ForestNet)) else None
        self._kind = np.dtype(str(dtype).removeprefix("torch."))
        self._drawing = [m for m in self.module.modules() if isinstance(m, Seeded)]
        noisy = [m for m in self._drawing if isinstance(m, Noisy)]
        writing = [m for m in noisy if m.can_write]
        written = sum(p.numel() for m in writing for p in m.parameters())
        self._writing = writing if written == size else []
        self._own = None
        if type(module) is PerceptronNet and not noisy and self.theta.is_cpu:
            of = module.of
            self._own = Perceptron(
                _numpy(self.theta)[None], _numpy(self.grad)[None], of.sizes, of.activation,
                of.intercept,
            )  # fmt: skip
        net = module if type(module) is AutoencoderNet and self.theta.is_cpu else None
        self._layered = net if net is not None and net.by_layers else None
        self.module.eval()

    @property
    def layered(self) -> bool:
        """Whether `pull` takes an autoencoder's gradient layer by layer, without autograd."""
        return self._layered is not None

    @property
    def draws(self) -> bool:
        """Whether a training step draws random numbers."""
        return bool(self._drawing)

    def load(self, theta: Array) -> None:
        """Write θ (P,) into the buffer."""
        if self.theta.is_cpu:
            _numpy(self.theta)[:] = theta
        else:
            self.theta.copy_(torch.from_numpy(theta))

    def read(self) -> Array:
        """Return a copy of θ (P,), as float64."""
        return _numpy(self.theta).astype(np.float64)

    def times(self, n: float) -> Array:
        """Return n θ (P,), float64; of more than `PIECE` numbers as a `Product` of this buffer,
        which the next `load` changes.
        """
        theta = _numpy(self.theta)
        if theta.size > PIECE:
            return cast("Array", Product(theta, n))
        return theta.astype(np.float64) * n

    def gradient(self) -> Array:
        """Return a copy of `grad` (P,), as float64."""
        return _numpy(self.grad).astype(np.float64)

    def outputs(self, x: Tensor) -> Array:
        """Return the outputs (n,), or (n, K) of K > 1, for x (n, p), without dropout."""
        if self._own is not None:
            return _by_row(self._own.forward(_columns(x)).out[0])
        with torch.no_grad():
            if self.block is None or len(x) <= self.block:
                return _shown(self.module(x))
            return np.concatenate([_shown(self.module(part)) for part in x.split(self.block)])

    def sampled(self, x: Tensor, seed: int) -> Array:
        """Return the outputs, as `outputs` does, that `pull` with the same seed uses."""
        if self._own is not None:
            return _by_row(self._own.forward(_columns(x), self._masks(len(x), seed)).out[0])
        self._sow(seed)
        out = self.outputs(x)
        self.module.eval()
        return out

    def pull(self, x: Tensor, slope: Slope, seed: int = 0) -> float:
        """Write Σ_j s_j ∇f(x_j) into `grad`, with s the slope at f; return the value there.

        f and s are (n,), or (n, K) of K > 1 outputs, whose products are added too.
        """
        if self._own is not None:
            passed = self._own.forward(_columns(x), self._masks(len(x), seed))
            value, s = slope(_by_row(passed.out[0]))
            self._own.backward(passed, self._by_output(s)[None])
            return value
        if not (self._writing or self._layered):
            self.grad.zero_()
        if self._drawing:
            self._sow(seed)
        if self._layered is not None:
            with torch.no_grad():
                y, passed = self._layered.passed(x)
                value, s = slope(_shown(y))
                self._layered.back(passed, torch.from_numpy(s.reshape(y.shape)).to(y))
            if self._drawing:
                self.module.eval()
            return value
        for layer in self._writing:
            layer.writes = True
        out = self.module(x)
        value, s = slope(_shown(out.detach()))
        out.backward(torch.from_numpy(s.reshape(out.shape)).to(out))
        for layer in self._writing:
            layer.writes = False
        if self._drawing:
            self.module.eval()
        return value

    def descend(self, value: Callable[[nn.Module], Tensor], seed: int = 0) -> float:
        """Write ∇θ of a value () of the module in training into `grad`; return the value.

        Slopes are copied: adding them to zeros, as `backward` does, takes twice as long.

        Parameters
        ----------
        seed : of dropout.
        """
        if self._drawing:
            self._sow(seed)
        found = value(self.module)
        self._write(torch.autograd.grad(found, self._parameters, allow_unused=True))
        if self._drawing:
            self.module.eval()
        return found.item()

    def descend_with(
        self, value: Callable[[nn.Module], Tensor], beside: Tensor
    ) -> tuple[float, Tensor]:
        """Write ∇θ of a value () into `grad`; return the value, and its slope in `beside`.

        Parameters
        ----------
        beside : a leaf on which the value depends, too.
        """
        found = value(self.module)
        *slopes, last = torch.autograd.grad(found, [*self._parameters, beside], allow_unused=True)
        self._write(slopes)
        return found.item(), last

    def _write(self, slopes: Sequence[Tensor]) -> None:
        known = cast("Sequence[Tensor | None]", slopes)  # None: the value does not depend on it
        for here, slope in zip(self._slopes, known, strict=True):
            if slope is None:
                here.zero_()
            else:
                here.copy_(slope)

    def compute(self, of: Callable[[nn.Module], Tensor]) -> Array:
        """Return a function of the module, without dropout and gradient."""
        with torch.no_grad():
            return _numpy(of(self.module))

    def jacobian(self, x: Tensor) -> Array:
        """Return ∇f(x_j) (n, P) of one output, float64, for x (n, p), without dropout."""
        return self._of_rows(x, torch.ones(len(x), 1).to(x))

    def pulls(self, x: Tensor, s: Array) -> Array:
        """Return s_j ∇f(x_j) (n, P) of each row of x (n, p), without dropout, as float64.

        s is (n,), or (n, K) of K > 1 outputs, whose products are added.
        """
        if s.ndim == 1:
            return self.jacobian(x) * s[:, None]
        return self._of_rows(x, torch.from_numpy(s).to(x))

    def _of_rows(self, x: Tensor, weights: Tensor) -> Array:
        """Return ∇ Σ_k w_jk f_k(x_j) (n, P) of each row, with weights w (n, K)."""
        if self._own is not None:
            found = self._own.by_row(self._own.forward(_columns(x)), weights.numpy().T[None])
            return found.astype(np.float64, copy=False)
        named = {k: p.detach() for k, p in self.module.named_parameters()}

        def output(parameters: dict[str, Tensor], row: Tensor, weight: Tensor) -> Tensor:
            return torch.func.functional_call(self.module, parameters, (row[None],))[0] @ weight

        found = torch.func.vmap(torch.func.grad(output), in_dims=(None, 0, 0))(named, x, weights)
        flat = torch.cat([g.reshape(len(x), -1) for g in found.values()], dim=1)
        return _numpy(flat).astype(np.float64)

    def _masks(self, n: int, seed: int) -> list[Array]:
        """Return the factors (units, n) of dropout in each hidden layer; none without dropout."""
        found: list[Array] = []
        for k, layer in enumerate(self._drawing):
            layer.generator.manual_seed(seed + k)
            units = cast("PerceptronNet", self.module).of.hidden[k]
            factors = cast("SeededDropout", layer).factors(self.theta, n, units)
            found.append(_numpy(factors).T)
        return found

    def _by_output(self, s: Array) -> Array:
        """Return slopes (n,) or (n, K) as (K, n), in the type of θ."""
        rows = s[None] if s.ndim == 1 else s.T
        return rows.astype(self._kind, copy=False)

    def _sow(self, seed: int) -> None:
        for k, layer in enumerate(self._drawing):
            layer.train()
            layer.generator.manual_seed(seed + k)


def _numpy(t: Tensor) -> Array:
    return t.cpu().numpy()


def _shown(out: Tensor) -> Array:
    """Return outputs (n, K) as an array; (n,) of one."""
    found = _numpy(out)
    return found[:, 0] if found.shape[1] == 1 else found


def _columns(x: Tensor) -> Array:
    """Return xᵀ (1, p, n) of a table x (n, p)."""
    return x.numpy().T[None]


def _by_row(out: Array) -> Array:
    """Return outputs (K, n) as (n,) of one, or (n, K)."""
    return out[0] if len(out) == 1 else out.T


def network(spec: str, dtype: str = "float64", device: str = "cpu") -> FlatNet:
    """Return the network of `spec`, built once for each thread."""
    return _built(spec, dtype, device, get_ident())


@lru_cache(maxsize=64)
def _built(spec: str, dtype: str, device: str, thread: int) -> FlatNet:
    return FlatNet(_module(json.loads(spec)), getattr(torch, dtype), device)


def _module(entries: dict[str, Any]) -> nn.Module:
    kind = entries.pop("kind")
    if kind not in ("forest", "bayes"):
        return cast("nn.Module", NETWORKS[kind](**entries).build())
    base = entries.pop("base")
    if kind == "bayes":
        return Bayes(**entries).over(_module(base))
    return Forest(**entries).over(_module(base), base.get("outputs", 1))


def initial(spec: str, seed: int) -> Array:
    """Return the initial θ (P,): Glorot's uniform weights, a forest's leaves, a posterior's log σ,
    means of mixtures, factors 1 of normalisations, all else 0 (`Flat`, too).

    It depends on the seed alone.
    """
    net = network(spec)
    draws = np.random.default_rng((seed, 0x6E6574))
    net.theta.zero_()
    with torch.no_grad():
        for layer in net.module.modules():
            if isinstance(layer, nn.GroupNorm):
                layer.weight.fill_(1.0)
            if isinstance(layer, (nn.Linear, nn.Conv2d, nn.Conv1d)) and not isinstance(layer, Flat):
                fans = sum(layer.weight.shape[:2]) * math.prod(layer.weight.shape[2:])
                bound = math.sqrt(6.0 / fans)
                values = draws.uniform(-bound, bound, tuple(layer.weight.shape))
                layer.weight.copy_(torch.from_numpy(values))
            elif isinstance(layer, (Leaves, Noisy)):
                layer.begin()
            elif isinstance(layer, (DgdNet, LearntMixture)):
                layer.begin(draws)
    return net.read()
