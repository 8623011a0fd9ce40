"""What the conformance suite runs: every installed method, in its variants, on every runtime."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.prepare import Head
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import Dp, Fitted, Method, SettingError, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.protocol.line import Answering
from fedcohort.protocol.totals import Known
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import LocalTransport, local
from fedcohort.runtime.masked.end import FEW, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers, StateStore
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.context import Identity
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.run import private
from loopback import LoopbackLine


def in_process(hosts: Sequence[Host], folder: Path | None, **options: Any) -> Coordinator:
    """Return the reference; with a folder, states are kept in it."""
    store = None if folder is None else StateStore(folder / "states")
    return local(hosts, store=store, **options)


def on_threads(hosts: Sequence[Host], folder: Path | None, **options: Any) -> Coordinator:
    """Return sites of which two compute at once, from the first call on."""
    fed = in_process(hosts, folder, threads=2, **options)
    assert isinstance(fed._run.transport, LocalTransport)
    fed._run.transport._took = defaultdict(lambda: math.inf)
    return fed


def ends(hosts: Sequence[Host], folder: Path | None) -> dict[str, Answering]:
    """Return what answers at each site; with a folder, answers are kept in it."""

    def end(host: Host) -> Answering:
        path = Path(":memory:") if folder is None else folder / f"{host.name}.sqlite"
        return SiteEnd(host.name, lambda run, session: host, Answers(path)).handle

    return {host.name: end(host) for host in hosts}


def over_bytes(hosts: Sequence[Host], folder: Path | None, **options: Any) -> Coordinator:
    """Return sites that are reached by bytes alone."""
    return remote(LoopbackLine(ends(hosts, folder)), "a study", "a fit", **options)


def masked(hosts: Sequence[Host], folder: Path | None, **options: Any) -> Coordinator:
    """Return sites that are reached by bytes alone, and mask their parts of sums."""
    keys = {host.name: Identity.new() for host in hosts}
    pinned = {name: key.public for name, key in keys.items()}

    def end(host: Host) -> Answering:
        path = Path(":memory:") if folder is None else folder / f"{host.name}.sqlite"
        rule = SumRule(FEW, lambda: Keys(keys[host.name], pinned))
        return SiteEnd(
            host.name, lambda run, session: host, Answers(path), sums=lambda _: rule
        ).handle

    line = LoopbackLine({host.name: end(host) for host in hosts})
    return remote(line, "a study", "a fit", masks=pinned, **options)


def over(engine: str) -> Callable[..., Coordinator]:
    """Return what makes federations of sites that are reached through an engine."""

    def reached(hosts: Sequence[Host], folder: Path | None, **options: Any) -> Coordinator:
        from conformance import engines  # it needs the extras

        return engines.net(engine).federation(ends(hosts, folder), **options)

    return reached


#: Engine → the package that its extra installs.
ENGINES = {"flare": "nvflare", "flower": "flwr", "flower over TLS": "flwr"}

#: name → (hosts, folder, **options) → federation; the first is the reference.
RUNTIMES: dict[str, Callable[..., Coordinator]] = {
    "local": in_process,
    "remote": over_bytes,
    "threads": on_threads,
    "local, masked": lambda *given, **options: in_process(*given, secure="true", **options),
    "remote, masked": masked,
    **{engine: over(engine) for engine in ENGINES},
}

#: Settings whose every choice makes a variant; the others keep their defaults.
VARIED = ("strategy", "ties", "baseline", "solver")

#: Settings of times, which make variants of survival alone.
TIMED = ("ties", "baseline", "time_grid", "head")

#: The kind of task of a strategy of trees: what it does with each outcome is in `tests/algorithms`.
#: Here its messages count: most trees a round, or a sum of risk sets more.
STRATEGY_ON = {
    ("boosting", "top-s"): "several classes",
    ("boosting", "bagging"): "survival",
    ("boosting", "cyclic"): "several classes",
    ("forest", "union"): "survival",
}

#: Settings that keep the suite fast, where a method has them.
SMALL: dict[str, Any] = {
    "rounds": 3,
    "dp_rounds": 3,
    "internal_epochs": 2,
    "keep_rounds": (1,),
    "cluster_rounds": 2,
    "restarts": 2,
    "iterations": 5,
    "draws": 10,
    "q": 2,
    "user": "a",
    "trees": 4,
    "depth": 4,
    "share": 0.5,
}

#: Settings that a variant cannot do without, where a method has them.
NEEDED: dict[tuple[str, Any], dict[str, Any]] = {("solver", "admm"): {"penalty": 0.1}}

#: Variants by method in the place of those of `VARIED`. What strategies of rounds do is theirs, and
#: looked at with other methods.
VARIANTS: dict[str, Sequence[tuple[tuple[str, Any], ...]]] = {
    "kmeans": [(("seeding", "sites"),)],
    "deep_clustering": [
        (
            ("strategy", "fedadam"),
            ("pretrain", "layerwise"),
            ("centroids", "double_kmeans"),
            ("optimiser_state", "kept"),
            ("compression", "random_k"),
        ),
        (("personal", "fedrep"),),
        (("personal", "ditto"), ("monitor", "loss")),
    ],
    "vae": [
        (("strategy", "fedyogi"), ("hidden", (4,)), ("optimiser_state", "averaged")),
        (("personal", "fedper"), ("monitor", "gradient")),
        (("compression", "int8"),),
        (("compression", "top_k"), ("strategy", "fedadam")),
        (("prior", "vamp"), ("components", 3), ("hide", 0.5)),
        (("prior", "vamp"), ("combine_priors", "product"), ("strategy", "fedprox")),
        (("prior", "mixture"), ("components", 3), ("starts", 2)),
    ],
    "mcvae": [
        (
            ("aggregation", "norm_bound"),
            ("combine", "product"),
            ("patience", 1),
            ("patience_by", "count"),
        )
    ],
    "personal": [
        (("way", "fedrep"), ("hidden", (3,)), ("batch_size", 20)),
        (("way", "apfl"), ("monitor", "loss")),
        (("way", "cluster"), ("n_clusters", 1)),
        (("way", "ditto"), ("user", "all"), ("keep_rounds", ())),
    ],
    "classifier": [
        (("strategy", "exact"), ("patience", 2), ("dropout", 0.1)),
        (("strategy", "ensemble"), ("image", (1, 3)), ("pool", 1), ("filters", (2,))),
    ],
    "regressor": [
        (
            ("strategy", "fedadam"),
            ("hidden", (3,)),
            ("refined", "sums"),
            ("filters", (2,)),
            ("pool", 1),
        ),
        (
            ("personal", "fedrep"),
            ("user", "all"),
            ("patience", 1),
            ("patience_by", "count"),
            ("keep_rounds", ()),
        ),
    ],
    "regression_forest": [
        (("strategy", "exact"), ("depth", 2), ("leaf_iterations", 1)),
        (
            ("personal", "fedrep"),
            ("user", "all"),
            ("patience", 1),
            ("patience_by", "count"),
            ("keep_rounds", ()),
            ("depth", 1),
        ),
    ],
    "savae": [
        (("strategy", "exact"), ("hidden", (4,)), ("time", "piecewise"), ("parts", 3)),
        (("strategy", "ensemble"), ("hidden", (4,))),
        (
            ("patience", 2),
            ("hidden", (4,)),
            ("dropout", 0.1),
            ("batch_size", 20),
            ("record_kl", 1),
            ("anneal", "linear"),
            ("anneal_rounds", 2),
        ),
        (("personal", "fedrep"), ("hidden", (4,)), ("monitor", "gradient")),
    ],
    "bayes_net": [
        (("strategy", "sequential"), ("prior", "mixture"), ("prior_narrow", 0.1)),
        (("strategy", "fedavg"), ("hidden", (4,))),
        (("strategy", "ensemble"), ("hidden", (4,))),
        (("head", "cox"), ("hidden", (4,)), ("samples", 8)),
        (("strategy", "virtual"), ("hidden", (4,))),
        (("strategy", "sep"), ("hidden", (4,))),
    ],
    "bayes_linear": [
        (("by_site", "intercept"), ("site_effects", True), ("predictive_draws", 3)),
        (("by_site", "all"),),
    ],
    "bayes_cox": [
        (("by_site", "all"), ("site_effects", True), ("predictive_draws", 3)),
        (("predictive_draws", 3), ("ph_check", "none")),
    ],
    "bayes_logistic": [
        (("skewness", True), ("tol", 1e-3)),
        (("by_site", "intercept"), ("tol", 1e-3), ("predictive_draws", 3)),
        (("by_site", "all"), ("tol", 5e-3), ("site_scale", 0.1)),
    ],
    "dgd": [
        (("begin", "drawn"), ("aggregation", "norm_bound"), ("encoder", (4,))),
        (
            ("strategy", "fedyogi"),
            ("optimiser_state", "kept"),
            ("batch_size", 20),
            ("patience", 1),
            ("patience_by", "count"),
        ),
    ],
    "radialgan": [(("shares", "codes"), ("carry", "none"))],
    "weight_erosion": [
        (("visit", "local"), ("hidden", (3,)), ("batch_size", 20)),
        (("visit", "full"), ("against", "noise")),
    ],
}

#: Families of `glm` with a private fit, by kind of task: they are named there.
FAMILIES = {"regression": ("gaussian",), "classification": ("binomial",)}

#: Objectives of `boosting` with a private fit, likewise.
OBJECTIVES = {
    "regression": ("squared",), "classification": ("logistic",), "several classes": ("softmax",)
}  # fmt: skip

#: The outcomes that a private fit takes for usual, by kind of task.
REACH = {"survival": (0.0, 3.0), "regression": (-5.0, 2.0), "classification": (0.0, 1.0)}

#: Row counts that no model of three covariates has as a dimension.
ROWS = {"a": 61, "b": 47, "c": 53}

#: What must not leave a site.
PLANTED = "Jane Doe 4711"

Table = SurvivalTable | LabelledTable | FeatureTable


#: Classification of more than two classes, as a kind of task of its own.
SEVERAL, LEVELS = "several classes", ("0", "1", "2")


@dataclass(frozen=True)
class Case:
    """One method on a kind of task, or on `SEVERAL`, with some of its settings."""

    method: str
    kind: str
    settings: tuple[tuple[str, Any], ...]
    protects: str = ""  # "record" or "site" of a private fit

    def __str__(self) -> str:
        kind = [self.kind] if len(kinds_of(self.entry)) > 1 else []
        dp = [f"protecting a {self.protects}"] if self.protects else []
        return " ".join([self.method, *kind, *(f"{k}={v}" for k, v in self.settings), *dp])

    @property
    def entry(self) -> Method:
        """The method itself."""
        return registry.find(self.method)

    @property
    def gives(self) -> frozenset[str]:
        """What its model supports; one that each site keeps for itself predicts nothing here."""
        given = self.entry.given(task_kind(self.kind))
        here = not getattr(self.config, "every", False)
        return given if here else given - {"predict", "predict_survival", "at_round", "sample"}

    @property
    def dp(self) -> Dp | None:
        """What a private fit is asked for."""
        return Dp(epsilon=4.0, delta=1e-3, unit=self.protects) if self.protects else None

    @property
    def config(self) -> Any:
        """The settings of its fit, which keep the suite fast."""
        known = {f.name for f in dataclasses.fields(self.entry.settings)}
        small = {**SMALL, **{k: v for s in self.settings for k, v in NEEDED.get(s, {}).items()}}
        small = {k: v for k, v in small.items() if k in known}
        return self.entry.configure({**small, **dict(self.settings)})


def private_cases(kind: str) -> list[Case]:
    """Return every variant for a kind of task that has a private fit, of records and of sites."""
    found: list[Case] = []
    families = [Case("glm", kind, (("family", f),)) for f in FAMILIES.get(kind, ())]
    trees = [Case("boosting", kind, (("objective", o),)) for o in OBJECTIVES.get(kind, ())]
    for case in [*cases(kind), *families, *trees]:
        for unit in ("record", "site"):
            one = dataclasses.replace(case, protects=unit)
            try:
                private.releases(one.entry, one.config, Dp(epsilon=4.0, delta=1e-3, unit=unit))
            except SettingError:
                continue
            found.append(one)
    return found


def cases(kind: str) -> list[Case]:
    """Return every installed method for a kind of task, with its defaults and its variants."""
    found: list[Case] = []
    for name in registry.names():
        entry = registry.find(name)
        if kind not in kinds_of(entry):
            continue
        if entry.lacking:
            continue
        found.append(Case(name, kind, ()))
        if name in VARIANTS:
            timed = kind == "survival"
            given = [v for v in VARIANTS[name] if timed or not {*TIMED} & {k for k, _ in v}]
            found += [Case(name, kind, settings) for settings in given]
            continue
        for f in dataclasses.fields(entry.settings):
            if f.name in TIMED and kind != "survival":
                continue
            if f.name in VARIED:
                others = (c for c in f.metadata.get("choices", ()) if c != f.default)
                here = (c for c in others if STRATEGY_ON.get((name, c), kind) == kind)
                found += [Case(name, kind, ((f.name, choice),)) for choice in here]
            if f.name == "time_grid":
                found += [Case(name, kind, ((f.name, choice),)) for choice in ("exact", 6)]
    return found


@cache
def tables(kind: str) -> dict[str, Table]:
    """Return records for a kind of task at three unequal sites."""
    rng = np.random.default_rng(7)
    out: dict[str, Table] = {}
    for name, n in ROWS.items():
        x = rng.uniform(size=(n, 3))
        death = rng.exponential(1 / np.exp(x @ np.array([1.5, -1.0, 0.0])))
        leave = rng.exponential(2.0, n)
        if kind == "latent":
            gaps = rng.random(x.shape) < [0.2, 0.0, name == "c"]
            out[name] = FeatureTable(np.where(gaps, np.nan, x - 0.5))
        elif kind == "synthesis":
            gaps = rng.random(n) < 0.2
            binary = np.where(gaps, np.nan, x[:, 2] < 0.4)
            out[name] = FeatureTable(np.column_stack([x[:, :2], binary]))
        elif kind == "clustering":
            out[name] = FeatureTable((x < np.where(x[:, [0]] < 0.5, 0.8, 0.3)).astype(float))
        elif kind == "survival":
            out[name] = SurvivalTable(x, np.minimum(death, leave) + 0.01, death <= leave)
        elif kind == "regression":
            out[name] = LabelledTable(x, np.log(death))
        elif kind == SEVERAL:
            out[name] = LabelledTable(x, np.searchsorted([0.35, 1.1], death).astype(float))
        else:
            out[name] = LabelledTable(x, (death < 1.0).astype(float))
    return out


def quiet(kind: str) -> Table:
    """Return a small table where nobody died, or all had the same value."""
    table = tables(kind)["a"]
    x, nobody = table.x[:6], np.zeros(6)
    if isinstance(table, FeatureTable):
        return FeatureTable(np.ones(x.shape))
    if isinstance(table, SurvivalTable):
        return SurvivalTable(x, table.time[:6], nobody.astype(bool))
    return LabelledTable(x, nobody)


#: What raw methods are told of the columns of `frame_of`, by kind of task.
TYPES: dict[str, dict[str, Any]] = {
    "survival": {"time": "time", "event": "event"},
    SEVERAL: {"y": "category"},
    "classification": {"y": "binary"},
    "regression": {"y": "number"},
}
OUTCOMES: dict[str, Outcome] = {
    "survival": Survival("time", "event"),
    SEVERAL: Category("y"),
    "classification": Binary("y"),
    "regression": Continuous("y"),
}

#: Kinds of task, the last ones without an outcome.
KINDS = (*OUTCOMES, "clustering", "latent", "synthesis")

#: Distributions of the columns of virtual patients.
HEADS = (
    Head(name="u", kind="normal", at=(0,), low=0.0, high=1.0),
    Head(name="v", kind="normal", at=(1,), low=0.0, high=1.0),
    Head(name="w", kind="bernoulli", at=(2,), low=0.0, high=1.0),
)


def kinds_of(entry: Method) -> list[str]:
    """Return the kinds of task that a method learns, in the order of `KINDS`.

    A method of another task draws virtual patients by the same program.
    """
    found = [kind for kind in KINDS if task_kind(kind) in entry.tasks and learnt(entry, kind)]
    return found if found == ["synthesis"] else [kind for kind in found if kind != "synthesis"]


def task_kind(kind: str) -> str:
    """Return the kind of a task, which of `SEVERAL` is classification."""
    return OUTCOMES[kind].kind if kind in OUTCOMES else kind


def learnt(entry: Method, kind: str) -> str:
    """Return the type of outcome that a method learns; "none" without one, "" if it cannot."""
    if kind not in OUTCOMES:
        return "none"
    types = ("category", "ordinal") if kind == SEVERAL else (OUTCOMES[kind].type,)
    return next(filter(entry.takes, types), "")


#: The view of each column where a method takes missing ones; a site has no entry of the last one.
VIEWS = ("left", "left", "right")


def frame_of(table: Table) -> pd.DataFrame:
    """Return a table as raw methods see it: a data frame."""
    frame = pd.DataFrame(table.x, columns=["u", "v", "w"])
    if isinstance(table, FeatureTable):
        return frame
    if isinstance(table, SurvivalTable):
        return frame.assign(time=table.time, event=table.event.astype(float))
    if table.y.max(initial=0.0) == len(LEVELS) - 1:
        return frame.assign(y=np.array(LEVELS)[table.y.astype(int)])
    return frame.assign(y=table.y)


def task_of(case: Case, seed: int) -> Task:
    """Return what a case's program is told."""
    kind, features = case.kind, ("u", "v", "w")
    noise: dict[str, Any] = {}
    if case.dp is not None:
        noise = {"dp": case.dp.clipped(case.entry.clips), "reach": REACH.get(kind)}
    about = OUTCOMES.get(kind)
    if not case.entry.raw:
        return Task(
            kind=task_kind(kind),
            features=features,
            views=VIEWS if kind == "latent" else (),
            seed=seed,
            outcome=learnt(case.entry, kind) if about else "",
            levels=LEVELS if kind == SEVERAL else (),
            heads=HEADS if kind == "synthesis" else (),
            **noise,
        )
    types = {**dict.fromkeys(features, "number"), **TYPES.get(kind, {})}
    known = Dictionary.from_dict({c: _described(t, kind, usual=bool(noise))
                                  for c, t in types.items()})  # fmt: skip
    return Task(
        kind=task_kind(kind), features=(), seed=seed, dictionary=known, outcome_of=about, **noise
    )


