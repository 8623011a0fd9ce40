"""A path of elastic-net penalties, and the choice of one by cross-validation.

Objective, with V the weight of all records, as Simon et al., J. Stat. Software 39(5), 2011:

    −ℓ(β)/V + λ (ρ ‖β‖₁ + (1 − ρ)/2 ‖β‖²),   λ_max = max_j |U_j(0)| / (ρ V)               (1)

At λ_max all coefficients are 0. The path falls from there, evenly in log λ; each fit starts from
the last. λ is chosen by the cross-validated partial likelihood of van Houwelingen et al. (Stat.
Med. 25(18), 2006), with β₋ₖ fitted without fold k:

    CV(λ) = Σ_k [ℓ(β₋ₖ) − ℓ₋ₖ(β₋ₖ)]                                                        (2)

Both terms use a baseline hazard for each site, whatever the fit's own: then ℓ is a sum over sites,
and the choice of λ needs no risk set.

With four sites or more a fold is a group of at least two, so that no difference of sums is one
site's. Otherwise folds are of rows, assigned at each site in the order of their times.

Revealed, only as sums over all sites: `Sizes`, once or twice; `OwnLikelihood` without each fold
(1 + p + p²), about three times for each penalty; `HeldOut` once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.cox.ascent import Climb, Here, Penalty, Top
from fedcohort.algorithms.cox.likelihood import (
    AtSites,
    Ground,
    StratifiedBaseline,
)
from fedcohort.algorithms.cox.own_steps import fold_likelihood, fold_sizes, held_out
from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.arrays import Array
from fedcohort.data.split import BY_ROW
from fedcohort.protocol import Federation, NothingToLearn, Row, Task, check_all_answered

#: Tolerance of the fits without a fold, in log hazard ratio per SD.
ROUGH = 1e-4
#: Tolerance of the path's fits under penalties that are not chosen.
FINE = 1e-6


@dataclass(frozen=True)
class Path:
    """Penalties of the path, with their coefficients and cross-validated likelihoods.

    Attributes
    ----------
    penalties : λ (L,), falling.
    coefficients : β (L, p), in the covariates' units.
    held_out : CV(λ) (L,), eq. (2), per death.
    """

    penalties: Array
    coefficients: Array
    held_out: Array

    @property
    def chosen(self) -> int:
        """Index of the chosen penalty."""
        return int(np.argmax(self.held_out))

    @property
    def penalty(self) -> float:
        """The chosen λ."""
        return float(self.penalties[self.chosen])

    def rows(self) -> list[Row]:
        """Return one row per penalty: λ, number of coefficients that are not 0, CV(λ) per death."""
        count = (self.coefficients != 0).sum(axis=1).tolist()
        columns = (self.penalties.tolist(), count, self.held_out.tolist())
        keys = ("penalty", "nonzero", "held_out_log_likelihood")
        return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def follow(
    climb: Climb[Here],
    ground: Ground,
    config: CoxSettings,
    choose: Callable[[Array, Sequence[str], Iterator[int]], Array],
) -> tuple[Top, Here, Path | None]:
    """Return the maximum under the given penalty, or under the one chosen along a path.

    Parameters
    ----------
    choose : gives CV(λ) (L,) of the penalties λ (L,).

    Returns
    -------
    top : the maximum.
    here : the last position on the way there at which the sites were asked.
    path : None if the penalty is given.
    """

    def under(l1: float, l2: float, tol: float = 0.0) -> Top:
        return climb.to(Penalty(ground.total * l1, ground.total * l2, ground.scale), tol=tol)

    if config.penalty != "auto":
        return under(*config.given), climb.here, None
    tried = penalties(climb.score, ground, config)
    held_out = choose(tried, climb.names, climb.rounds)
    best = int(np.argmax(held_out))
    tops: list[Top] = []
    here = climb.here
    for k, penalty in enumerate(tried.tolist()):
        tops.append(under(*config.penalties(penalty), tol=0.0 if k == best else FINE))
        here = climb.here if k == best else here
    coefficients = np.array([top.gamma for top in tops]) / ground.scale
    return tops[best], here, Path(tried, coefficients, held_out)


def penalties(score: Array, ground: Ground, config: CoxSettings) -> Array:
    """Return the path's λ (L,), eq. (1), from the score at γ = 0, (p,)."""
    largest = float(np.abs(score * ground.scale).max()) / (ground.total * config.l1_ratio)
    return largest * np.geomspace(1.0, config.path_ratio, config.path)


