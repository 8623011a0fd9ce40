"""Choosing an arm's settings over a network, on training rows only.

As in `run.tune`: each fold leaves a site out (centre-kfold), or some rows of every site, chosen
there by a hash of their values (row-kfold). The arm is fitted on the rest and evaluated on the
left-out rows. For C-index and AUC, the pairs of rows within a site and fold are summed exactly, so
that no pair crosses models or hospitals; R² is that of all predictions (`holding`).

With a model for each site (`user: all`) every site keeps its model of a fit until the candidate is
scored, and predicts its own left-out rows by it. Each site chooses the lower bound's settings alone
(`alone`).

Clusters and latent variables are scored without an outcome (`unlabelled`).

Revealed: what the fits reveal, and `Held` or `Unlabelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from fedcohort.protocol import (
    FedcohortError,
    JournalMismatch,
    NothingToLearn,
    Refused,
    SettingError,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site import unlabelled
from fedcohort.study.at_site.coding import Coded
from fedcohort.study.at_site.holding import WHOLE, hold, scores, tell_held
from fedcohort.study.at_site.judging import Own, Said
from fedcohort.study.at_site.placing import Clustered
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.privacy import FEWEST
from fedcohort.study.file.terms import Terms
from fedcohort.study.kinds import CLUSTERING
from fedcohort.study.run.engine import Run, Trail, fit_over
from fedcohort.study.run.tune import ROW_FOLDS, Settings, candidate, keeps_rounds, models_at
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.own_rows import OwnFrames

#: Opens a session and keeps what left the sites in it.
Opens = Callable[[Session], AbstractContextManager[Coordinator]]


class NetworkTuner:
    """Scores candidate settings of one arm, for the searches of `run.tune`."""

    def __init__(
        self, terms: Terms, sites: tuple[str, ...], arm: int, repeat: int, opens: Opens,
        own: OwnFrames | None = None,
    ):  # fmt: skip
        self._terms = terms
        self._own = own
        self._sites = sites
        self._place = Session("tune", repeat, arm)
        self._arm: Arm = terms.plan.arms[arm]
        self._method = registry.find(self._arm.method)
        self._opens = opens
        self._fits = 0
        self._candidates = 0
        #: Empty here: ledger lines are kept with each session.
        self.ledger: list[str] = []

    @property
    def keeps_rounds(self) -> bool:
        """See `tune.Scores`."""
        return keeps_rounds(self._arm)

    def scores(
        self, settings: Settings, rounds: tuple[int, ...], by: str = ""
    ) -> list[float | None]:
        """See `tune.Scores`."""
        given = candidate(self._arm, settings, rounds)
        models = max(1, len(rounds))
        place = replace(self._place, kind="score", number=self._candidates)
        self._candidates += 1
        centres = self._arm.folds == "centre-kfold" and len(self._sites) > 1
        folds = range(len(self._sites) if centres else ROW_FOLDS)
        # A fit's number modulo ROW_FOLDS is its row fold, so candidates begin at a multiple.
        self._fits += -self._fits % ROW_FOLDS
        done: dict[str, None] = {}
        before = ""
        with self._opens(place) as judge:
            for fold in folds:
                left = self._sites[fold] if centres else None
                try:
                    run = self._fit(left, given)
                except (SettingError, SiteUnavailable, JournalMismatch, Refused):
                    raise
                except NothingToLearn:
                    continue
                except FedcohortError:
                    return [None] * models
                asked = judge if left is None else judge.only([left])
                if self._arm.every:
                    mine = asked.through(Own(fit=self._fits - 1))
                    mine.sum(hold, fold=fold, model=0, models=1)
                    done |= dict.fromkeys(asked.sites)
                    continue
                for i, model in enumerate(models_at(run.model, rounds)):
                    said = Said.by(replace(run, model=model), self._arm.method)
                    number = WHOLE if centres else fold
                    if by:
                        seen, before = self._seen(said.model, by, before), said.model
                        step = unlabelled.hold_unlabelled
                        asked.through(seen).sum(step, fold=number, model=0, models=1)
                        continue
                    asked.through(said).sum(hold, fold=number, model=i, models=models)
                done |= dict.fromkeys(asked.sites)
            if not done or len(done) < min(FEWEST, len(judge.sites)):
                return [None] * models  # a sum over fewer sites would not hide them
            if by:
                told = judge.only(done).sum(unlabelled.tell_unlabelled, models=1)
                value = unlabelled.score(by, told.sums[0], float(told.lost[0]))
                return [value if np.isfinite(value) else None]
            held = judge.only(done).sum(tell_held, models=models)
        found = scores(self._terms.plan.task, held)
        return [float(s) if np.isfinite(s) else None for s in found]

    def _seen(self, model: str, by: str, before: str) -> Clustered | Coded:
        """Return the view of a model's left-out rows; with the model before for `stability`."""
        if self._terms.plan.task != CLUSTERING.name:
            return Coded(model)
        return Clustered(model, before=before if by == "stability" else "")

    def _fit(self, left: str | None, given: Settings) -> Run:
        """Fit the rows of all sites outside the fold."""
        terms, plan = self._terms, self._terms.plan
        about = replace(terms.problem, own=self._own)
        session = replace(self._place, number=self._fits)
        self._fits += 1
        with self._opens(session) as fed:
            some = fed if left is None else fed.only([s for s in fed.sites if s != left])
            seed = seed_of(plan, self._place.repeat)
            trail = Trail(Ledger(plan.min_cell))
            return fit_over(
                some, about, self._method, given, self._arm.preprocess, seed, trail,
                explained=False,
            )  # fmt: skip
