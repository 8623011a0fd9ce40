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
from fedcohort.protocol.once import Once, digest_of
from fedcohort.protocol.wire import encode
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.pins import JUDGED_MODEL, differs
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.own_models import OwnModels
from fedcohort.study.results.saved import Saved
from fedcohort.study.run.pieces import JUDGED, has_final


@dataclass
class KeptRows(Rows):
    """A site's rows, and the model that it keeps; None if its rows gave none."""

    kept: tuple[Fitted, Design] | None = None

    def own(self, fit: int = -1) -> tuple[Fitted, Design] | None:
        """Return the site's own model; None if its rows gave none."""
        return self.kept

    @classmethod
    def of(
        cls, table: SiteTable, repeat: int, arm: Arm, least: int, models: OwnModels | None,
        once: Once,
    ) -> KeptRows:  # fmt: skip
        """Return one repeat's rows of a site, with the model of that repeat's fit.

        once : remembers the model that the session evaluates. Results of a second one, from a fit
            that begins anew at a vector of the coordinator's own, could be of a few patients.

        Raises
        ------
        DataError : the site keeps no such model.
        Refused : "beyond": the session evaluated another model before.
        """
        terms = table.terms
        found = None if models is None else models.find(place(terms.plan, arm, repeat))
        if found is None:
            raise DataError(
                f"site {table.site!r} keeps no model of arm {arm.name!r}: its fit did not end "
                f"here. Start again without --resume."
            )
        if not once(JUDGED_MODEL, digest_of(_bytes_of(found)), 1):
            raise differs(JUDGED_MODEL)
        return cls(
            table.halves(repeat), terms.outcome, terms.dictionary, arm.method, least,
            kept=(found.model, found.design),
        )  # fmt: skip


def _bytes_of(found: Saved) -> bytes:
    """Return what determines a model's predictions."""
    return encode(found.model.arrays(), {"meta": found.model.meta(), "design": found.design.spec})


@dataclass
class TriedRows(Rows):
    """A site's training rows, and the models that it keeps of fits in tuning: `arm`'s."""

    arm: str = ""
    models: OwnModels | None = None

    def own(self, fit: int = -1) -> tuple[Fitted, Design] | None:
        """Return the site's own model of one fit.

        Raises
        ------
        DataError : the site keeps no such model.
        """
        found = None if self.models is None else self.models.find(place_tried(self.arm, fit))
        if found is None:
            raise DataError(
                f"arm {self.arm!r}: this site keeps no model of fit {fit} in tuning. Start again "
                f"without --resume."
            )
        return found.model, found.design


def place_tried(arm: str, fit: int | None = None) -> str:
    """Return the folder of a site's own model of a fit in tuning; without a number, of all."""
    return f"{arm}/tuned" + ("" if fit is None else f"/{fit:05d}")


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