@dataclass(frozen=True)
class Folds:
    """Each site's fold or `BY_ROW`, and the weight and the deaths of each fold.

    ``min_cell`` is the sites' own bound (`data.split.folds`).
    """

    at: Mapping[str, int]
    weight: Array
    deaths: Array
    min_cell: int

    @property
    def question(self) -> dict[str, Any]:
        """Arguments of the sites' steps."""
        return {"dealt": dict(self.at), "folds": len(self.weight), "min_cell": self.min_cell}


def deal(fed: Federation, config: CoxSettings, task: Task) -> Folds:
    """Assign the rows to folds of `min_cell` deaths or more.

    Raises
    ------
    NothingToLearn : there are too few deaths for two such folds.
    Refused : of two sites, one has fewer than `min_cell` records in a fold.
    """
    sites, min_cell = fed.sites, task.min_cell if len(fed.sites) > 1 else 1
    groups = min(len(sites) // 2, config.n_folds)
    if config.folds == "centre" and groups >= 2:
        dealt = task.rng.permutation(len(sites)) % groups
        folds = _sized(fed, dict(zip(sites, dealt.tolist(), strict=True)), groups, min_cell)
        if folds.deaths.min() >= task.min_cell:
            return folds
    each = dict.fromkeys(sites, BY_ROW)
    deaths = float(_sized(fed, each, 1, min_cell).deaths[0])
    count = min(config.n_folds, int(deaths // (2 * task.min_cell)))
    if count >= 2 and (folds := _sized(fed, each, count, min_cell)).deaths.min() >= task.min_cell:
        return folds
    raise NothingToLearn(
        f"folds for penalty 'auto' would hold too few of the {deaths:.0f} events, fewer than "
        f"{task.min_cell}. Give a penalty, or add sites."
    )


def _sized(fed: Federation, at: Mapping[str, int], count: int, min_cell: int) -> Folds:
    sizes = fed.sum(fold_sizes, dealt=dict(at), folds=count, min_cell=min_cell)
    check_all_answered(fed)
    return Folds(at, sizes.weight, sizes.deaths, min_cell)


class _WithoutFold(StratifiedBaseline):
    """Sum of the sites' partial likelihoods without one fold."""

    def __init__(self, fed: Federation, ground: Ground, ties: str, folds: Folds, fold: int):
        super().__init__(fed, ground, ties)
        self._folds, self._fold = folds, fold

    def at(self, gamma: Array) -> AtSites:
        """Return Σ ℓ(γ) over sites, with Σ U and Σ I."""
        g = self._ground
        own = self._fed.sum(
            fold_likelihood,
            centre=g.centre, scale=g.scale, beta=gamma, ties=self._ties,
            without=self._fold, **self._folds.question,
        )  # fmt: skip
        check_all_answered(self._fed)
        return AtSites.of(gamma, own)


def cross_validate(
    fed: Federation,
    ground: Ground,
    config: CoxSettings,
    task: Task,
    tried: Array,
    names: Sequence[str],
    rounds: Iterator[int],
) -> Array:
    """Return CV(λ), eq. (2), per death, (L,), of the penalties `tried` (L,)."""
    folds = deal(fed, config, task)
    total = folds.weight.sum()
    betas = np.zeros((len(folds.weight), len(tried), len(names)))
    for k, weight in enumerate(folds.weight):
        climb = Climb(
            fed,
            _WithoutFold(fed, ground, config.ties, folds, k),
            names,
            rounds,
            tol=max(ROUGH, config.tol),
            max_rounds=config.max_rounds,
            silent=True,
        )
        for i, penalty in enumerate(tried.tolist()):
            l1, l2 = (v * float(total - weight) for v in config.penalties(penalty))
            betas[k, i] = climb.to(Penalty(l1, l2, ground.scale)).gamma
    found = fed.sum(
        held_out,
        centre=ground.centre, scale=ground.scale, betas=betas, ties=config.ties,
        **folds.question,
    )  # fmt: skip
    check_all_answered(fed)
    return found.log_likelihood / ground.weight.sum()
