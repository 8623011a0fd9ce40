"""What an approved study lets a coordinator ask, beyond the list of its sessions' steps.

A steward approves settings, which determine the steps (`asking`). The site also checks what the
coordinator sends with each call, before it reads a row:

    arguments   whole numbers, booleans and texts are those that the study's settings give: its
                `min_cell` exactly, its seed, folds, families, options (`bounds`)
    views       of kinds that the session has; a preprocessing names the columns, types, outcome,
                classes, roles and options of the study; limits, knots, pooled levels and a joint
                distribution only if an option asks for them
    sessions    of tuning, no more than there are candidates and folds
    comparison  of sites, each step with one set of arguments: cells between other edges would
                reveal what these hide (`Once`)
    places      grids, edges, centres, scales and the evaluated model keep their first value, and
                settings limit their number (`pins`)
    noise       of a private fit, by `privacy.guard`; its preprocessing follows from the dictionary,
                and its evaluation sees blind rows only

The coordinator may choose the first values of these, and coefficients: a site cannot know them
beforehand. `docs/network-threats.md` has the consequences.

Revealed: by a refusal, the rule.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedcohort.data.describe import variables_of
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import columns_of
from fedcohort.data.prepare import (
    Column,
    Design,
    IncompleteView,
    LevelColumn,
    NumberColumn,
    bounded_design,
    classes_of,
    strata_levels,
)
from fedcohort.data.variable import Variable
from fedcohort.protocol import Refused, registry
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call
from fedcohort.protocol.once import InMemory, Once
from fedcohort.study.at_site import latent_sites
from fedcohort.study.at_site.bounds import OF_TABLES, Bounds, beyond
from fedcohort.study.at_site.cluster_sites import OF_TRAINING
from fedcohort.study.at_site.coding import Coded
from fedcohort.study.at_site.judging import Said, Seen
from fedcohort.study.at_site.pins import Pins
from fedcohort.study.at_site.placing import Clustered, clusters_of
from fedcohort.study.at_site.virtual_sites import Drawn
from fedcohort.study.file.arms import MOST_TRIALS, Arm
from fedcohort.study.file.space import space_of
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.evaluate import JUDGING
from fedcohort.study.run.tune import ROW_FOLDS

#: Kind of session → views that its calls may use, besides those of evaluation (`judge.evaluate`).
VIEWS: Mapping[str, tuple[type[Any], ...]] = {
    "describe": (Encoding,),
    "count": (),
    "shift": (Encoding,),
    "feedback": (Encoding,),
    "fit": (Encoding, IncompleteView, Design),
    "tune": (Encoding, IncompleteView, Design),
}
#: Default options of preprocessing.
DEFAULTS: Mapping[str, Any] = {
    "scale": "none", "impute": "median", "winsorise": 0.0, "pool_levels": 0,
}  # fmt: skip
#: Upper bound on the number of sites of a network.
MOST_SITES = 1000


@dataclass(frozen=True)
class Consent:
    """Check of all calls of one session of an approved study.

    Attributes
    ----------
    kind : of the session.
    arm : of the session; None without.
    seed : of the session's repeat.
    once : remembers first questions beyond the session.
    """

    terms: Terms
    kind: str
    arm: Arm | None = None
    seed: int = 0
    once: Once = field(default_factory=InMemory, repr=False)
    _seen: list[View] = field(default_factory=list[View], repr=False)

    def __call__(self, call: Call, arguments: Mapping[str, Any]) -> None:
        """Check one call.

        Raises
        ------
        Refused : "beyond", and how the call exceeds the study.
        """
        self._bounds.check(call, arguments)
        if call.view is not None and not any(call.view is seen for seen in self._seen):
            self._check_view(call.view)
            self._seen[:] = [call.view]
        if isinstance(call.view, (Clustered, Coded)) and call.view.half != "blind":
            latent = isinstance(call.view, Coded)
            known = latent_sites.OF_TRAINING if latent else OF_TRAINING
            fine = any(call.step.name == step.name for step in known)
            self._check(fine, "values of training rows" + " by cluster" * (not latent))
        if self.kind == "shift" and not self.once(call.step.name, _digest(call, arguments), 1):
            raise beyond(
                f"{call.step.name} was asked before with other arguments. To compare again, submit "
                f"the study under another name"
            )
        self._pins.check(call, arguments)

    # settings -------------------------------------------------------------------------

    @cached_property
    def _config(self) -> Any:
        assert self.arm is not None
        return registry.find(self.arm.method).configure(self.arm.configured())

    @cached_property
    def _tried(self) -> Mapping[str, Any]:
        """Values that tuning may choose, by setting."""
        return {} if self.arm is None else {**self.arm.grid, **self.terms.plan.space(self.arm)}

    def _setting(self, name: str) -> Any:
        return getattr(self._config, name, None) if self.arm is not None else None

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(self.terms, self.kind, self.arm, self.seed)

    @cached_property
    def _pins(self) -> Pins:
        return Pins(self._bounds, self.once)

    # views ----------------------------------------------------------------------------

    def _check_view(self, view: View) -> None:
        private = self.terms.plan.privacy.dp is not None and self.kind == "fit"
        known = {**VIEWS, **JUDGING[self.terms.plan.task].views}
        if type(view) not in ((Design,) if private else known.get(self.kind, ())):
            raise beyond(f"a session to {self.kind} has no such view")
        if isinstance(view, Encoding):
            for v in view.variables:
                self._check_variable(v)
        elif isinstance(view, IncompleteView):
            self._check(self._option("impute") == "iterative", "impute is not 'iterative'")
            for c in view.columns:
                self._check_column(c)
        elif isinstance(view, Design):
            self._check_design(view)
        elif isinstance(view, Said):
            self._check_design(view.design)
        elif isinstance(view, Clustered):
            self._check_clustered(view)
        elif isinstance(view, (Coded, Drawn)):
            self._check((view.said is None) == (self.kind == "alone"), "another model than its own")
            if view.said is not None:
                self._check_design(view.said.design)
        elif isinstance(view, Seen):
            fine = self.terms.plan.privacy.dp is None or view.half == "blind"
            self._check(fine, "exact sums over rows that a private fit is trained on")

    def _check_clustered(self, view: Clustered) -> None:
        """Check a model of clusters against the arm's preprocessing and number of clusters."""
        self._check((view.said is None) == (self.kind == "alone"), "another model than its own")
        if view.said is not None:
            self._check_design(view.said.design)
            most = most_clusters(self._config)
            space = self.terms.plan.space(self.arm) if self.arm is not None else {}
            tried: Any = self._tried.get("n_clusters", ())
            if "n_clusters" in space:
                tried = space_of("n_clusters", space["n_clusters"]).values
            tried = [n for n in tried if type(n) is int]
            most = None if most is None else max(most, *tried, 0)
            fine = most is None or clusters_of(view.said.restored[1]) <= most
            self._check(fine, "the model has more clusters than its settings give")
        if view.earlier is not None:
            method = view.earlier.restored[0]
            self._check(
                any(
                    self._is_of(arm, Clustered(view.before))
                    for arm in self.terms.plan.arms
                    if (arm.method, arm.scope) == (method, "sites")
                ),
                "a model of no arm",
            )

    def _is_of(self, arm: Arm, view: Clustered) -> bool:
        try:
            Consent(self.terms, self.kind, arm, self.seed)._check_clustered(view)
        except Refused:
            return False
        return True

    def _check(self, fine: bool, what: str) -> None:
        if not fine:
            raise beyond(what)

    @cached_property
    def _bounded(self) -> Design:
        """The design of a private fit, which follows from the study."""
        roles = {role: str(self._setting(role) or "") for role in ("offset", "weights", "strata")}
        impute = self._option("impute")
        return bounded_design(self.terms.seen, self.terms.learnt, impute=impute, **roles)

    def _option(self, name: str) -> Any:
        return self.arm.preprocess.get(name, DEFAULTS[name]) if self.arm is not None else None

    @cached_property
    def _known(self) -> dict[str, Variable]:
        """The study's columns that a view may read; in a fit, those that it may see."""
        known, outcome = self.terms.dictionary, self.terms.outcome
        if self.kind not in OF_TABLES:
            known, outcome = self.terms.seen, self.terms.learnt
        found = {v.name: v for v in variables_of(known, outcome)}
        by = self._setting("by")
        if isinstance(by, str) and by in known:
            found.setdefault(by, known[by])
        return found

    def _check_variable(self, asked: Variable) -> None:
        known = self._known.get(asked.name)
        self._check(known is not None, "it reads a column that the study does not use")
        assert known is not None
        levels = known.levels or (("0", "1") if known.type in ("binary", "event") else ())
        same = (asked.type, asked.levels) in ((known.type, known.levels), ("category", levels))
        same &= (asked.since, asked.view) == (known.since, known.view)
        same &= not asked.since or asked.unit == known.unit
        self._check(same, f"column {asked.name!r} is read as another type, or with other levels")

    def _check_column(self, c: Column) -> None:
        self._check_variable(c.variable)
        taken = () if self.terms.plan.kind.joint else columns_of(self.terms.outcome)
        self._check(c.name not in taken, f"the outcome {c.name!r} is read as a feature")
        self._check(
            not c.indicator or self._option("impute") == "indicator",
            f"column {c.name!r} indicates missing values, and impute is not 'indicator'",
        )
        (self._check_levels if isinstance(c, LevelColumn) else self._check_number)(c)  # pyright: ignore[reportArgumentType]

    def _check_levels(self, c: LevelColumn) -> None:
        own = [*c.kept, *(p for p in c.pooled if p not in c.kept)]
        names = {*c.levels, *(c.kept[-1:] if c.pooled else ())}
        fine = len(set(own)) == len(own) and set(own) <= names and c.fill in c.kept
        self._check(fine, f"levels of column {c.name!r} are not in its dictionary")
        floor = self.terms.plan.min_cell > 1 or self._option("pool_levels")
        self._check(
            not c.pooled or bool(floor), f"levels of {c.name!r} are pooled, and pool_levels is off"
        )

    def _check_number(self, c: NumberColumn) -> None:
        scale, cut = self._option("scale"), self._option("winsorise") > 0
        limits = c.low is not None or c.high is not None
        self._check(
            not limits or cut or scale == "minmax",
            f"column {c.name!r} is cut at limits, and the study asks for none",
        )
        self._check(
            not c.knots or scale == "quantile",
            f"column {c.name!r} has knots, and scale is not 'quantile'",
        )
        numbers = [c.fill, c.shift, c.scale, *(x for x in (c.low, c.high) if x is not None)]
        fine = all(map(_finite, [*numbers, *c.knots, *c.shares])) and c.scale > 0
        fine &= c.low is None or c.high is None or c.low < c.high
        fine &= len(c.knots) == len(c.shares) and list(c.knots) == sorted(c.knots)
        self._check(fine, f"column {c.name!r} has invalid limits, scale or knots")

    def _check_design(self, asked: Design) -> None:
        assert self.arm is not None
        terms, method = self.terms, registry.find(self.arm.method)
        if terms.plan.privacy.dp is not None and self.arm.scope == "sites":
            self._check(asked.spec == self._bounded.spec, "a private fit scales by the dictionary")
            return
        if method.design is not None:
            own = method.design(self._config, terms.seen, terms.learnt)
            self._check(asked.spec == own.spec, "the preprocessing is not that of the method")
            return
        self._check(asked.outcome == terms.learnt, "the preprocessing has another outcome")
        classes = classes_of(terms.seen, terms.learnt)
        self._check(asked.classes == classes, "the preprocessing has other classes")
        for name in DEFAULTS:
            self._check(
                getattr(asked, name) == self._option(name), f"the preprocessing's {name} differs"
            )
        for role in ("offset", "weights", "strata"):
            fine = role in self._tried or getattr(asked, role) == (self._setting(role) or "")
            self._check(fine, f"the preprocessing's {role} differs")
        levels = strata_levels(terms.seen, terms.learnt, asked.strata)
        self._check(asked.strata_levels == levels, "the preprocessing's strata differ")
        names = [c.name for c in asked.columns]
        self._check(len(set(names)) == len(names), "the preprocessing has a column twice")
        joint = self._option("impute") == "iterative"
        self._check(asked.joint is None or joint, "impute is not 'iterative'")
        for c in asked.columns:
            self._check_column(c)


