"""A site's side of evaluation: a model's predictions of the site's own rows, and the steps on them.

An evaluation's federation holds `Rows`, a repeat's two halves. The coordinator never sees them; it
sends a view with a half, a model and times:

    Seen    the outcome only: of training rows for the censoring, of blind rows for the times, of
            all rows for the cells of time; in a private study of blind rows only
    Said    a model's predictions of the blind rows; the model is sent as arrays, meta and design
            or what its posterior tells of each row (``of``)
    Own     predictions by the site's own model, which the site has fitted itself and keeps
            (`alone`)

Of several classes, predictions are (n, K); `Said` and `Own` also give those of one class against
the rest, as of a yes/no outcome (``one``).

All give `Judged`, for the steps of every metric. A prediction that is not finite is replaced by 0,
and `lost` counts such rows.

Revealed: by the views nothing; by the steps what they declare. All are sums over sites except
`tell_own`, which a site answers only with enough events, or rows of each class, to publish the
metric.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import stacked
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.prepare import Design
from fedcohort.metrics.sums import classes as federated_classes
from fedcohort.metrics.sums import posterior as federated_posterior
from fedcohort.metrics.sums import predictions as federated
from fedcohort.metrics.sums import values as federated_values
from fedcohort.metrics.sums import within_sites
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol import DataError, Fitted, registry
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.protocol.views import view
from fedcohort.protocol.wire import decode, encode
from fedcohort.study.at_site.table import Halves
from fedcohort.study.judge.leading import LEADING, Outcomes
from fedcohort.study.judge.shown.posterior import told_of
from fedcohort.study.run.engine import Run

#: Values that `Said` may give: as risk the model's prediction, or survival at the first time; or
#: what its posterior tells.
OF = ("risk", "survival", "posterior")
#: Largest number of times of predicted survival in a view.
MOST_TIMES = 1000
#: Not one class against the rest.
EVERY = -1
#: Training and blind rows together.
ALL = "all"
#: Nothing asked of a posterior.
NOTHING = np.zeros((0, 0))


class Judged(NamedTuple):
    """Rows (n,) for the steps of metrics.

    By ``kind`` of task: ``risk``, ``surv`` (n, m), ``time``, ``event`` for survival; ``y``, ``f``
    for classes and values, where ``risk`` is ``f``, of several classes (n, K). ``lost`` is the
    number of rows without a finite prediction, ``least`` the smallest published count. ``fold``
    (n,) in tuning. ``classes`` : their number, 0 without. ``told`` (n, k) is what a posterior tells
    of each row (`metrics.uncertainty.of_rows`), without columns if nothing was asked.
    """

    risk: Array
    surv: Array
    time: Array
    event: Array
    y: Array
    f: Array
    lost: int
    least: int
    kind: str
    fold: Array
    classes: int = 0
    told: Array = NOTHING

    @property
    def seen(self) -> Outcomes:
        """The rows' outcomes."""
        y = self.event if self.kind == Survival.kind else self.y
        return Outcomes(self.time, y, self.classes)

    def of_class(self, one: int) -> Judged:
        """Return the rows with one class against the rest.

        Raises
        ------
        DataError : there are not several classes, or none of this number.
        """
        if not (self.seen.several and self.f.ndim == 2 and one < self.classes):
            raise DataError("the study has no such class to judge against the rest.")
        p = self.f[:, one]
        return self._replace(y=(self.y == one).astype(float), f=p, risk=p, classes=2)


@dataclass
class Rows:
    """One site's rows in one repeat.

    Attributes
    ----------
    outcome, dictionary : of the study; outcome None for clusters without one.
    method : whose models may be sent.
    least : smallest published count.
    fold : fold of each blind row (n,) in tuning.
    """

    halves: Halves
    outcome: Outcome | None
    dictionary: Dictionary
    method: str
    least: int
    fold: Array | None = None

    def own(self, fit: int = -1) -> tuple[Fitted, Design] | None:
        """Return the site's own model, in tuning of this fit; None if its rows give none."""
        raise DataError("this session has no model of a single site.")

    def judged(self, rows: pd.DataFrame, said: Array, surv: Array) -> Judged:
        """Return rows with a model's predictions."""
        wide = said if said.ndim > 1 else said[:, None]
        sound = np.all(np.isfinite(np.column_stack([wide, surv])), axis=1)
        said = np.where(sound[:, None], wide, 0.0).reshape(said.shape)
        surv = np.where(sound[:, None], surv, 0.0)
        lost, nothing = int((~sound).sum()), np.zeros(len(said))
        seen = Outcomes.of(rows, self.outcome, self.dictionary)
        more = self._of(lost, seen.classes)
        if isinstance(self.outcome, Survival):
            return Judged(said, surv, seen.time, seen.y, nothing, nothing, *more)
        return Judged(said, surv, nothing, nothing > 0, seen.y, said, *more)

    def _of(self, lost: int, classes: int) -> tuple[int, int, str, Array, int]:
        fold = np.zeros(0, np.int64) if self.fold is None else self.fold
        kind = "" if self.outcome is None else self.outcome.kind
        return lost, self.least, kind, fold, classes


