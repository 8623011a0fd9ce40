"""Tables with records that a method must not single out, and an attack that looks for them.

    rare        a column that is 0 but in three records
    far         a number that one record has a thousand million times as far out as the others
    class       three records of one kind: of a class, with the event, not with the usual outcome;
                without an outcome, three that lie together far from all others, or that alone have
                an entry of a view
    copy        a covariate that is another one but in one record
    outcome     a covariate that is the outcome, or the event, but in one record
    given       a covariate that is the sum of two others but in three records

All records of a plant are at one site, which is the user's where a method has one. `told` says what
a fit gave away of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.cases import ROWS, Case, Table, run, tables
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.protocol import FedcohortError, NothingToLearn
from fedcohort.runtime.coordinator import Coordinator
from overheard import Told, listen, recovered
from queries import small_published, small_told

#: The site that has the records of a plant, and how many these are.
SITE, FEW = "a", 3
PLANTS = ("rare", "far", "class", "copy", "outcome", "given")


@dataclass(frozen=True)
class Found:
    """What a fit came to: its refusal or None, the steps asked, and what it gave away.

    silent : sites that told a reason alone, of methods of which each tells of itself.
    """

    refusal: FedcohortError | None
    asked: frozenset[str]
    told: tuple[str, ...]
    silent: frozenset[str]

    @property
    def refused(self) -> bool:
        """Whether it was refused for what it would tell."""
        return isinstance(self.refusal, NothingToLearn)


def outcome_of(table: Table) -> np.ndarray | None:
    """Return the outcome (n,), of survival the event."""
    if isinstance(table, FeatureTable):
        return None
    return np.asarray(table.y if isinstance(table, LabelledTable) else table.event, float)


def planted(kind: str, plant: str) -> dict[str, Table] | None:
    """Return the tables of a kind of task with a plant in them; None where it has no such one."""
    out = dict(tables("latent" if kind == "clustering" else kind))
    if plant == "outcome" and kind in ("clustering", "latent", "synthesis"):
        return None
    rng = np.random.default_rng(11)
    for site, table in out.items():
        x, y = np.array(table.x), outcome_of(table)
        x = np.nan_to_num(x) if kind == "clustering" else x
        some = np.arange(len(x)) < FEW * (site == SITE)
        first = some & (np.arange(len(x)) < 1)
        match plant:
            case "rare":
                x[:, 2] = some
            case "far":
                x[first, 2] = 1e9
            case "copy":
                x[:, 2] = np.where(first, 1 - x[:, 1], x[:, 1])
            case "given":
                x[:, 2] = x[:, 0] + x[:, 1] + some * rng.uniform(0.2, 0.3, len(x))
            case "outcome":
                assert y is not None
                x[:, 2] = np.where(first, 1 - y, y)
            case _:
                out[site] = _of_three(kind, table, some)
                continue
        out[site] = table._replace(x=x)
    return out


def _of_three(kind: str, table: Table, some: np.ndarray) -> Table:
    x = np.nan_to_num(table.x) if kind == "clustering" else np.array(table.x)
    if kind in ("latent", "synthesis"):
        x[~some, 2] = np.nan
    elif kind == "clustering":
        x[some] = 9.0
    elif isinstance(table, SurvivalTable):
        return table._replace(event=some)
    else:
        return table._replace(y=some * 1.0)
    return table._replace(x=x)


def attacked(case: Case, data: Mapping[str, Table], monkeypatch: Any) -> Found:
    """Fit a case, and look at all that the coordinator was told and the model says."""
    silent: set[str] = set()
    with monkeypatch.context() as patch:
        heard = listen(patch, every=True)
        gather = Coordinator.gather

        def watched(fed: Any, step: Any, /, **asked: Any) -> Any:
            replies = gather(fed, step, **asked)
            silent.update(s for s, told in replies.items() if getattr(told, "reason", 0))
            return replies

        patch.setattr(Coordinator, "gather", watched)
        model = refusal = None
        try:
            model = run(case, data=data).model
        except FedcohortError as error:
            refusal = error
    asked = frozenset(one.step for one in heard)
    return Found(refusal, asked, tuple(_told(heard, data, model)), frozenset(silent))


def _told(heard: list[Told], data: Mapping[str, Table], model: Any) -> Iterator[str]:
    x = np.vstack([data[name].x for name in ROWS])
    known = np.isfinite(x).all(axis=1)
    if recovered(heard, x[known], within=1e-7).any():
        yield "a patient's covariates"
    yield from small_told([one for one in heard if one.step != "vote"])  # of sites
    if model is not None:
        yield from small_published(model)