def most_numbers(kind: str, arm: Arm, trials: object) -> int:
    """Return the largest number of an arm's tuning sessions of a kind, "tune" or "score"."""
    candidates = math.prod(len(v) for v in arm.grid.values() if isinstance(v, (list, tuple)))
    if not arm.grid:
        candidates = trials if isinstance(trials, int) else MOST_TRIALS
        phases = 1 + bool(registry.find(arm.method).settings.later)  # each with as many trials
        candidates *= phases
    folds = ROW_FOLDS if arm.folds == "row-kfold" else MOST_SITES
    return candidates * (folds if kind == "tune" else 1)


def most_clusters(config: Any) -> int | None:
    """Return the largest number of clusters that settings allow; None if the data decide."""
    k = getattr(config, "n_clusters", None)
    if isinstance(k, int):
        return k
    numbers = getattr(config, "numbers", None)
    return None if numbers is None else max(numbers)


def _digest(call: Call, arguments: Mapping[str, Any]) -> str:
    """Return a digest of a step's arguments and its view."""
    made = hashlib.sha256(repr("" if call.view is None else call.view.spec).encode())
    for name in sorted(arguments):
        value = np.asarray(arguments[name])
        made.update(repr((name, value.dtype.str, value.shape)).encode() + value.tobytes())
    return made.hexdigest()


def _finite(x: Any) -> bool:
    return isinstance(x, (int, float)) and math.isfinite(x)