@view("seen")
@dataclass(frozen=True)
class Seen:
    """The outcome only, of one half.

    Attributes
    ----------
    half : "train", "blind", or "all" rows.
    """

    half: str

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return json.dumps({"half": self.half}, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view."""
        parts = json.loads(text)
        made = cls(str(parts["half"]))
        if made.half not in (*Halves._fields, ALL):
            raise ValueError("half")
        return made

    def __call__(self, data: Rows, /) -> Judged:
        """Return the outcome of the rows; every risk is 0."""
        halves = list(data.halves) if self.half == ALL else [getattr(data.halves, self.half)]
        rows = stacked(halves)
        return data.judged(rows, np.zeros(len(rows)), np.zeros((len(rows), 0)))


@view("said")
@dataclass(frozen=True)
class Said:
    """View of a site's rows: the predictions of a model for the blind ones.

    Attributes
    ----------
    model : base64 of its arrays, meta, method and design, as `wire` encodes them.
    times : times of predicted survival; empty for none.
    of : one of `OF`, what is given.
    one : of several classes, the number of the one that is judged against the rest; `EVERY`.
    """

    model: str
    times: tuple[float, ...] = ()
    of: str = OF[0]
    one: int = EVERY

    @classmethod
    def by(cls, run: Run, method: str) -> Self:
        """Return the view of a fit's model."""
        meta = {"method": method, "meta": run.model.meta(), "design": run.design.to_json()}
        return cls(base64.b64encode(encode(run.model.arrays(), meta)).decode())

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        parts = {"model": self.model, "times": self.times, "of": self.of} | _asked(self.one)
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view."""
        parts = json.loads(text)
        made = cls(str(parts["model"]), _times(parts["times"]), str(parts["of"]), _one(parts))
        if made.of not in OF or (made.of == OF[1] and not made.times):
            raise ValueError("of")
        base64.b64decode(made.model, validate=True)
        return made

    @property
    def design(self) -> Design:
        """The model's preprocessing.

        Raises
        ------
        DataError : the text holds no model.
        """
        return self.restored[2]

    @cached_property
    def restored(self) -> tuple[str, Fitted, Design]:
        """Method, model and design.

        Raises
        ------
        DataError : the text holds no model.
        """
        try:
            arrays, meta = decode(base64.b64decode(self.model, validate=True))
            method = str(meta["method"])
            model = registry.find(method).model.restore(arrays, meta["meta"])
            return method, model, Design.from_json(str(meta["design"]))
        except (LookupError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            kind = type(error).__name__
            raise DataError(f"the sent model cannot be restored ({kind}).") from None

    def model_of(self, method: str) -> tuple[Fitted, Design]:
        """Return model and design of a session's method.

        Raises
        ------
        DataError : the text holds no model, or one of another method.
        """
        found, model, design = self.restored
        if found != method:
            raise DataError("the sent model is of another method than the session's.")
        return model, design

    def __call__(self, data: Rows, /) -> Judged:
        """Return the model's predictions of the site's blind rows.

        Raises
        ------
        DataError : as `model_of`; the predictions have another form than the outcome needs.
        """
        found = said_of(data, *self.model_of(data.method), self.times, self.of)
        return found if self.one == EVERY else found.of_class(self.one)


@view("own")
@dataclass(frozen=True)
class Own:
    """The own model's predictions of a site's blind rows.

    Without a model all risks are equal; if curves are needed, there are no rows.

    Attributes
    ----------
    times : times of predicted survival; empty for none.
    one : as of `Said`.
    fit : in tuning, the number of the fit whose model it is; −1 otherwise.
    """

    times: tuple[float, ...] = ()
    one: int = EVERY
    fit: int = -1

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        tried = {"fit": self.fit} if self.fit >= 0 else {}
        return json.dumps({"times": self.times} | _asked(self.one) | tried, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view.

        Raises
        ------
        DataError : the number of the fit is none.
        """
        parts = json.loads(text)
        fit = parts.get("fit", -1)
        if type(fit) is not int or fit < -1:
            raise DataError("the view of a site's own model has no such number of a fit.")
        return cls(_times(parts["times"]), _one(parts), fit)

    def __call__(self, data: Rows, /) -> Judged:
        """Return the own model's predictions; without a model, the same for all patients."""
        judged = self._judged(data)
        return judged if self.one == EVERY else judged.of_class(self.one)

    def _judged(self, data: Rows) -> Judged:
        found = data.own(self.fit)
        if found is not None and not (self.times and _has_no_curve(found[0])):
            return said_of(data, *found, self.times, OF[0])
        blind = data.halves.blind
        if self.times:
            blind = blind.iloc[:0]
        alike, shape = 0.0, (len(blind),)
        if data.outcome is not None and data.outcome.has_classes:
            classes = len(data.outcome.levels(data.dictionary))
            alike, shape = 1.0 / classes, shape if classes == 2 else (len(blind), classes)
        elif data.outcome is not None and not isinstance(data.outcome, Survival):
            alike = float(data.outcome.values(data.halves.train).mean())
        return data.judged(blind, np.full(shape, alike), np.zeros((len(blind), len(self.times))))


def _has_no_curve(model: Fitted) -> bool:
    """Return whether a survival model of one site has no baseline hazard, for lack of deaths."""
    return getattr(model, "baseline", model) is None


def _asked(one: int) -> dict[str, int]:
    """Return what a view's text says of one class."""
    return {} if one == EVERY else {"one": one}


def _one(parts: dict[str, Any]) -> int:
    """Return the class of a view's text.

    Raises
    ------
    ValueError : it is no number of a class.
    """
    one = parts.get("one", EVERY)
    if type(one) is not int or one < EVERY or ("one" in parts and one == EVERY):
        raise ValueError("one")
    return one


def _times(given: list[Any]) -> tuple[float, ...]:
    """Return the times of a text.

    Raises
    ------
    ValueError : more than `MOST_TIMES`, which would exhaust a site's memory.
    """
    if len(given) > MOST_TIMES:
        raise ValueError("times")
    return tuple(map(float, given))


def said_of(data: Rows, model: Fitted, design: Design, times: tuple[float, ...], of: str) -> Judged:
    """Return a model's predictions of a site's blind rows."""
    blind = data.halves.blind
    x = design.matrix(blind)
    if of == OF[2]:
        return _of_posterior(data, model, x)
    with np.errstate(over="ignore", invalid="ignore"):  # predictions may overflow
        at = np.array(times)
        surv = model.predict_survival(x, at) if times else np.zeros((len(blind), 0))
        timed = data.outcome is not None and data.outcome.kind == Survival.kind
        score = model.log_hazard if timed else model.predict
        said = surv[:, 0] if of == OF[1] else score(x)
    found = data.judged(blind, np.asarray(said, float), np.asarray(surv, float))
    found.seen.fits(found.risk)
    return found


def _of_posterior(data: Rows, model: Fitted, x: Array) -> Judged:
    """Return what a posterior tells of the blind rows; without predictions."""
    blind, outcome = data.halves.blind, data.outcome
    if outcome is None:
        raise DataError("the study has no outcome that a posterior could be of.")
    found = data.judged(blind, np.zeros(len(blind)), np.zeros((len(blind), 0)))
    columns = told_of(model, x, found.seen, outcome)
    told = np.array([*columns.values()]).reshape(len(columns), len(blind)).T
    sound = np.all(np.isfinite(told), axis=1)
    return found._replace(told=np.where(sound[:, None], told, 0.0), lost=int((~sound).sum()))


# a site by itself ---------------------------------------------------------------------


@message
class OwnRank:
    """The leading metric on a site's own blind rows, its standard error, and ``told``: ().

    Both are rounded to what `min_cell` patients can change (`privacy.disclosure.rounding`, eq. 3).
    """

    value: Array
    error: Array
    told: Array


@gathered
def tell_own(site: Site[Judged, None], *, min_cell: int) -> OwnRank:
    """The leading metric on the site's own blind rows, if these are enough."""
    d, least = site.data, max(min_cell, site.data.least)
    leading, seen = LEADING[d.kind], d.seen
    found = None
    if not d.lost and leading.may_be_shown(seen, least):
        found = leading.influence(d.risk, seen)
    if found is None or not np.isfinite([found.value, found.error]).all():
        return OwnRank(np.array(0.0), np.array(0.0), np.array(False))
    n = leading.count(seen)
    value = by_patients(found.value, n, least, most=1.0)
    error = by_patients(found.error, n, least, up=True)
    return OwnRank(np.array(value), np.array(error), np.array(True))


#: Steps of an evaluation: no exact times of death, and no sums over risk sets of two sites, whose
#: differences are of the few patients who left in between.
STEPS: tuple[Any, ...] = (
    *timegrid.STEPS[:-1],
    *(s for s in federated.STEPS if s.name != federated.sum_slope.name),
    *within_sites.STEPS,
    *federated_values.STEPS,
    *federated_classes.STEPS,
    *federated_posterior.STEPS,
    tell_own,
)
