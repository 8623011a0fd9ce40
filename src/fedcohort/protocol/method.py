"""Declaration of a method, and the interface of its fitted model.

A method is found by entry point (group ``fedcohort.algorithms``), so that a third party adds
one without changing this package: a folder with a `program.py`, and one line in its
`pyproject.toml` that points to a `Method`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import DataError, NotSupported, SettingError
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.private import Dp, Release
from fedcohort.protocol.settings import Settings
from fedcohort.protocol.step import Step

#: One row of a fit's summary: a name and numbers, e.g. covariate, coefficient, standard error.
Row = dict[str, Any]


#: What a fit with differential privacy reveals, for every method.
NOISY = (
    "Only replies to which each site has added noise: a fit reveals nothing exact about a training "
    "row. Table 1 of a study, and its counts of rows and events, are exact and no part of this."
)


@dataclass(frozen=True)
class OwnRows:
    """Rows of the coordinator itself, as tables of the form that steps see.

    Attributes
    ----------
    first : for a first model; None without.
    validation : for a validation loss; None without.
    """

    first: Any = None
    validation: Any = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a program needs to know besides its settings and its sites.

    Attributes
    ----------
    kind : survival, classification, regression, clustering or latent.
    features : names of the columns of x, in order, (p,).
    pairs : (p, 2), the two values of each feature with two values, such as a level; NaN for others,
        and () if unknown.
    views : view (modality) of each column of x, in order, (p,), by the dictionary; "" for none.
    offset : whether the last feature is an offset, which has no coefficient and is added to the
        linear predictor.
    strata : levels of the column whose levels each have a baseline hazard; () without.
    outcome : its type in lower case: survival, binary, category, ordinal, continuous or count; ""
        without.
    levels : classes of the outcome in the order of their numbers 0, 1, …; () without classes.
    seed : of all random draws at the coordinator.
    min_cell : smallest count in a cell of anything revealed.
    origin : (p,), a public point near the middle of each feature, about which sums of squares lose
        no digits; None if unknown.
    dictionary, outcome_of : for a raw method: the data dictionary, and the outcome
        (None without).
    agreed : for a raw method: which site hides which cell of Table 1 (`data.describe.agreed`); None
        if only the sites' own rules apply.
    dp : request of a private fit; None for other fits.
    reach : for a private fit: lowest and highest usual outcome by the dictionary; None without.
    heads : distribution (`data.prepare.Head`) of each source column of x but the offset, in order;
        () if unknown.
    own : rows of the coordinator itself; None without.
    explained : whether the sites are asked for what explains the model (`Fitted.explained`).
    """

    kind: str
    features: tuple[str, ...]
    seed: int = 0
    min_cell: int = 5
    offset: bool = False
    strata: tuple[str, ...] = ()
    outcome: str = ""
    origin: Array | None = None
    dictionary: Any = None
    outcome_of: Any = None
    agreed: Any = None
    dp: Dp | None = None
    reach: tuple[float, float] | None = None
    views: tuple[str, ...] = ()
    pairs: tuple[tuple[float, float], ...] = ()
    levels: tuple[str, ...] = ()
    heads: tuple[Any, ...] = ()
    own: OwnRows | None = None
    explained: bool = True

    @property
    def usual(self) -> tuple[float, float]:
        """Lowest and highest usual outcome, which a private fit needs.

        Raises
        ------
        DataError : the dictionary has none.
        """
        if self.reach is None or not self.reach[0] < self.reach[1]:
            raise DataError(
                "the outcome has no range in the dictionary, but a private fit needs one. Give it "
                "'usual: [low, high]', the range of most patients."
            )
        return self.reach

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator for the coordinator's own draws."""
        return np.random.default_rng((self.seed, 0x636F6F7264))


class Estimates(NamedTuple):
    """Coefficients with their uncertainty, which are pooled over imputed tables.

    Attributes
    ----------
    names : of the k coefficients; an intercept is first and has the name "intercept".
    values, covariance : (k,) and (k, k).
    freedom : degrees of freedom of the residual; infinite if the normal distribution is used.
    level : coverage of intervals.
    ratio : name of exp(coefficient); "" without.
    """

    names: tuple[str, ...]
    values: Array
    covariance: Array
    freedom: float
    level: float
    ratio: str


