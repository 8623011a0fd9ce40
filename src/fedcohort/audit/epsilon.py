"""A lower bound of the ε that a run spent, against the ε that it claims.

The game of `canaries`, with the run's own private releases: m canaries are records in one site's
table with gradients orthogonal to each other and to all real ones, each `REACH` clips long, so that
only clipping limits them. The run's own code is used: clipping and summing by
`training.private.clipped_sum`, noise, counting and refusing by the site's guard, with the noise
multipliers, rounds and sampling of the study's (ε, δ). For a release that is no sum of gradients, a
canary moves its own coordinate by the whole sensitivity. By the proof in `training.private`, other
records do not matter.

    bound ≤ claim   this audit found no error
    bound > claim   noise, clipping or accounting is broken, but for an accident of probability 5 %

A bound below the claim proves nothing and is not the spent ε: with one run and m canaries it stays
well below ε even if ε is tight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.audit.canaries import Game, play
from fedcohort.audit.findings import Findings
from fedcohort.audit.rebuilt import Rebuilt
from fedcohort.models.network import Mlp
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import DataError
from fedcohort.protocol.private import Dp, Release
from fedcohort.training.networks.plan import Plan
from fedcohort.training.private import (
    clipped_sum,
    leave_privately,
    move_privately,
    pull_privately,
    train_privately,
)
from fedcohort.training.rows import Rows

#: Training steps with clipped gradients.
BY_GRADIENTS = (pull_privately.name, train_privately.name, leave_privately.name)
TRAINING = (*BY_GRADIENTS, move_privately.name)
#: Length of a canary's gradient before it is clipped, in clips.
REACH = 20.0


class Sum:
    """A loss whose slope is 1 at every record, so that a record's gradient is its x."""

    informative = True
    kinds: tuple[int, ...] = ()

    def __init__(self, n: int):
        self._n = n

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return value and slope (n,)."""
        return float(np.sum(outputs)), np.ones(self._n)

    def take(self, rows: Array) -> Sum:
        """Return the loss of some of the rows."""
        return Sum(len(rows))


@dataclass(frozen=True)
class Site:
    """One site's private releases, as the auditor runs them.

    Attributes
    ----------
    releases, dp : of the fit.
    groups : K of `training.private`; 0 if each record is clipped alone.
    seed : of the site's own draws and of the simulated noise.
    share : number of sites that share the noise; 1, as the auditor sees one site's reply.
    clip : the norm to which gradients are cut; that of `dp`, except in mutants.
    """

    releases: Sequence[Release]
    dp: Dp
    groups: int = 0
    seed: int = 0
    share: int = 1
    clip: float | None = None

    def __call__(self, coins: Array) -> Array:
        """Return what all releases tell of the canaries whose coin (m,) is True: (T, m).

        Each is divided by z²Δ, so that their sum weighs them by what they tell.
        """
        m = len(coins)
        guard = SiteGuard.simulated("audited", "audit", self.releases, self.dp, m, self.seed)
        rng = np.random.default_rng((self.seed, 0x63616E))
        found: list[Array] = []
        for release in self.releases:
            trains = release.step in TRAINING
            groups = self.groups if release.step in BY_GRADIENTS else 0
            clip = self.dp.norm if trains else 1.0
            # as `pull_privately` and the others state it
            bound = (2.0 if groups else 1.0) * clip
            fixed = groups == 0 and release.sampling == 1.0
            exact = self._gradients(coins, release, groups, rng) if trains else clip * coins
            for number in range(release.count):
                if not fixed and trains:
                    exact = self._gradients(coins, release, groups, rng)
                elif not fixed:
                    exact = coins * (rng.random(m) < release.sampling)
                call: Any = SimpleNamespace(step=SimpleNamespace(name=release.step), number=number)
                source = guard.source(call)
                noisy = guard.perturbed(
                    release.step, source, {"told": exact}, {"told": bound}, self.share
                )
                found.append(noisy["told"] / (release.noise**2 * bound))
        return np.stack(found)

    def _gradients(
        self, coins: Array, release: Release, groups: int, rng: np.random.Generator
    ) -> Array:
        """Sum the canaries' gradients (m,) by the code that sites run."""
        m = len(coins)
        clip = self.dp.norm if self.clip is None else self.clip
        plan = Plan(network=Mlp(inputs=m, hidden=(), intercept=False).spec, loss="cox")
        x = REACH * self.dp.norm * np.eye(m)[coins]
        rows = Rows(torch.from_numpy(x), Sum(len(x)))
        labels = self._labels(len(x), release.sampling, groups, rng)
        return clipped_sum(np.zeros(m), rows, plan, labels, clip)

    def _labels(self, n: int, sampling: float, groups: int, rng: np.random.Generator) -> Array:
        """Draw who is sampled, and everybody's group, as `pull_privately` does."""
        taken = rng.random(n) < sampling
        drawn = rng.integers(groups, size=n) if groups else np.arange(n)
        return np.where(taken, drawn, -1)


def bound(
    run: Rebuilt,
    *,
    arm: str | None = None,
    canaries: int = 1000,
    guesses: int = 100,
    seed: int = 0,
) -> Findings:
    """Audit the releases of one arm of a run.

    Raises
    ------
    DataError : the study has no differential privacy.
    """
    dp = run.plan.privacy.dp
    if dp is None:
        raise DataError(
            f"{run.folder}: the study has no differential privacy (privacy.dp), so there is no "
            f"claim to audit."
        )
    able = tuple(a.method for a in run.arms() if run.method(a).private is not None)
    if not able:
        raise DataError(f"{run.folder}: no arm of this run has a private fit to audit.")
    chosen = run.arm(arm, methods=able)
    method = run.method(chosen)
    assert method.private is not None
    config = method.configure(run.settings(chosen))
    dp = dp.clipped(method.clips)
    releases = tuple(method.private.releases(config, dp))
    variants = {"records alone": 0}
    if any(r.step in BY_GRADIENTS for r in releases) and config.dp_groups:
        variants[f"{config.dp_groups} random groups"] = config.dp_groups
    lines: list[dict[str, Any]] = []
    for told, groups in variants.items():
        site = Site(releases, dp, groups, seed)
        rng = np.random.default_rng((seed, 0x636F696E))
        game = play(site, canaries, guesses, dp.epsilon, dp.delta, rng)
        lines.append(_line(told, game, releases))
    worst = max(line["bound"] for line in lines)
    alarm = worst > dp.epsilon
    verdict = (
        f"With 95 % confidence ε is above {worst:.3f}; the study claims at most {dp.epsilon:g} at "
        f"δ = {dp.delta:g}. "
        + ("The claim is refuted." if alarm else "This audit does not refute the claim.")
    )
    return Findings(
        "epsilon",
        chosen.name,
        "Does a run give away more than its ε says?",
        lines,
        verdict,
        alarm,
        {"canaries": canaries, "guesses": guesses, "confidence": 0.95, "seed": seed},
    )


def _line(clipped: str, game: Game, releases: Sequence[Release]) -> dict[str, Any]:
    told = "; ".join(f"{r.count} × {r.step}, noise {r.noise:.3g}" for r in releases)
    return {
        "clipped": clipped,
        "canaries": game.canaries,
        "guesses": game.guesses,
        "right": game.right,
        "bound": round(game.epsilon_low, 4),
        "claim": game.claim,
        "delta": game.delta,
        "releases": told,
    }
