"""The lower bound at a site: a fit of its own rows, in its own process.

The fit is `engine.fit_once` over one site, with the arm's settings. It is a pure function of rows,
settings and seed: a restarted node fits again and gets the same model.

Revealed: by the fit nothing; by its evaluation, see `judging`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from fedcohort.data.prepare import Design
from fedcohort.protocol import (
    FedcohortError,
    Fitted,
    NothingToLearn,
    SettingError,
    registry,
)
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.run.engine import Problem, fit_alone, fit_once
from fedcohort.study.run.tune import Settings, Tuner, search
from fedcohort.study.sites.layout import seed_of


@dataclass
class Alone(Rows):
    """A site's rows, and their own model, fitted at the first request."""

    site: str = ""
    arm: Arm | None = None
    seed: int = 0
    plan: Plan | None = None
    _found: list[tuple[Fitted, Design] | None] = field(
        default_factory=list[tuple[Fitted, Design] | None]
    )

    @classmethod
    def of(cls, table: SiteTable, repeat: int, arm: Arm, least: int) -> Alone:
        """Return one repeat's rows of a site."""
        terms = table.terms
        return cls(
            table.halves(repeat), terms.outcome, terms.dictionary, arm.method, least,
            site=table.site, arm=arm, seed=seed_of(terms.plan, repeat), plan=terms.plan,
        )  # fmt: skip

    def own(self, fit: int = -1) -> tuple[Fitted, Design] | None:
        """Return the site's own model; None if its rows give none."""
        if not self._found:
            self._found.append(self._fitted())
        return self._found[0]

    def _fitted(self) -> tuple[Fitted, Design] | None:
        assert self.plan is not None
        problem = Problem(
            {self.site: self.halves.train}, self.dictionary, self.outcome, self.least, bound=True
        )
        return fit_alone(problem.of(self.plan.kind), self._model)

    def _model(self, problem: Problem) -> tuple[Fitted, Design]:
        arm = self.arm
        assert arm is not None
        settings = arm.configured(self._chosen(problem))
        run = fit_once(
            problem, registry.find(arm.method), settings, arm.preprocess, self.seed,
            explained=False,
        )  # fmt: skip
        return run.model, run.design

    def _chosen(self, problem: Problem) -> Settings:
        """Return the settings that the site tunes alone, on its training rows.

        Raises
        ------
        NothingToLearn : its rows give no model to tune.
        """
        assert self.arm is not None and self.plan is not None
        if not self.plan.is_tuned(self.arm):
            return {}
        with TemporaryDirectory() as work:
            try:
                tuner = Tuner(problem, self.arm, self.seed, Path(work), lambda done, of: None)
                return search(tuner, self.arm, self.plan).chosen
            except SettingError:
                raise
            except FedcohortError:
                raise NothingToLearn("its rows give no model to tune.") from None
