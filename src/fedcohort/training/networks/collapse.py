"""Watch of posterior collapse: the divergence of each latent dimension from the prior, by round.

A dimension whose posterior is the prior, KL_i = 0 for every row, tells the decoder nothing (Bowman
et al., CoNLL 2016; Lucas et al., NeurIPS 2019). In every `record_kl`-th round, and of the final
model,

    KL_i = Σ_k Σ_j KL_i(q(z|x_kj)) / Σ_k n_k                                               (1)

over the rows of all sites at the model at the start of the round; `kl_1` … `kl_q` in the history.
With another prior than N(0, I), KL_i is that of the posterior's marginal from the prior's marginal.

β may begin small (Bowman et al.), by rounds r = 0, 1, …, with R the setting `anneal_rounds`:

    linear     β min(1, (r + 1)/R)
    cyclical   β min(1, 2 (r mod R + 1)/R)                                                  (2)

the latter of Fu et al., NAACL 2019: in each cycle β rises for one half.

Revealed: `Divergences` in these rounds and at the end, only as sums over sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.models.variational import LatentNet
from fedcohort.protocol import Federation, Settings, Site, Summed, message, setting, summed
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Watching
from fedcohort.training.rows import BLOCK, known_rows

#: A dimension with a smaller mean KL_i, in nats, has collapsed.
COLLAPSED = 0.01
ANNEALS = ("none", "linear", "cyclical")

REVEALS = (
    "with record_kl, in some rounds the divergence of each latent dimension from the prior, as a "
    "sum over sites"
)


@dataclass(frozen=True, kw_only=True)
class CollapseSettings(Settings):
    """Settings of likelihoods, free bits and the watch."""

    likelihoods: str | tuple[str, ...] = setting(
        "dictionary",
        "Distribution of each column: dictionary, by its type and range there; normal, for all; or "
        "a list of column=kind for some, such as [grade=ordinal, visits=poisson]",
    )
    free_bits: float = setting(
        0.0, "λ: divergence of each latent dimension that costs nothing", "nats", within="[0, inf)"
    )
    record_kl: int = setting(
        10,
        "Record the divergence of each latent dimension from the prior every so many rounds, and "
        "at the end; 0: never",
        "rounds",
        within="[0, inf)",
    )


@dataclass(frozen=True, kw_only=True)
class AnnealSettings(CollapseSettings):
    """The same, with β and its rise by rounds, eq. (2)."""

    beta: float = setting(
        1.0, "β: weight of the divergence from the prior; 1 is the ELBO", within="[0, inf)"
    )
    anneal: str = setting(
        "none",
        "Let β rise by rounds: linear, once; cyclical, in the first half of each cycle",
        choices=ANNEALS,
    )
    anneal_rounds: int | None = setting(
        None,
        "Rounds of the rise, or of a cycle. Default: a quarter of `rounds`",
        "rounds",
        within="[1, inf)",
    )

    def check_anneal(self, **given: tuple[str, str]) -> None:
        """Refuse an anneal where a setting is not the only value that goes with it.

        Parameters
        ----------
        given : name of a setting → its value, and that only value.

        Raises
        ------
        SettingError : names the first one.
        """
        plain = self.anneal == "none"
        for name, (value, only) in given.items():
            self.check(("anneal", plain or value == only, f"none, or {name}: {only}"))

    def share_rounds(self, rounds: int) -> int:
        """Return the number of rounds of a rise or cycle of β, of so many rounds."""
        return self.anneal_rounds or max(1, rounds // 4)


@message
class Divergences:
    """n_k, and Σ_j KL_i (q,) over the training rows."""

    some_rows = True

    rows: Array
    kl: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.kl.ndim != 1 or not np.isfinite(self.kl).all() or (self.kl < 0).any():
            return "divergences that are not a list of finite numbers of 0 or more."
        return ""


@summed
def latent_divergences(site: Site[Any, Any], *, theta: Array, plan: str) -> Divergences:
    """Sum the divergence of each latent dimension from the prior over the training rows."""
    return divergences(site, theta, plan)


def divergences(
    site: Site[Any, Any], theta: Array, plan: str, prior: Array | None = None
) -> Divergences:
    """Return the sums of a site.

    `prior` is a mixture (C, 1 + 2q), if it is neither standard normal nor the network's own.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    net = network(p.network, p.dtype, p.device)
    net.load(theta)

    def summed_over(latent: LatentNet) -> torch.Tensor:
        parts = rows.x.split(BLOCK)
        return torch.stack([latent.divergences(part).sum(dim=0) for part in parts]).sum(dim=0)

    def under(module: torch.nn.Module) -> torch.Tensor:
        return cast("LatentNet", module).under(prior, summed_over, rows.x)

    kl = np.asarray(net.compute(under), float)
    return Divergences(np.array(len(rows.x)), np.maximum(kl, 0.0))


class LatentWatch:
    """Record eq. (1) in a training, and R of another watch, if there is one.

    Parameters
    ----------
    every : rounds between two records, from the first.
    asks : the step that sums; with another than `latent_divergences`, `given` returns its further
        arguments at θ (P,).
    """

    def __init__(
        self, fed: Federation, plan: Plan, other: Watching | None, every: int,
        asks: Summed[..., Divergences] = latent_divergences,
        given: Callable[[Array], Mapping[str, Any]] = lambda theta: {},
    ):  # fmt: skip
        self._fed, self._plan, self._other, self._every = fed, plan, other, every
        self._asks, self._given = asks, given
        self._rounds, self._now = 0, dict[str, float]()

    def __call__(self, theta: Array) -> bool:
        """Ask the sites at θ (P,); return whether the training ends (`schedule.Enough`)."""
        if self._other is not None and self._other(theta):
            return True
        due, self._now = self._rounds % self._every == 0, {}
        self._rounds += 1
        if due:
            self._now = {f"kl_{i}": float(value) for i, value in enumerate(self.ask(theta), 1)}
        return False

    def recording(self, record: Callable[..., None]) -> Callable[..., None]:
        """Return `record` of a federation, with KL_i of each round added."""
        inner = record if self._other is None else self._other.recording(record)

        def both(**values: float) -> None:
            inner(**values, **self._now)

        return both

    def ask(self, theta: Array) -> Array:
        """Return KL_i (q,) at θ (P,)."""
        sent, plan = self._plan.sent(theta), self._plan.text
        total = self._fed.sum(self._asks, theta=sent, plan=plan, **self._given(theta))
        return np.asarray(total.kl, float) / max(float(total.rows), 1.0)


def caution(kl: Array) -> tuple[str, ...]:
    """Return a caution if dimensions have collapsed, by KL_i (q,)."""
    n = int((kl < COLLAPSED).sum())
    if not n:
        return ()
    return (
        f"{n} of {len(kl)} latent dimensions hold nothing (divergence from the prior below "
        f"{COLLAPSED} nats); take fewer (q), or try free_bits, anneal or a smaller beta",
    )


def shares(anneal: str, rounds: int) -> Callable[[Array], Mapping[str, Any]]:
    """Return further arguments of the training steps in each round: the share of β, eq. (2)."""
    if anneal == "none":
        return lambda theta: {}
    number = count()

    def given(theta: Array) -> Mapping[str, Any]:
        r = next(number)
        share = (r + 1) / rounds if anneal == "linear" else 2 * (r % rounds + 1) / rounds
        return {"share": min(1.0, share)}

    return given
