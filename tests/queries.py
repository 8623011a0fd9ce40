"""Random questions to random cohorts, as an analyst may put them, and what they give away.

A cohort is two to five sites of 4 to 60 patients with rare levels, missing values and ties. A
query is a method with random settings on some of the columns. `ask` puts one and looks at all that
it gave:

    published   every number of patients in model, summary and curves, and the difference of
                neighbouring numbers at risk: none of 1 to 4
    told        every count among the sums that the coordinator was told, but for histogram cells
                and levels (`UNSUPPRESSED`), which plain sums cannot hide: none of 1 to 4
    recovered   patients whose covariates are a difference or a ratio of sums (`overheard`), where
                the query has a column in which no two are alike

Some columns are chosen to single patients out, as covariates (`few`, `far`), weights and offsets
(`probes`). A refusal gives nothing away but its
text; what is told before it is tested in `tests/data/test_isolation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import fedcohort as fc
from overheard import Told, recovered

MIN_CELL = 5
#: Keys of published rows, and fields of sums, that number patients.
COUNTS = frozenset(
    "rows records n events event ones at_risk followed about observed count missing censored "
    "deaths dead died nonzero present groups_rows".split()
)
#: Sums whose cells may hold few patients; docs/disclosure.md says so.
UNSUPPRESSED = frozenset(
    {"column_tally", "column_cells", "death_cells", "death_moments", "group_tally", "deaths"}
)
DICTIONARY = {
    "variables": {
        "age": {"type": "integer", "unit": "years"},
        "marker": {"type": "number", "unit": "mg/L"},
        "smoker": {"type": "binary"},
        "stage": {"type": "category", "levels": ["I", "II", "III", "IV"]},
        "time": {"type": "number", "unit": "days"},
        "died": {"type": "binary"},
        "ill": {"type": "category", "levels": ["no", "yes"]},
        "course": {"type": "category", "levels": ["mild", "severe", "fatal"]},
        "score": {"type": "number"},
        "visits": {"type": "integer"},
        "few": {"type": "number"},
        "far": {"type": "number"},
        "weight": {"type": "number"},
        "shift": {"type": "number"},
        "entry": {"type": "number", "unit": "days"},
    }
}
OUTCOMES = {
    "survival": fc.Survival("time", "died"),
    "entry": fc.Survival("time", "died", "entry"),
    "binary": fc.Binary("ill"),
    "continuous": fc.Continuous("score"),
    "count": fc.Count("visits"),
    "classes": fc.Category("course"),
    "order": fc.Ordered("course"),
}
REGRESSIONS = {
    "survival": ("cox", "meta_analysis", "bayes_cox"),
    "entry": ("cox", "bayes_cox"),
    "binary": ("logistic", "glm", "svm", "mixed", "meta_analysis", "lda", "bayes_logistic"),
    "classes": ("multinomial",),
    "order": ("ordinal", "multinomial"),
    "continuous": (
        "ridge",
        "lasso",
        "elastic_net",
        "glm",
        "mixed",
        "meta_analysis",
        "bayes_linear",
    ),
    "count": ("glm", "mixed", "ridge", "meta_analysis"),
}
METHODS = {method for methods in REGRESSIONS.values() for method in methods}
FAMILIES = {
    "binary": (("binomial", "logit"), ("binomial", "probit"), ("binomial", "cloglog")),
    "continuous": (("gaussian", "identity"), ("gaussian", "log")),
    "count": (("poisson", "log"), ("poisson", "sqrt"), ("gaussian", "identity")),
}
#: Methods that take a column of weights, or an offset.
SHIFTED = ("logistic", "glm", "cox", "meta_analysis", "mixed", "bayes_cox")
WEIGHED = ("logistic", "glm", "cox", "meta_analysis", "multinomial", "ordinal", "bayes_cox")


def cohort(rng: np.random.Generator) -> pd.DataFrame:
    """Return one table with a column of sites."""
    parts: list[pd.DataFrame] = []
    for s in range(rng.integers(2, 6)):
        n = int(rng.integers(4, 61))
        age = rng.normal(60 + 3 * s, 10, n).round()
        marker = rng.lognormal(1.0, 0.7, n)  # no two patients have the same
        smoker = (rng.random(n) < rng.choice([0.04, 0.2, 0.5])).astype(float)
        risk = 0.03 * (age - 60) + 0.3 * np.log(marker) + 0.4 * smoker
        time = np.ceil(rng.exponential(200 * np.exp(-risk))) + 1
        leave = np.ceil(rng.exponential(300, n)) + 1
        parts.append(
            pd.DataFrame(
                {
                    "site": f"h{s}",
                    "age": age,
                    "marker": np.where(rng.random(n) < 0.08, np.nan, marker),
                    "smoker": smoker,
                    "stage": rng.choice(["I", "II", "III", "IV"], n, p=[0.5, 0.3, 0.16, 0.04]),
                    "time": np.minimum(time, leave),
                    "died": (time <= leave).astype(float),
                    "ill": np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "yes", "no"),
                    "course": np.array(["mild", "severe", "fatal"])[
                        np.searchsorted([-0.2, 1.6], risk + rng.logistic(size=n))
                    ],
                    "score": (risk + rng.normal(size=n)).round(2),
                    "visits": rng.poisson(np.exp(0.3 * risk)).astype(float),
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    return table.assign(**probes(rng, len(table)), entry=np.floor(table["time"] * rng.random()))


def probes(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Return columns that may single out patients: covariates, weights and an offset."""
    chosen = rng.permutation(n)[: rng.integers(1, 8)]
    some = np.isin(np.arange(n), chosen)
    noise, even = rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    weights = (even, even, np.where(some, 1e8, even), np.where(some, 1, 1e-8), 1.0 + some)
    shifts = (noise, noise, 30.0 * some, 40.0 * ~some, np.where(some, 1e9, noise))
    return {
        "few": np.where(some, rng.integers(1, 4), 0),
        "far": np.where(some, 1e8, noise) if rng.random() < 0.5 else noise,
        "weight": weights[rng.integers(len(weights))],
        "shift": shifts[rng.integers(len(shifts))],
    }


