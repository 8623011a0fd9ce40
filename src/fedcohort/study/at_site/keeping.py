"""Evaluation of models that sites keep: each by its site, on the site's own blind rows.

The coordinator sends no model and gets none: the view is `judging.Own`, and what leaves are the
sums and published numbers of the lower bound's evaluation (`judge.summed`). So metrics of ranks
compare rows of one site only.

Revealed: see `judging`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcohort.data.prepare import Design
from fedcohort.protocol import DataError, Fitted
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.own_models import OwnModels
from fedcohort.study.run.pieces import JUDGED, has_final


@dataclass
class OwnRows(Rows):
    """A site's rows, and the model that it keeps; None if its rows gave none."""

    kept: tuple[Fitted, Design] | None = None

    def own(self) -> tuple[Fitted, Design] | None:
        """Return the site's own model; None if its rows gave none."""
        return self.kept

    @classmethod
    def of(
        cls, table: SiteTable, repeat: int, arm: Arm, least: int, models: OwnModels | None
    ) -> OwnRows:
        """Return one repeat's rows of a site, with the model of that repeat's fit.

        Raises
        ------
        DataError : the site keeps no such model.
        """
        terms = table.terms
        found = None if models is None else models.find(place(terms.plan, arm, repeat))
        if found is None:
            raise DataError(
                f"site {table.site!r} keeps no model of arm {arm.name!r}: its fit did not end "
                f"here. Start again without --resume."
            )
        return cls(
            table.halves(repeat), terms.outcome, terms.dictionary, arm.method, least,
            kept=(found.model, found.design),
        )  # fmt: skip


def place(plan: Plan, arm: Arm, repeat: int, *, final: bool = False) -> str:
    """Return the folder of a site's own model below those of its study.

    The final model, or else the first repeat's, is in the arm's folder; others are below it.
    """
    if final or (not repeat and not has_final(plan, arm)):
        return arm.name
    return f"{arm.name}/{JUDGED}" if not repeat else f"{arm.name}/repeat-{repeat}"


def notes_of(plan: Plan, arm: Arm, site: str, *, final: bool) -> Mapping[str, object]:
    """Return the notes of a site's own model."""
    rows = "all rows" if final else f"{1 - plan.test_fraction:.0%} of the rows"
    head = {"study": plan.study, "arm": arm.name, "site": site, "trained_on": rows}
    return head | ({"final": True} if final else {"repeat": 0})
