"""Limits on whole numbers, booleans and texts in a session's questions.

A step's arguments are of three kinds, by their annotations:

    int, bool, str    follow from the study: the possible values are known here
    float, Array      numbers of the algorithm: free (`consent` limits those of views)
    `Step.apart`      may differ between the sites of a sum; the possible values are known

Some of the first kind are the same for every step (`_COMMON`); the method states the others
(`Method.bounds`). An argument that neither states is refused. In tuning, the values are those of
all candidates: all of a grid; of a space its ends and choices. If texts or choices between the ends
are not known beforehand, the argument is free, and still the same at all sites of a sum.

Dealt folds, ``dealt``, are checked against the asked sites: a whole site shares a fold with another
participating site, and no site is invented to seem many (`data.split.folds`).

Revealed: by a refusal, the rule.
"""

from __future__ import annotations

import inspect
import itertools
import math
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import levels_of
from fedcohort.data.prepare import Design, strata_levels
from fedcohort.data.split import BY_ROW, HIDDEN
from fedcohort.protocol import Refused, SettingError, Task, registry
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call
from fedcohort.protocol.step import Step
from fedcohort.study.at_site.holding import WHOLE
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.space import space_of
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.extras import KINDS
from fedcohort.study.run.tune import ROW_FOLDS

#: Largest number of grid combinations to examine.
MOST = 1000
#: Arguments with a study's `min_cell`.
THRESHOLDS = ("min_cell", "least")
#: Bins of a test of D-calibration.
BINS = 10
#: Sessions over tables of Table 1: with an outcome that no fit sees.
OF_TABLES = ("describe", *KINDS)

Values = Collection[Any]


class Bounds:
    """Allowed arguments of the steps of one session.

    Parameters
    ----------
    kind, arm, seed : of the session; None and 0 without.
    """

    def __init__(self, terms: Terms, kind: str, arm: Arm | None = None, seed: int = 0):
        self.terms, self.kind, self.arm, self.seed = terms, kind, arm, seed
        self._known: tuple[View | None, Mapping[str, Values | None]] | None = None

    def check(self, call: Call, arguments: Mapping[str, Any]) -> None:
        """Check one call's arguments.

        Raises
        ------
        Refused : "beyond", and which argument.
        """
        if call.step.private:
            return  # the guard of a private fit checks all its arguments
        for name in dict.fromkeys((*scalars(call.step), *THRESHOLDS)):
            if name not in arguments:
                continue
            known, allowed = self._allowed(call, name)
            if not known:
                raise beyond(f"nothing limits {name} of {call.step.name} (Method.bounds)")
            if allowed is None or _among(arguments[name], allowed):
                continue
            if name in THRESHOLDS:
                raise beyond(f"{name} is not its privacy.min_cell of {self.terms.plan.min_cell}")
            raise beyond(f"{name} of {call.step.name} differs from its settings")
        if "dealt" in arguments:
            self._check_deal(call, arguments["dealt"])

    def _allowed(self, call: Call, name: str) -> tuple[bool, Values | None]:
        """Return whether an argument is known, and its values; None if they are free."""
        own = self._of_method(call.view)
        for key in (f"{call.step.name}.{name}", name):
            if key in own:
                return True, own[key]
        if name in _COMMON:
            return True, _COMMON[name](self, call)
        return False, None

    def _of_method(self, view: View | None) -> Mapping[str, Values | None]:
        """Return the method's limits for a fit after this preprocessing."""
        if self.arm is None or self.kind not in ("fit", "tune", *KINDS):
            return {}
        if self._known is None or self._known[0] is not view:
            self._known = view, self._united(view)
        return self._known[1]

    def _united(self, view: View | None) -> Mapping[str, Values | None]:
        assert self.arm is not None
        method = registry.find(self.arm.method)
        if method.bounds is None:
            return {}
        found: list[Mapping[str, Values]] = []
        complete = True
        for chosen, each in self._candidates():
            complete = each
            try:
                config = method.configure(self.arm.configured(chosen))
                found.append(method.bounds(config, self._task(config, view)))
            except SettingError:
                continue  # such a candidate cannot be fitted
        names = {name for one in found for name in one}
        return {name: _united([one.get(name, ()) for one in found], complete) for name in names}

    def _candidates(self) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """Yield possible settings, and whether these are all of them."""
        assert self.arm is not None
        grid = {k: list(v) if isinstance(v, (list, tuple)) else [v] for k, v in self.grid.items()}
        space = self.terms.plan.space(self.arm)
        if not space and math.prod(map(len, grid.values())) <= MOST:
            for values in itertools.product(*grid.values()):
                yield dict(zip(grid, values, strict=True)), True
            return
        for name, spec in space.items():
            grid[name] = list(space_of(name, spec).values)
        for name, values in grid.items():
            yield from (({name: value}, False) for value in values)

    def _task(self, config: Any, view: View | None) -> Task:
        terms, plan = self.terms, self.terms.plan
        assert self.arm is not None
        method = registry.find(self.arm.method)
        dp = plan.privacy.dp
        whole = self.kind in OF_TABLES
        known = terms.dictionary if whole else terms.seen
        outcome = terms.outcome if whole else terms.learnt
        return Task(
            kind=plan.task,
            features=tuple(view.features) if isinstance(view, Design) else (),
            views=view.views if isinstance(view, Design) else (),
            heads=view.heads if isinstance(view, Design) else (),
            seed=self.seed,
            min_cell=plan.min_cell,
            offset=bool(getattr(config, "offset", "")),
            outcome=outcome.type if outcome else "",
            levels=levels_of(outcome, known),
            dictionary=known if method.raw else None,
            outcome_of=outcome if method.raw else None,
            dp=None if dp is None else dp.clipped(method.clips),
        )

    # what is common ---------------------------------------------------------------------

    @property
    def grid(self) -> Mapping[str, Any]:
        """Tried values by setting."""
        return {} if self.arm is None else self.arm.grid

    def chosen(self, name: str) -> list[Any]:
        """Return the possible values of an arm's setting; of a range its ends.

        "" if there is no such setting.
        """
        if self.arm is None:
            return [""]
        space = self.terms.plan.space(self.arm)
        if name in space:
            return list(space_of(name, space[name]).values)
        if name in self.grid:
            return list(self.grid[name])
        config = registry.find(self.arm.method).configure(self.arm.configured())
        return [getattr(config, name, "")]

    @property
    def strata(self) -> set[int]:
        """Possible numbers of strata."""
        d, y = self.terms.seen, self.terms.learnt
        return {len(strata_levels(d, y, str(name or ""))) for name in self.chosen("strata")}

    @property
    def models(self) -> int:
        """Largest number of models of a candidate."""
        return max(1, len(self.grid["rounds"]) if "rounds" in self.grid else 1)

    @property
    def folds(self) -> range:
        """The folds on which a candidate is evaluated: of rows, or whole sites."""
        rows = self.arm is not None and self.arm.folds == "row-kfold"
        return range(0 if rows else WHOLE, ROW_FOLDS)

    # folds --------------------------------------------------------------------------------

    def _check_deal(self, call: Call, dealt: object) -> None:
        """Check dealt folds against the sites of the sum."""
        if type(dealt) is not dict:
            raise beyond("folds are dealt in no known form")
        deal = cast("dict[str, Any]", dealt)
        if not call.among:
            if self.terms.plan.privacy.secure != "false" and len(deal) >= HIDDEN:
                raise beyond("folds are dealt to more sites than are asked")
            return
        if set(call.among) - set(deal):
            raise beyond("folds are not dealt to all sites that are asked")
        there = [deal[site] for site in call.among]
        if set(there) == {BY_ROW}:
            return
        if self.terms.plan.min_cell > 1 and any(there.count(k) < 2 for k in there):
            raise beyond("a fold is of a single site that takes part")