def _described(type_: str, kind: str, *, usual: bool) -> dict[str, Any]:
    """Return a column of the dictionary, with what is usual of it if asked."""
    reach = {"number": [0, 1], "time": list(REACH.get(kind, ()))}
    levels = {"levels": list(LEVELS)} if type_ == "category" else {}
    return {"type": type_} | levels | ({"usual": reach[type_]} if usual and type_ in reach else {})


class Unreadable:
    """Stands for records that break whatever looks at them, in words that name a patient."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(PLANTED)


def hosts_of(case: Case, data: Mapping[str, Any], seed: int = 3) -> list[Host]:
    """Return the sites of a case."""
    raw = case.entry.raw
    seen = {
        name: frame_of(table) if raw and not isinstance(table, Unreadable) else table
        for name, table in data.items()
    }
    consent = consent_of(case, seed)
    return [
        Host(
            name, table, case.entry.steps, seed, consent=consent,
            guard=_guard(case, name, data[name], seed),
        )
        for name, table in seen.items()
    ]  # fmt: skip


class Held(Bounds):
    """What the sites of a case hold its calls to: its method's own bounds, as over a network."""

    def __init__(self, case: Case, seed: int):
        plan = SimpleNamespace(
            min_cell=task_of(case, seed).min_cell, privacy=SimpleNamespace(secure="false")
        )
        super().__init__(SimpleNamespace(plan=plan, learnt=None, seen=None), "fit", None, seed)  # pyright: ignore[reportArgumentType]
        bounds = case.entry.bounds
        self._config: Any = case.config
        if case.method == "log_rank":  # a study names the column of its groups, here all of x
            self._config = dataclasses.replace(self._config, by="u")
        task = task_of(case, seed)
        classes = len(task.levels) if len(task.levels) > 2 else 0
        self._own = {"n_classes": (classes,)} | dict(bounds(self._config, task) if bounds else {})

    def _of_method(self, view: Any) -> Mapping[str, Any]:
        return self._own

    def chosen(self, name: str) -> list[Any]:
        return [getattr(self._config, name, "")]

    @property
    def strata(self) -> set[int]:
        return {0}