class Fitted(ABC):
    """A fitted model at the coordinator: arrays to save, and what it can compute from x.

    A subclass overrides what its method supports; the rest raises `NotSupported`.
    """

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """Return all arrays of the model, by name."""

    @abstractmethod
    def meta(self) -> dict[str, Any]:
        """Return everything else that `restore` needs, as JSON-able values."""

    @classmethod
    @abstractmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from the results of `arrays` and `meta`."""

    def files(self) -> Mapping[str, bytes]:
        """Return files in formats of other programs, by name, to write beside the saved model.

        They repeat the model, and are not read back; most often none.
        """
        return {}

    def predict(self, x: Array) -> Array:
        """Return the risk score, probability, value or label of each row of x (n, p): (n,).

        Of an outcome of type category or ordinal: the probability of each class, (n, K) in the
        order of `Task.levels`; rows add to 1.
        """
        raise NotSupported("predict")

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) of each row of x (n, p) that a posterior gives.

        It holds, with probability `level`, the probability of class 1, the log risk, or a new
        value.
        """
        raise NotSupported("intervals")

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return the epistemic and the aleatoric variance of the outcome (n,) of rows x (n, p).

        The first is due to the model's parameters and falls with more rows; the second does not.
        """
        raise NotSupported("uncertainty")

    def log_density(self, x: Array, y: Array, event: Array) -> Array:
        """Return ln p(y | x) of outcomes y (n,) of rows x (n, p), by the predictive distribution.

        Of survival y is a time, and where `event` (n,) is False it is ln P(T > y | x); other
        outcomes do not use `event`. Not of classes, whose log loss says the same.
        """
        raise NotSupported("log_density")

    def unlike_training(self, x: Array) -> Array:
        """Return how unlike the training rows each row of x (n, p) is (n,), from 0 to 1."""
        raise NotSupported("unlike_training")

    def divergence(self, other: Fitted) -> float:
        """Return E_q[ln q − ln r] of this posterior q from another model's r, in nats.

        Raises
        ------
        NotSupported : no posterior, or one of other parameters.
        """
        raise NotSupported("divergence")

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m).

        It is constant after `known_until`.
        """
        raise NotSupported("predict_survival")

    def log_hazard(self, x: Array) -> Array:
        """Return the log hazard of each row of x (n, p), up to a constant: (n,).

        Judges of survival rank by it and fit the calibration slope to it. It is `predict` where
        that is a log hazard.
        """
        return self.predict(x)

    def median_survival(self, x: Array) -> Array | None:
        """Return the median survival time of each row of x (n, p) in closed form: (n,).

        None without such a form: the median is then where the curve's steps reach 1/2.
        """
        return None

    def known_until(self, x: Array) -> Array:
        """Return the time (n,) up to which the survival of each row of x (n, p) is estimated."""
        return np.full(len(x), np.inf)

    def transform(self, x: Array) -> Array:
        """Return the latent coordinates of each row of x (n, p): (n, q)."""
        raise NotSupported("transform")

    def memberships(self, x: Array) -> Array:
        """Return the membership of each row of x (n, p) in k clusters: (n, k), rows add to 1.

        Columns are in the order of the labels of `predict`.
        """
        raise NotSupported("memberships")

    def reconstruct(self, x: Array) -> Array:
        """Return the model's reconstruction of x (n, p): (n, p)."""
        raise NotSupported("reconstruct")

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows: (n, p)."""
        raise NotSupported("sample")

    def sample_outcome(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return n synthetic rows x (n, p) with their outcomes (n, k), of a model of both.

        Survival, k = 2: a time above 0, and an event 0 or 1, as a study would observe them: the
        time is the smaller one of a drawn event time and a drawn censoring time. A model without a
        distribution of censoring gives events up to the last time that it knows, and beyond it that
        time without an event. Classes, k = 1: the number in the order of `Task.levels`. Numbers,
        k = 1: the value.
        """
        raise NotSupported("sample_outcome")

    def undrawn(self) -> tuple[str, ...]:
        """Return the features that `sample` leaves empty in every row."""
        return ()

    def unprotected(self) -> str:
        """Return why the guarantee of a private fit does not cover the rows that this model draws,
        as a sentence; "" if it does.
        """
        return ""

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with its missing entries filled."""
        raise NotSupported("impute")

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with one draw of its missing entries given the known ones.

        If the method draws its parameters, a draw also varies as far as these are unknown.
        """
        raise NotSupported("impute_drawn")

    def imputed_sd(self, x: Array) -> Array:
        """Return the standard deviation of the entries that `impute` fills in x (n, p), 0 for
        known ones.
        """
        raise NotSupported("intervals of imputed values")

    def summary(self) -> list[Row]:
        """Return one row per coefficient, with its standard error, interval and p-value."""
        raise NotSupported("summary")

    def inference(self) -> Estimates:
        """Return the coefficients with their covariance, for fits of several imputed tables."""
        raise NotSupported("inference")

    def parameters(self, times: Array) -> list[Row]:
        """Return the parameters besides those of covariates, such as the intercept.

        Keys are name and value, and optionally standard_error, p, low, high and note; a
        baseline survival, at each of `times` (m,), has its time. A posterior predictive check has
        low and high, which hold 95 % of the draws, and share_above, of draws above the value.
        """
        raise NotSupported("parameters")

    def splits(self) -> list[Row]:
        """Return one row per covariate that trees split, that of the largest share first.

        Keys are covariate; share (of the reduction of the loss by all splits); weight (number of
        splits), gain and cover (means over them), total_gain and total_cover.
        """
        raise NotSupported("splits")

    def others(self) -> list[Row]:
        """Return the value of each other site for the user of a personal model, the best first.

        Keys are site, measure (meaning of value), value, chosen (whether the model uses it), and
        optionally low and high. If less is better, `least` is true.
        """
        raise NotSupported("others")

    def place_of(self, site: str) -> Row:
        """Return what a hospital is told of its own place in a ranking of sites.

        Keys are measure (meaning of value), least (whether less is better), rank (from 1) and
        value, None for a site that is not ranked; of (number of ranked sites); loss_without and
        loss_with (the user's loss without and with this site), None if unknown; chosen and
        n_chosen; user (whether the model is for this site); reason (why it is not ranked). No
        number is of a third site.
        """
        raise NotSupported("ranking of sites")

    def proportional_hazards(self) -> list[Row]:
        """Return one row per covariate, with the test of an effect that changes with time."""
        raise NotSupported("proportional_hazards")

    def proportional_odds(self) -> list[Row]:
        """Return one row per covariate, with the test of an effect that differs by threshold."""
        raise NotSupported("proportional_odds")

    def curves(self) -> list[Row]:
        """Return one row per group and time, with numbers at risk, the curve and its interval."""
        raise NotSupported("curves")

    def maps(self) -> list[Row]:
        """Return the images that the model makes of its columns, a row for each; most often none.

        Keys are view, side, and by pixel, row by row, features and likeness: a column's name and
        its mean correlation with those in pixels around it; None for an empty pixel.
        """
        return []

    def explained(self) -> list[Row]:
        """Return means of a model of trees over training rows; most often none.

        Keys are kind, covariate, class (None without several), value. By kind: absolute, the mean
        absolute Shapley value; shift, the mean Shapley value of rows with low ≤ x < high (None: no
        limit, or all three None: missing), at a value in between; curve, the mean prediction of all
        rows with the covariate at a value. The first row, about, has the numbers of rows that
        the means are of, rows, and of training rows, of; the unit of Shapley values, margin; and
        what the curves are a mean of, mean.
        """
        return []

    def cautions(self) -> tuple[str, ...]:
        """Return warnings about how the fit ended, one clause each; most often none."""
        return ()

    def at_round(self, rounds: int) -> Fitted:
        """Return the model after `rounds` rounds, if the fit kept it.

        Tuning uses this: one fit gives every smaller number of rounds.
        """
        raise NotSupported("at_round")


