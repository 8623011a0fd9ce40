"""What a method declares to the rest of the package, and what its fit must be able to do.

A method is found by entry point (group ``fedcohort.algorithms``), so that a third party adds
one without touching this package: a folder with a `program.py`, and one line in its
`pyproject.toml` that points to a `Method`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import NotSupported, SettingError
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.private import Dp, Release
from fedcohort.protocol.settings import Settings
from fedcohort.protocol.step import Step

#: One row of a fit's summary: a name and numbers, e.g. covariate, coefficient, standard error.
Row = dict[str, Any]


#: What a fit with differential privacy reveals, of whatever method.
NOISY = (
    "Only replies to which each site has added noise: a fit tells nothing exact of a row that it "
    "is trained on. Table 1 of a study, and its counts of rows and events, are exact and apart."
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a program needs to know besides its settings and its sites.

    Attributes
    ----------
    kind : survival, classification, regression, clustering or latent.
    features : names of the columns of x, in order, (p,).
    pairs : (p, 2), the two values of each feature that has but two, such as a level; NaN of others,
        and () where nothing is known of them.
    views : the view (modality) of each column of x, in the same order, (p,), which the dictionary
        gives the column that it was made of; "" where it has none.
    offset : whether the last of them is an offset, which has no coefficient: it is added to the
        linear predictor.
    strata : levels of the column whose levels each have a baseline hazard; () without.
    outcome : its type in lower case: survival, binary, category, ordinal, continuous or count; ""
        without.
    levels : classes of an outcome that has such, in the order of their numbers 0, 1, …; ().
    seed : what all random draws at the coordinator derive from.
    min_cell : smallest count that a cell of anything revealed may have.
    origin : (p,), a public point near the middle of each feature, that sums of squares can be
        about without losing digits; None where none is known.
    dictionary, outcome_of : a raw method's own: the data dictionary, and what the tables are about
        (None without an outcome).
    agreed : of a raw method, who hides what in Table 1 of these rows (`data.describe.agreed`); None
        where nobody agreed on more than each site's own rule.
    dp : what a private fit was asked for; None of others.
    reach : lowest and highest usual outcome by the dictionary, of a private fit; None where it
        has none.
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

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator for the coordinator's own draws."""
        return np.random.default_rng((self.seed, 0x636F6F7264))