@cache
def consent_of(case: Case, seed: int) -> Callable[[Any, Mapping[str, Any]], None]:
    """Return the check of a case's calls: one that its bounds do not allow ends the fit."""
    return Held(case, seed).check


def _guard(case: Case, site: str, table: Any, seed: int) -> SiteGuard | None:
    """Return what guards a site of a private fit."""
    if case.dp is None:
        return None
    assert case.entry.private is not None
    demanded = case.entry.private.held(case.config, task_of(case, seed))
    return private.simulated_guard(
        site, len(table.x), case.entry, case.config, case.dp, seed, demanded=demanded
    )


@dataclass(frozen=True)
class Run:
    """What a fit left: arrays (name, dtype, shape, bytes), ledger and history; and the model."""

    arrays: tuple[tuple[str, str, tuple[int, ...], bytes], ...]
    ledger: tuple[str, ...]
    history: str
    model: Fitted


def run(
    case: Case,
    runtime: str = "local",
    *,
    order: Iterable[str] = "abc",
    folder: Path | None = None,
    data: Mapping[str, Any] | None = None,
    seed: int = 3,
    **options: Any,
) -> Run:
    """Fit a case; with a folder, with journal and states, resuming what is there."""
    data = data or {name: tables(case.kind)[name] for name in order}
    hosts = hosts_of(case, data, seed)
    journal = None
    if folder is not None:
        journal = Journal(folder / "journal")
        options |= {"journal": journal}
    fed = RUNTIMES[runtime](hosts, folder, **options)
    if all(isinstance(table, Table) for table in data.values()):  # as a study says it
        rows = {name: len(table.x) for name, table in data.items()}
        unit = not getattr(case.config, "weights", "")
        fed.expecting(Known(rows, unit=unit, some=case.entry.gaps))
    if case.dp is not None:
        listed = private.releases(case.entry, case.config, case.dp)
        fed.accounted(private.Account(listed, case.dp))
    try:
        model = case.entry.fit(fed, case.config, task_of(case, seed))
    finally:
        if journal is not None:
            journal.close()
    return Run(_frozen(model.arrays()), tuple(fed.ledger.lines), repr(fed.history), model)


def _frozen(arrays: dict[str, Array]) -> Any:
    return tuple((k, a.dtype.str, a.shape, a.tobytes()) for k, a in sorted(arrays.items()))


@cache
def reference(case: Case) -> Run:
    """Return the case's fit on the local runtime."""
    return run(case)