@dataclass(frozen=True)
class Query:
    """A method, its settings, and the columns that it may see."""

    method: str
    outcome: str
    columns: tuple[str, ...]
    settings: dict[str, Any]


def query(rng: np.random.Generator) -> Query:
    """Return a random question."""
    features = ["age", "marker", "smoker", "stage"]
    chosen = tuple(c for c in features if rng.random() < 0.7) or ("age",)
    kind = rng.choice(["describe", "curves", "regression", "regression"])
    by = str(rng.choice(["", "smoker", "stage"]))
    if kind == "describe":
        outcome = str(rng.choice([*OUTCOMES]))
        return Query("describe", outcome, tuple(features), {"by": by} if by else {})
    if kind == "curves":
        method = str(rng.choice(["kaplan_meier", "nelson_aalen", "log_rank"]))
        grid = rng.choice(["protected", "3", "10"])
        settings = {"by": by} if by or method == "log_rank" else {}
        if method == "log_rank" and not by:
            settings = {"by": "smoker"}
        settings["time_grid"] = "protected" if grid == "protected" else int(grid)
        return Query(method, "survival", tuple(features), settings)
    outcome = str(rng.choice([*REGRESSIONS]))
    method = str(rng.choice(REGRESSIONS[outcome]))
    settings: dict[str, Any] = {}
    hard = tuple(c for c in ("few", "far") if rng.random() < 0.15)
    chosen += hard
    if method in WEIGHED and rng.random() < 0.3:
        settings["weights"] = "weight"
    if method in SHIFTED and rng.random() < 0.3:
        settings["offset"] = "shift"
    if method in ("glm", "meta_analysis") and outcome in FAMILIES:
        families = FAMILIES[outcome]
        settings["family"], settings["link"] = families[rng.integers(len(families))]
    if method == "meta_analysis":
        settings["pool"] = str(rng.choice(["random", "fixed", "multivariate"]))
    if method == "mixed":
        settings["site_effects"] = bool(rng.random() < 0.5)
    if method == "svm":
        settings["penalty"] = float(rng.choice([0.01, 0.1]))
    if method == "lasso":
        settings["penalty"] = (0.01, 0.1, "auto")[rng.integers(3)]
    if settings.get("penalty") == "auto":
        settings |= {"path": 10, "rule": str(rng.choice(["min", "1se", "bic"]))}
    if method == "elastic_net":
        settings |= {"l1": 0.05, "l2": 0.05}
    if method in ("ridge", "logistic") and rng.random() < 0.5:
        settings["penalty"] = 0.05
    by_admm = method in ("ridge", "lasso", "logistic") and settings.get("penalty", "auto") != "auto"
    if by_admm and rng.random() < 0.4:
        settings["solver"] = "admm"
    if method in ("cox", "bayes_cox"):
        settings["ties"] = str(rng.choice(["efron", "breslow"]))
        settings["baseline"] = str(rng.choice(["shared", "stratified"]))
        settings |= {"l2": 0.02} if method == "cox" else {}
    return Query(method, outcome, chosen, settings)