#: Methods of `Fitted` that a model supports if its class overrides them.
GIVEN = (
    "predict", "predict_survival", "transform", "memberships", "reconstruct", "sample", "impute",
    "impute_drawn", "summary", "parameters", "splits", "others", "proportional_hazards",
    "proportional_odds", "curves", "at_round",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrivateFits:
    """Differentially private fits of a method.

    Attributes
    ----------
    releases : (settings, request) → every release of a fit. Raises `SettingError` for
        settings without a private fit.
    held : (settings, task) → step → argument → its value in every call of a fit, which follows from
        the study; a site refuses other values.
    reveals : (settings, request) → what leaves a site, in plain words; None if there is nothing to
        add to the noise in replies.
    clips : unit → C, the default clipping norm.
    """

    releases: Callable[[Any, Dp], Sequence[Release]]
    held: Callable[[Any, Task], Mapping[str, Mapping[str, Any]]]
    reveals: Callable[[Any, Dp], str] | None = None
    clips: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method of the catalogue.

    Attributes
    ----------
    name : as users type it.
    title : one line, for the catalogue.
    tasks : kinds of task.
    outcomes : types of outcome that it can learn, of those of its tasks; a raw method takes any.
    paper : its source.
    reveals : what leaves a site, in plain words, for all settings.
    reveals_with : the same for given settings, if it depends on them.
    settings : a frozen dataclass of `Settings`, whose fields are made by `setting`.
    fit : the coordinator's program, (federation, settings, task) → fitted model.
    model : class of the fitted model, for loading from disk.
    steps : every site step that the program can call, with any settings.
    asks : settings → those of `steps` that a fit with them can call; None for all.
    bounds : (settings, task) → by argument, or ``step.argument``, the values that a fit with them
        can give to arguments of its steps that are whole numbers, booleans, or text; a site of an
        approved study refuses others. Arguments with the same meaning in all methods (`min_cell`,
        `seed`, ...) may be left out. The task's features are () for a step without a design. In
        the place of a value may stand a function, which returns whether it may be given.
    preprocess : the method's defaults for the preprocessing.
    unguarded : for a program that does not call `data.exact`: why no reply of a fit is of few
        records, in plain words, with the responsible module in backticks; else "".
    design : (settings, dictionary, outcome) → the design, if the method makes one without asking
        the sites; None for that of the preprocessing.
    entries : whether it uses the start of observation (left truncation).
    raw : whether the program sees the sites' data frames, without preprocessing; its fits then
        take no table (no `predict` and the like).
    private : its differentially private fits; None without.
    for_site : (settings, task, site, what its last step left at the site) → lines in plain words
        for that site alone; None if there are none.
    own_model : (site, design, arguments of a step, what it left at the site) → the model of its
        own that the site has finished and keeps, or None; None if no fit leaves one.
    package : package that every site of a fit needs besides the method's own, from the
        extra with the method's name; "" for none.
    ranking : settings with which a fit ranks the sites and trains nothing together; its model has
        `place_of`. None for a method without such a ranking.
    own : settings → why a fit with them cannot use rows of the coordinator (`Task.own`), or "";
        None if no fit can.
    forget : (federation, settings, task, model) → the model without the sites that the federation
        lacks, from what the others keep of the fit of `model`; `rounds` of the settings, if any,
        are those of this call. Raises `NotSupported` where only a new fit forgets. None if no fit
        can.
    forgets : steps that only `forget` asks, besides those of a fit.
    not_for : by task that it does not serve although a user may expect it, why, and what to do.
    """

    name: str
    title: str
    tasks: tuple[str, ...]
    paper: str
    reveals: str
    settings: type[Settings]
    fit: Callable[[Federation, Any, Task], Fitted]
    model: type[Fitted]
    steps: tuple[Step[..., Any], ...]
    preprocess: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reveals_with: Callable[[Any], str] | None = None
    raw: bool = False
    design: Callable[[Any, Any, Any], Any] | None = None
    entries: bool = False
    asks: Callable[[Any], Iterable[Step[..., Any]]] | None = None
    bounds: Callable[[Any, Task], Mapping[str, Collection[Any]]] | None = None
    private: PrivateFits | None = None
    for_site: Callable[[Any, Task, str, Mapping[str, Array]], Sequence[str]] | None = None
    own_model: (
        Callable[[str, Any, Mapping[str, Any], Mapping[str, Array]], Fitted | None] | None
    ) = None
    package: str = ""
    ranking: Mapping[str, Any] | None = None
    unguarded: str = ""
    outcomes: tuple[str, ...] = ("survival", "binary", "continuous", "count")
    own: Callable[[Any], str] | None = None
    forget: Callable[[Federation, Any, Task, Any], Fitted] | None = None
    forgets: tuple[Step[..., Any], ...] = ()
    not_for: Mapping[str, str] = field(default_factory=dict[str, str])

    #: Settings of every method, which the caller handles before the program runs.
    COMMON: ClassVar[frozenset[str]] = frozenset(
        {"scale", "impute", "imputer", "imputations", "winsorise", "pool_levels"}
    )

    def why_not(self, task: str) -> str:
        """Return " " and why it does not serve a task, if it says so; else ""."""
        return f" {self.not_for[task]}" if task in self.not_for else ""

    @property
    def gives(self) -> frozenset[str]:
        """What the model supports, for all tasks; see `given`."""
        return frozenset(filter(self.overrides, GIVEN))

    def overrides(self, name: str) -> bool:
        """Return whether the model has its own method `name` of `Fitted`, as it may of a posterior
        beside those of `GIVEN`.
        """
        return getattr(self.model, name) is not getattr(Fitted, name)

    @property
    def gaps(self) -> bool:
        """Whether x may have missing entries, NaN: true if the method's default does not fill
        them.
        """
        return self.preprocess.get("impute") == "none"

    @property
    def clips(self) -> Mapping[str, float]:
        """Clipping norms of private fits; see `PrivateFits`."""
        return {} if self.private is None else self.private.clips

    @property
    def fields(self) -> list[dataclasses.Field[Any]]:
        """Its declared settings, its own before shared ones."""
        order = [list(_annotated(c)) for c in self.settings.__mro__]

        def place(f: dataclasses.Field[Any]) -> tuple[int, int]:
            return next((k, own.index(f.name)) for k, own in enumerate(order) if f.name in own)

        return sorted(dataclasses.fields(self.settings), key=place)

    def solver_of(self, name: str) -> str:
        """Return the one value of `solver` that uses a setting; "" if there is no such value.

        A class of settings of one solver names it: ``of_solver: ClassVar[str]``.
        """
        if "solver" not in self.settings.__dataclass_fields__:
            return ""
        origin = next(c for c in self.settings.__mro__ if name in _annotated(c))
        return str(vars(origin).get("of_solver", ""))

    @property
    def lacking(self) -> str:
        """Error about a package to install for a fit here; "" if none is needed."""
        if not self.package or find_spec(self.package) is not None:
            return ""
        return (
            f"method {self.name!r} needs the package {self.package}: pip install "
            f"'fedcohort[{self.name}]'."
        )

    def takes(self, outcome: str) -> bool:
        """Return whether fits can learn an outcome of a type; see `outcomes`."""
        return self.raw or outcome in self.outcomes

    def given(self, kind: str) -> frozenset[str]:
        """Return what a fit of a kind of task supports; only survival has survival curves."""
        return self.gives if kind == "survival" else self.gives - {"predict_survival"}

    def asked(self, config: Any) -> tuple[Step[..., Any], ...]:
        """Return the steps that a fit with these settings can call, in the order of `steps`."""
        if self.asks is None:
            return self.steps
        wanted = {step.run for step in self.asks(config)}
        return tuple(step for step in self.steps if step.run in wanted)

    def check_gaps(self, table: Mapping[str, Any]) -> None:
        """Refuse a preprocessing that leaves missing values, unless the method takes them.

        Parameters
        ----------
        table : options of the preprocessing.

        Raises
        ------
        SettingError : ``impute`` is "none" and the method takes no missing values.
        """
        if table.get("impute") == "multiple" and not (self.raw or self.overrides("inference")):
            raise SettingError(
                f"impute is 'multiple', which pools coefficients with standard errors, and method "
                f"{self.name!r} has none. Take 'cox', 'logistic', 'glm' or 'ridge', or impute "
                f"'iterative'."
            )
        if table.get("impute") == "none" and not self.gaps:
            raise SettingError(
                f"impute is 'none', and method {self.name!r} takes no missing values. Fill them, "
                f"by 'median' say; `fedcohort methods {self.name}` lists the ways."
            )

    def revealed(self, config: Any, dp: Dp | None) -> str:
        """Return in plain words what leaves a site in a fit.

        Parameters
        ----------
        config : settings of the fit.
        dp : request of a private fit; None for other fits.
        """
        if dp is not None:
            asked = dp.clipped(self.clips)
            said = None if self.private is None else self.private.reveals
            return " ".join(filter(None, (NOISY, "" if said is None else said(config, asked))))
        return self.reveals if self.reveals_with is None else self.reveals_with(config)

    def configure(self, given: Mapping[str, Any]) -> Any:
        """Build the settings object from user input.

        Raises
        ------
        SettingError : a name is unknown (the message gives the nearest), or a value has the wrong
            type.
        """
        return self.settings.typed(given, self.name, self.COMMON)


def _annotated(owner: type[Any]) -> Mapping[str, Any]:
    """Return the annotations of a class itself, without its bases."""
    return vars(owner).get("__annotations__", {})
