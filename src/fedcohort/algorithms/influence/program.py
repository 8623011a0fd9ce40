"""Value of each site to one user: leave-one-out and Shapley's value, on the user's private rows.

Grimberg, "Privacy-preserving and personalized federated machine learning for medical data", EPFL
2020, sections 2.2 and 3.3, names influence but does not define it; here by Ghorbani & Zou, "Data
Shapley", ICML 2019. The user's site keeps part of its rows private, P. With L and the fit as in
`training.coalitions`, the value of a coalition S of other sites is

    v(S) = −L_P(f_S),   f_S fitted to the user's other rows and to all rows of S              (1)

always with the user. A site's value is φ of `shapley` in this game: exact if there are at most
`coalitions` coalitions, otherwise from orders drawn with the study's seed. Then

    select  trains with the sites of φ_i > 0
    weight  trains with all; a row of site i has the weight max(φ_i, 0)/max_j φ_j, the user's 1
    report  trains with all

Sites whose sums agree to `ALIKE` have the same rows. They are one player: only the first is trained
with, and each of g sites has a g-th of the value. So no site gains by taking part twice. A copy
with changes is not found this way: `shapley`, eq. (3), shows it.

Revealed: `OwnSums` of each site, once at a common point, and, for logistic and poisson, every round
at the models of all coalitions. Masks would hide nothing, since coalitions differ by single sites.
A site tells no sums that could be of few rows (`training.disclosure`). `Losses` of the user's site:
one number for each coalition, which together tell about as much of its private rows as a site's
sums do of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.algorithms.influence.model import InfluenceModel
from fedcohort.algorithms.influence.settings import InfluenceSettings
from fedcohort.algorithms.influence.shapley import drawn, exact, leave_one_out
from fedcohort.algorithms.influence.steps import OwnSums, own_sums
from fedcohort.arrays import Array
from fedcohort.protocol import DataError, Federation, Task, check_all_answered
from fedcohort.training.coalitions import (
    Law,
    Sums,
    ascend,
    gone,
    judged,
    law_of,
    origin_of,
    unshifted,
    user_of,
)
from fedcohort.training.disclosure import FINE, Hidden, why

#: Relative tolerance for sums of the same rows.
ALIKE = 1e-9


def fit(fed: Federation, config: InfluenceSettings, task: Task) -> InfluenceModel:
    """Value the other sites for the user, and train by these values.

    Raises
    ------
    SettingError : no user, an unknown user, or a model that does not fit the outcome.
    DataError : no covariates, or the user's rows are too few.
    SiteUnavailable : a site left during the fit.
    """
    law, origin = law_of(config.model, task, "influence"), origin_of(task)
    user = user_of(fed, config.user, "influence")
    least = max(task.min_cell, 1) if len(fed.sites) > 1 else 1
    next(iter(fed.rounds(1)))
    game = Game(fed, law, user, origin, least, config)
    refused = {
        site: why(Hidden(int(one.reason), one.blame), task.features, least)
        for site, one in game.first.items()
        if one.reason != FINE
    }
    if user in refused:
        raise DataError(
            f"site {user!r}, the user, cannot tell the sums of its training rows: {refused[user]}."
        )
    copies = game.copies([site for site in game.fed.sites if site not in refused])
    players = tuple(copies)
    m = len(players)
    game.play(players)
    if 2**m <= config.coalitions:
        found = exact(game, m)
    else:
        rng = task.rng
        orders = np.stack([rng.permutation(m) for _ in range(config.permutations)])
        found = drawn(game, m, orders, config.tolerance, config.level)
    alone, together = game(np.array([[False] * m, [True] * m]))
    left_out = leave_one_out(game, m)
    weights = weights_of(found.value, config.use)
    gamma, loss = game.trained(weights)
    fed.record(
        alone=-alone, together=-together, final=loss, coalitions=float(len(game.known)),
    )  # fmt: skip
    intercept, beta = unshifted(law, gamma, game.origin)
    return InfluenceModel(
        features=task.features,
        user=user,
        law=law.name,
        levels=task.levels if law.classes else (),
        intercept=intercept,
        coefficients=beta,
        left_out=refused,
        players=players,
        copies={site: tuple(others) for site, others in copies.items() if others},
        found=found,
        leave_one_out=left_out,
        weights=weights,
        loss_alone=-float(alone),
        loss_together=-float(together),
        loss=loss,
        level=config.level,
        use=config.use,
    )


def weights_of(value: Array, use: str) -> Array:
    """Return the weight (m,) of a row of each site, relative to one of the user."""
    if use == "report" or not len(value):
        return np.ones(len(value))
    gain = np.maximum(value, 0.0)
    return (value > 0).astype(float) if use == "select" else gain / (gain.max() or 1.0)


class Game:
    """v of eq. (1), with each coalition fitted and judged once.

    Attributes
    ----------
    fed : the sites that answered first.
    first : their sums at γ = 0, where all fits begin.
    players : the other sites that have a value, in the order of a coalition's columns.
    known : coalition → γ (k,) and loss.
    """

    def __init__(
        self,
        fed: Federation,
        law: Law,
        user: str,
        origin: Array,
        least: int,
        config: InfluenceSettings,
    ):
        self.law, self.user, self.origin, self.least = law, user, origin, least
        self.held, self.l2 = config.held, config.l2
        self.players: tuple[str, ...] = ()
        self.known: dict[bytes, tuple[Array, float]] = {}
        self.fed = fed
        self.first = self._ask(np.zeros((1, law.size(len(origin)))))
        if user not in self.first:
            raise gone(user)
        self.fed = fed.only(self.first).awaiting()

    def play(self, players: tuple[str, ...]) -> None:
        """Use these sites and the user from now on."""
        self.players, self.fed = players, self.fed.only([self.user, *players])

    def copies(self, sites: list[str]) -> dict[str, list[str]]:
        """Return each site, except the user, with the other sites that have the same rows."""
        found: dict[str, list[str]] = {}
        for site in sites:
            if site == self.user:
                continue
            same = (s for s in found if alike(self.first[s], self.first[site]))
            held = next(same, None)
            if held is None:
                found[site] = []
            else:
                found[held].append(site)
        return found

    def __call__(self, members: Array) -> Array:
        """Return the values (C,) of coalitions (C, m) bool."""
        keys = [row.tobytes() for row in members]
        new = {k: row for k, row in zip(keys, members, strict=True) if k not in self.known}
        if new:
            gamma = self.fitted(np.stack(list(new.values())).astype(float))
            losses = self.judged(gamma)
            for key, one, loss in zip(new, gamma, losses.tolist(), strict=True):
                self.known[key] = one, loss
        return np.array([-self.known[key][1] for key in keys])

    def trained(self, weights: Array) -> tuple[Array, float]:
        """Return γ (k,) of the sites with these weights (m,), and the user's loss."""
        if ((weights == 0) | (weights == 1)).all():
            row = weights.astype(bool)
            self(row[None])
            return self.known[row.tobytes()]
        gamma = self.fitted(weights[None])
        return gamma[0], float(self.judged(gamma)[0])

    def judged(self, gamma: Array) -> Array:
        """Return the user's loss (C,) of models (C, k) on its private rows."""
        return judged(self.fed, self.user, self.law, self.held, self.origin, gamma, self.least)

    def fitted(self, weights: Array) -> Array:
        """Return γ (C, k) of coalitions of sites with weights (C, m), all at once."""
        weights = np.column_stack([np.ones(len(weights)), weights])

        def at(points: Array, which: Array) -> Sums:
            distinct, place = np.unique(points, axis=0, return_inverse=True)
            replies = self._ask(distinct) if distinct.any() else self.first
            sums = [replies[site] for site in (self.user, *self.players)]
            part, place = weights[which], place.reshape(-1)
            by_site = {
                name: np.stack([getattr(one, name)[place] for one in sums], axis=1)
                for name in ("deviance", "score", "information")
            }
            return Sums(
                part @ np.array([float(one.rows) for one in sums]),
                *(np.einsum("cs,cs...->c...", part, by_site[name]) for name in by_site),
            )

        p = len(self.origin)
        start = np.zeros((len(weights), self.law.size(p)))
        return ascend(at, start, self.law.ridge(p, self.l2), straight=self.law.straight)

    def _ask(self, points: Array) -> Mapping[str, OwnSums]:
        """Return each site's sums at points (C, k)."""
        replies = self.fed.gather(
            own_sums, law=self.law.name, classes=self.law.classes, user=self.user, held=self.held,
            origin=self.origin, points=points, least=self.least,
        )  # fmt: skip
        if self.players:
            check_all_answered(self.fed)
        return replies


def alike(one: OwnSums, other: OwnSums) -> bool:
    """Return whether two sites' sums are of the same rows."""
    names = ("rows", "deviance", "score", "information")
    pairs = ((np.asarray(getattr(one, n)), np.asarray(getattr(other, n))) for n in names)
    return all(np.allclose(a, b, rtol=ALIKE, atol=ALIKE * np.abs(a).max()) for a, b in pairs)