@dataclass(frozen=True)
class Given:
    """What one query gave away; `refused` is the text of its refusal, or empty."""

    query: Query
    refused: str
    published: list[str]
    told: list[str]
    patients: int


def ask(seed: int, heard: list[Told]) -> Given:
    """Put one random query to one random cohort; `heard` is where `overheard.listen` writes."""
    rng = np.random.default_rng((seed, 0x6173))
    table, asked = cohort(rng), query(rng)
    outcome = OUTCOMES[asked.outcome]
    roles = [asked.settings[name] for name in ("weights", "offset") if name in asked.settings]
    kept = ["site", *asked.columns, *outcome.columns, *roles]
    known = {"variables": {k: v for k, v in DICTIONARY["variables"].items() if k in kept}}
    fed = fc.simulate(table[kept], sites="site", outcome=outcome, dictionary=known, seed=seed)
    heard.clear()
    try:
        fit = fc.fit(asked.method, fed, **asked.settings)
    except fc.FedcohortError as error:
        assert getattr(error, "code", "") != "counts", f"honest sites are blamed: {error}"
        return Given(asked, str(error), [], [*small_told(heard)], 0)
    found = [*small_published(fit.model)]
    x = np.zeros((0, 1))
    if "marker" in asked.columns and asked.method in METHODS:
        x = fit.parts.design.matrix(table)[table["marker"].notna()]
        x = x[:, : x.shape[1] - ("offset" in asked.settings)]
    patients = int(recovered(heard, x).sum()) if len(x) else 0
    return Given(asked, "", found, [*small_told(heard)], patients)


def small(value: Any) -> bool:
    """Say whether a number is a count of few."""
    return (
        isinstance(value, (int, float, np.number))
        and not isinstance(value, bool)
        and float(value).is_integer()
        and 0 < float(value) < MIN_CELL
    )


def small_published(model: Any) -> Iterator[str]:
    """Name every count of few in a fitted model, its summary and curves."""
    for name, value in model.arrays().items():
        if name.removeprefix("curve_") in COUNTS:
            yield from (f"arrays {name}" for v in np.ravel(value) if small(v))
    yield from _within("meta", model.meta())
    for what in ("summary", "curves"):
        try:
            rows = getattr(model, what)()
        except fc.NotSupported:
            continue
        yield from _within(what, rows)
        if what == "curves":
            yield from _steps(rows)


def _within(where: str, value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _within(f"{where}.{k}", v, key if key == "counts" else str(k))
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _within(where, v, key)
    elif (key in COUNTS or key == "counts") and small(value):
        yield where


def _steps(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Name differences of few between neighbouring numbers at risk of a group."""
    by_group: dict[Any, list[float]] = {}
    for row in rows:
        for key in ("at_risk", "followed"):
            value = row.get(key)
            if value is not None and np.isfinite(value):
                by_group.setdefault((row.get("group"), key), []).append(float(value))
    for (group, key), values in by_group.items():
        for a, b in pairwise(values):
            if small(a - b):
                yield f"curves: step of {key} in group {group}"


def small_told(heard: list[Told]) -> Iterator[str]:
    """Name every count of few among the sums that the coordinator was told."""
    for told in heard:
        if told.step in UNSUPPRESSED:
            continue
        for name, value in told.reply.items():
            if name in COUNTS and any(small(v) for v in np.ravel(value)):
                yield f"{told.step}.{name}"