def beyond(what: str) -> Refused:
    """Return the refusal of a call that goes beyond the study."""
    return Refused("beyond", f"the coordinator asks for more than the approved study: {what}.")


@lru_cache(maxsize=512)
def scalars(step: Step[..., Any]) -> tuple[str, ...]:
    """Return the names of a step's int, bool and str arguments."""
    hints = typing.get_type_hints(step.run)
    names = list(inspect.signature(step.run).parameters)[1:]
    return tuple(name for name in names if hints.get(name) in (int, bool, str))


def _most_levels(bounds: Bounds, call: Call) -> Values:
    coded = call.view.coded if isinstance(call.view, Encoding) else ()
    return (max((len(v.levels) for v in coded), default=0),)


def _rounding(bounds: Bounds, call: Call) -> Values:
    return (True, *(v for v in bounds.chosen("rounding") if v is False))


def _stratum(bounds: Bounds, call: Call) -> Values:
    return range(-1, max(bounds.strata) if bounds.kind in ("fit", "tune") else 0)


def _first(bounds: Bounds, call: Call) -> Values:
    return (0,)


def _n_classes(bounds: Bounds, call: Call) -> Values:
    found = levels_of(bounds.terms.learnt, bounds.terms.seen)
    return (len(found) if len(found) > 2 else 0,)


def _bins(bounds: Bounds, call: Call) -> Values:
    return (BINS,)


def _leavers(bounds: Bounds, call: Call) -> Values:
    return (False, True) if bounds.kind in ("fit", "tune") else (False,)


def _either(bounds: Bounds, call: Call) -> Values:
    return (False, True)


#: Arguments that mean the same in every step.
_COMMON: Mapping[str, Callable[[Bounds, Call], Values]] = {
    "min_cell": lambda b, _: (b.terms.plan.min_cell,),
    "least": lambda b, _: (max(b.terms.plan.min_cell, 1),),
    "rounding": _rounding,
    "seed": lambda b, _: (b.seed,),
    "offset": lambda b, _: [bool(v) for v in b.chosen("offset")],
    "strata": lambda b, _: b.strata,
    "stratum": _stratum,
    "leavers": _leavers,  # a fit's grid is of deaths, or of all exits
    "most_levels": _most_levels,
    "n_classes": _n_classes,
    "fold": lambda b, _: b.folds,
    "model": lambda b, _: range(b.models),
    "models": lambda b, _: range(1, b.models + 1),
    "column": _first,
    "bins": _bins,
    "cosine": _either,  # whether all features are 0/1, which depends on the data
}


def _united(found: list[Values], complete: bool) -> Values | None:
    """Return all values of an argument; None if other candidates' values are not known."""
    if all(isinstance(one, range) for one in found):
        spans = [one for one in cast("list[range]", found) if one]
        return range(min(s.start for s in spans), max(s.stop for s in spans)) if spans else ()
    if complete:
        return [v for one in found for v in one]
    return found[0] if all(list(one) == list(found[0]) for one in found) else None


def _among(value: Any, allowed: Values) -> bool:
    if isinstance(allowed, range):
        return type(value) is int and value in allowed
    return any(v(value) if callable(v) else type(v) is type(value) and v == value for v in allowed)