class Fitted(ABC):
    """A fitted model at the coordinator: arrays to save, and what it can compute from x.

    A subclass overrides what its method can give; the rest raises `NotSupported`.
    """

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """Return everything numeric that the model consists of, by name."""

    @abstractmethod
    def meta(self) -> dict[str, Any]:
        """Return everything else that `restore` needs, as JSON-able values."""

    @classmethod
    @abstractmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""

    def predict(self, x: Array) -> Array:
        """Return the risk score, probability, value or label of each row of x (n, p): (n,).

        Of an outcome of type category or ordinal: the probability of each class, (n, K) in the
        order of `Task.levels`; rows add to 1.
        """
        raise NotSupported("predict")

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m).

        Behind `known_until` it stays as it is there.
        """
        raise NotSupported("predict_survival")

    def known_until(self, x: Array) -> Array:
        """Return the time up to which the fit knows the survival of each row of x (n, p): (n,)."""
        return np.full(len(x), np.inf)

    def transform(self, x: Array) -> Array:
        """Return the latent coordinates of each row of x (n, p): (n, q)."""
        raise NotSupported("transform")

    def memberships(self, x: Array) -> Array:
        """Return how far each row of x (n, p) belongs to each of k clusters: (n, k), rows add to 1.

        Labels are in the order of the clusters: `predict` gives numbers of columns.
        """
        raise NotSupported("memberships")

    def reconstruct(self, x: Array) -> Array:
        """Return what is left of each row of x (n, p) after it went through the model: (n, p)."""
        raise NotSupported("reconstruct")

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows: (n, p)."""
        raise NotSupported("sample")

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with its missing entries filled."""
        raise NotSupported("impute")

    def imputed_sd(self, x: Array) -> Array:
        """Return the standard deviation of what `impute` puts into x (n, p), 0 of known entries."""
        raise NotSupported("intervals of imputed values")

    def summary(self) -> list[Row]:
        """Return one row per coefficient, with its standard error, interval and p-value."""
        raise NotSupported("summary")

    def parameters(self, times: Array) -> list[Row]:
        """Return what the model consists of besides its covariates, such as the intercept.

        Keys are name and value, and where there are any standard_error, p, low, high and note; a
        baseline survival, at each of `times` (m,), has its time.
        """
        raise NotSupported("parameters")

    def others(self) -> list[Row]:
        """Return what each other site is to the user of a personal model, the best first.

        Keys are site, measure (what value is), value, chosen (whether the model has it), and where
        there are any low and high. Of measures at which less is better, `least` is true.
        """
        raise NotSupported("others")

    def proportional_hazards(self) -> list[Row]:
        """Return one row per covariate, with the test of an effect that changes with time."""
        raise NotSupported("proportional_hazards")

    def proportional_odds(self) -> list[Row]:
        """Return one row per covariate, with the test of an effect that differs by threshold."""
        raise NotSupported("proportional_odds")

    def curves(self) -> list[Row]:
        """Return one row per group and time, with numbers at risk, the curve and its interval."""
        raise NotSupported("curves")

    def cautions(self) -> tuple[str, ...]:
        """Return what is to be known of how the fit ended, a clause each; most often nothing."""
        return ()

    def at_round(self, rounds: int) -> Fitted:
        """Return the model as it was after `rounds` rounds, where the fit kept it.

        Tuning uses this: one fit gives every smaller number of rounds.
        """
        raise NotSupported("at_round")


#: What a model may support: these of `Fitted`, where its class overrides them.
GIVEN = (
    "predict", "predict_survival", "transform", "memberships", "reconstruct", "sample", "impute",
    "summary", "parameters", "others", "proportional_hazards", "proportional_odds", "curves",
    "at_round",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrivateFits:
    """The differentially private fits of a method.

    Attributes
    ----------
    releases : (settings, what was asked for) → every release of a fit. Raises `SettingError` for
        settings without a private fit.
    held : (settings, task) → step → argument → the value that it has in every call of a fit: what
        follows from the study, which a site demands.
    reveals : (settings, what was asked for) → what leaves a site, in plain words; None says that
        replies have noise, and no more.
    clips : what is protected → C, the norm that fits cut to unless the study says another.
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
    tasks : the kinds of task it serves.
    outcomes : the types of outcome that it can learn, of those of its tasks; a raw method takes
        any.
    paper : its source.
    reveals : what leaves a site, in plain words, whatever the settings.
    reveals_with : the same for given settings, where they decide it.
    settings : a frozen dataclass of `Settings`, whose fields are made by `setting`.
    fit : the coordinator's program, (federation, settings, task) → fitted model.
    model : the class of the fitted model, for loading from disk.
    steps : every site step that the program asks for, whatever the settings.
    asks : settings → those of `steps` that a fit with them can ask for; None for all.
    bounds : (settings, task) → by argument, or ``step.argument``, the values that a fit with them
        can give to arguments of its steps that are whole numbers, yes or no, or text; a site of an
        approved study refuses others. What means the same in all methods (`min_cell`, `seed`, ...)
        need not be there. The task's features are () where a step is asked without a design.
    preprocess : this method's defaults for the preprocessing.
    unguarded : why no reply of a fit is of few records though its program does not call
        `data.exact`, in plain words, with the module in backticks that sees to it; "" of a method
        whose program calls it.
    design : (settings, dictionary, outcome) → the design, where the method makes one that nothing
        need be asked of the sites for; None for the preprocessing's.
    entries : whether it heeds when patients came under observation (left truncation).
    raw : whether the program sees the sites' data frames, without preprocessing; its fits then
        take no table (no `predict` and the like).
    private : its differentially private fits; None where it has none.
    for_site : (settings, task, site, what its last step left at the site) → lines in plain words
        for that site alone; None where a fit leaves nothing that a person there would read.
    package : what every site of a fit must have installed beside what loads the method, of the
        extra with the method's name; "" for nothing.
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
    package: str = ""
    unguarded: str = ""
    outcomes: tuple[str, ...] = ("survival", "binary", "continuous", "count")

    #: Settings of every method, which the caller handles before the program runs.
    COMMON: ClassVar[frozenset[str]] = frozenset({"scale", "impute", "winsorise", "pool_levels"})

    @property
    def gives(self) -> frozenset[str]:
        """What the model supports, of whatever task; see `given`."""
        return frozenset(
            name for name in GIVEN if getattr(self.model, name) is not getattr(Fitted, name)
        )

    @property
    def gaps(self) -> bool:
        """Whether x may have missing entries, NaN: where the method's own default leaves them."""
        return self.preprocess.get("impute") == "none"

    @property
    def clips(self) -> Mapping[str, float]:
        """The norms that private fits cut to; see `PrivateFits`."""
        return {} if self.private is None else self.private.clips

    @property
    def fields(self) -> list[dataclasses.Field[Any]]:
        """Its settings as declared, its own before those that it shares with others."""
        order = [list(_annotated(c)) for c in self.settings.__mro__]

        def place(f: dataclasses.Field[Any]) -> tuple[int, int]:
            return next((k, own.index(f.name)) for k, own in enumerate(order) if f.name in own)

        return sorted(dataclasses.fields(self.settings), key=place)

    def solver_of(self, name: str) -> str:
        """Return the one value of `solver` that heeds a setting; "" where it is not so.

        A class of settings that belong to one solver names it: ``of_solver: ClassVar[str]``.
        """
        if "solver" not in self.settings.__dataclass_fields__:
            return ""
        origin = next(c for c in self.settings.__mro__ if name in _annotated(c))
        return str(vars(origin).get("of_solver", ""))

    @property
    def lacking(self) -> str:
        """Say what has to be installed for a fit here; "" where nothing has to be."""
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
        """Return what a fit of a kind of task supports: survival curves are of survival alone."""
        return self.gives if kind == "survival" else self.gives - {"predict_survival"}

    def asked(self, config: Any) -> tuple[Step[..., Any], ...]:
        """Return the steps that a fit with these settings can ask for, in the order of `steps`."""
        if self.asks is None:
            return self.steps
        wanted = {step.run for step in self.asks(config)}
        return tuple(step for step in self.steps if step.run in wanted)

    def check_gaps(self, table: Mapping[str, Any]) -> None:
        """Refuse a preprocessing that leaves missing values, unless the method takes them.

        Parameters
        ----------
        table : what is set of the preprocessing.

        Raises
        ------
        SettingError : ``impute`` is "none", which is not for this method.
        """
        if table.get("impute") == "none" and not self.gaps:
            raise SettingError(
                f"impute is 'none', and method {self.name!r} takes no missing values. Fill them, "
                f"by 'median' say; `fedcohort methods {self.name}` lists the ways."
            )

    def revealed(self, config: Any, dp: Dp | None) -> str:
        """Return in plain words what leaves a site in a fit, which may be a private one.

        Parameters
        ----------
        config : the settings of the fit.
        dp : what a private fit was asked for; None of any other.
        """
        if dp is not None:
            asked = dp.clipped(self.clips)
            said = None if self.private is None else self.private.reveals
            return " ".join(filter(None, (NOISY, "" if said is None else said(config, asked))))
        return self.reveals if self.reveals_with is None else self.reveals_with(config)

    def configure(self, given: Mapping[str, Any]) -> Any:
        """Build the settings object from what a user typed.

        Raises
        ------
        SettingError : an unknown name (the nearest known one is given), or a value of another
            type than the setting's.
        """
        return self.settings.typed(given, self.name, self.COMMON)


def _annotated(owner: type[Any]) -> Mapping[str, Any]:
    """Return what a class itself annotates, without its bases."""
    return vars(owner).get("__annotations__", {})
