"""Private fits of multi-view PPCA: what (ε, δ) of a whole fit leaves of it; see `run`."""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cohorts import breast_cancer
from fits import NOISE, Sites, Size, Views, folds, judged, sites_of, thinned
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedcohort as fc
from fedcohort.algorithms.multiview_ppca.differences import releases
from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read.simulated_views import GROUP, GROUPS, dictionary_of, multiview
from fedcohort.privacy import accounting
from fedcohort.protocol import Dp, Release

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

Q, SITES, VIEWS = 5, 3, 3
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
#: ε of `moments` alone, whose fits are cheap.
SMALL = (0.1, 0.2)
ROUNDS = (5, 20, 100)
SCENARIOS = ("IID", "G/K")
#: No noise, and what a model must be better than; then the two routes.
ROUTES = ("no noise", "random plane", "means", "moments", "differences")
#: The paper's budget of each parameter in each round (section 4.3.3), and its rounds.
PAPER_EPSILON, PAPER_DELTA, PAPER_ROUNDS = 10.0, 0.01, 100
#: Fits by as many rounds as the paper's are of the first table alone, and of so many repeats.
LONG = 2
#: Rounds of which standard deviations are kept.
SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)

MEASURES = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
    "concave points", "symmetry", "fractal dimension",
)  # fmt: skip
#: What is usual of the breast cancer table, rounded from the least and largest values in its
#: published description (one value is beyond): mean, error and worst of each of `MEASURES`.
BOUNDS = (
    ((5, 30), (0, 3), (5, 40)), ((5, 40), (0, 5), (10, 50)), ((40, 200), (0, 25), (50, 260)),
    ((100, 2500), (0, 600), (150, 4500)), ((0.05, 0.2), (0, 0.04), (0.05, 0.25)),
    ((0, 0.4), (0, 0.15), (0, 1.1)), ((0, 0.5), (0, 0.4), (0, 1.3)),
    ((0, 0.25), (0, 0.06), (0, 0.3)), ((0.1, 0.35), (0, 0.08), (0.1, 0.7)),
    ((0.04, 0.1), (0, 0.03), (0.05, 0.21)),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A table to fit.

    Attributes
    ----------
    make : seed → table.
    usual : column → what is usual of it, known without a look at the rows.
    delta : δ, below one over the rows.
    noise : what has a noise of its own; "view" as the simulated rows have it.
    """

    make: Callable[[int], Views]
    usual: Callable[[str], tuple[float, float]]
    delta: float
    noise: str = "view"


def _simulated(n: int, distance: float) -> Callable[[int], Views]:
    def make(seed: int) -> Views:
        frame, views = multiview(
            n=n, shifted=n * 5 // 8, seed=seed, noise=NOISE["paper"], distance=distance
        )
        return Views(frame, views, dictionary_of(views))

    return make


def _drawn(column: str) -> tuple[float, float]:
    """Return what is usual of the simulated columns; see `simulated_views.dictionary_of`."""
    del column
    return -20.0, 20.0


def _cells(column: str) -> tuple[float, float]:
    """Return what is usual of a column of the breast cancer table."""
    kinds = (column.startswith("mean "), column.endswith(" error"), column.startswith("worst "))
    name = column.removeprefix("mean ").removeprefix("worst ").removesuffix(" error")
    low, high = BOUNDS[MEASURES.index(name)][kinds.index(True)]
    return float(low), float(high)


CASES = {
    "simulated, 400 rows": Case(_simulated(400, 8.0), _drawn, 1e-3),
    "near groups, 400 rows": Case(_simulated(400, 3.0), _drawn, 1e-3),
    "simulated, 4000 rows": Case(_simulated(4000, 8.0), _drawn, 1e-4),
    "breast cancer": Case(lambda seed: breast_cancer(), _cells, 1e-3, "column"),
}


def bounded(data: Views, case: Case, like: pd.DataFrame) -> Views:
    """Return a table in ranges of some rows' columns, with what is usual in the same units.

    The units change nothing in a private fit, which brings what is usual to [−1, 1].
    """
    low, high = like[data.columns].min(), like[data.columns].max()
    variables: dict[str, object] = {}
    for view, names in data.views.items():
        for name in names:
            ends = [(v - low[name]) / (high[name] - low[name]) for v in case.usual(name)]
            variables[name] = {"type": "number", "view": view, "usual": list(map(float, ends))}
    variables[GROUP] = {"type": "category", "levels": list(GROUPS), "feature": False}
    scaled = data.scaled(like)
    return Views(scaled.frame, data.views, Dictionary.from_dict({"variables": variables}))


@dataclass(frozen=True)
class Way:
    """How a model comes about: ε and δ are None and 0 where there is no noise."""

    route: str
    epsilon: float | None = None
    rounds: int = 1
    clip: float | None = None
    secure: str = "auto"

    @property
    def of(self) -> dict[str, Any]:
        """What names it in the book."""
        return {
            "route": self.route, "epsilon": self.epsilon, "dp_rounds": self.rounds,
            "clip": self.clip, "secure": self.secure,
        }  # fmt: skip


def ways(routes: Sequence[str], epsilons: Sequence[float], rounds: Sequence[int]) -> Iterator[Way]:
    """Yield what is run of each table, the cheap ones first."""
    yield from (Way(route) for route in ROUTES[:3] if route in routes)
    if "moments" in routes:
        yield from (Way("moments", epsilon) for epsilon in (*SMALL, *epsilons))
        yield from (Way("moments", epsilon, secure="false") for epsilon in epsilons)
    if "differences" in routes:
        for r, epsilon in itertools.product(rounds, epsilons):
            yield Way("differences", epsilon, r)
        for epsilon in epsilons:  # the paper's advice for a small budget: clip at 0.2
            yield Way("differences", epsilon, min(rounds), clip=0.2)


def private(
    book: Book, size: Size, cases: Sequence[str], routes: Sequence[str], epsilons: Sequence[float]
) -> None:
    """Run what is missing: of each table's repeats one fold, and what the budgets come to."""
    rounds = ROUNDS if size.rounds is None else (size.rounds,)
    for of, found in budgets(epsilons, rounds):
        if "differences" in routes and book.lacks(of):
            book.write(of, found())
    for repeat, name, scenario in itertools.product(range(size.repeats), cases, SCENARIOS):
        case, first = CASES[name], name == next(iter(CASES))
        data = case.make(repeat)
        ((_, own),) = folds(len(data.frame), repeat, (0,))
        data = bounded(data, case, data.frame[~own])
        train, test = data.frame[~own], data.frame[own]
        parts = sites_of(data, train, scenario, SITES, repeat)
        for way in ways(routes, epsilons, rounds):
            long, plain = way.rounds == PAPER_ROUNDS, way.secure == "false"
            if (long and (not first or repeat >= LONG)) or (
                plain and not (first and scenario == "IID")
            ):
                continue
            of = {
                "part": "private", "data": name, "scenario": scenario, "sites": SITES, **way.of,
                "repeat": repeat,
            }  # fmt: skip
            if book.lacks(of):
                book.write(of, _one(data, case, train, parts, test, way, repeat))


def _one(
    data: Views, case: Case, train: pd.DataFrame, parts: Sites, test: pd.DataFrame, way: Way,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    if way.route in REFERENCES:
        return REFERENCES[way.route](data, parts, test, seed)
    given: dict[str, Any] = {"q": Q, "draws": 0, "noise": "view", "seed": seed}
    if way.epsilon is not None:
        dp = {"epsilon": way.epsilon, "delta": case.delta}
        given |= {
            "dp": dp if way.clip is None else dp | {"clip": way.clip}, "dp_route": way.route,
            "dp_rounds": way.rounds, "secure_aggregation": way.secure,
        }  # fmt: skip
    start = time.process_time()
    fed = fc.simulate(parts, dictionary=data.dictionary, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            fit = fc.fit("multiview_ppca", fed, **given)
        except fc.FedcohortError as error:
            return {"refused": str(error)}
    assert fit.run is not None
    found = judged(fit, data, train, parts, test)
    found |= {"spent": fit.run.epsilon} if way.epsilon is not None else {}
    return found | {"cpu": time.process_time() - start, "sd": spreads(fit.run.history)}


def spreads(history: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return by round (of `SHOWN`, and the last) the global standard deviations, mean of views.

    Root mean squares over views, of μ̃, W̃ and the noise, in units of the fit.
    """
    rounds = [row for row in history if any(k.startswith("sd_mu") for k in row)]
    at = sorted({r for r in SHOWN if r <= len(rounds)} | {len(rounds)} - {0})

    def rms(row: Mapping[str, float], name: str) -> float:
        return float(np.sqrt(np.mean([v**2 for k, v in row.items() if k.startswith(name)])))

    names = ("sd_mu", "sd_w", "sigma")
    return {str(r): {n: rms(rounds[r - 1], n) for n in names} for r in at}


# what a model must be better than ---------------------------------------------------------


def _random_plane(data: Views, parts: Sites, test: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Return the discriminant's accuracy in q random combinations of the columns.

    In units of the training rows' standard deviations, missing entries in their middle: a model
    that knows nothing but how large the columns are.
    """
    rows = pd.concat([part.reindex(columns=[*data.columns, GROUP]) for part in parts.values()])
    mean, sd = rows[data.columns].mean(), rows[data.columns].std()
    plane = np.random.default_rng((seed, Q)).standard_normal((len(data.columns), Q))

    def points(table: pd.DataFrame) -> Array:
        return ((table[data.columns] - mean) / sd).fillna(0.0).to_numpy() @ plane

    rule = LinearDiscriminantAnalysis().fit(points(rows), rows[GROUP].to_numpy(str))
    own = test[GROUP].to_numpy(str)
    return {
        "accuracy": float(rule.score(points(test), own)),
        "accuracy_lacking": float(rule.score(points(thinned(data, test)), own)),
    }


def _means(data: Views, parts: Sites, test: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Return errors of the columns' means of the training rows."""
    del seed
    rows = pd.concat([part.reindex(columns=data.columns) for part in parts.values()])
    off = (test[data.columns] - rows.mean()).abs().to_numpy()
    gone = thinned(data, test)[data.columns].isna().to_numpy()
    train = float(np.nanmean((rows - rows.mean()).abs().to_numpy()))
    return {"train": train, "test": float(off.mean()), "lacking": float(off[gone].mean())}


REFERENCES: dict[str, Callable[..., dict[str, Any]]] = {
    "random plane": _random_plane, "means": _means,
}  # fmt: skip


# budgets ----------------------------------------------------------------------------------


def budgets(
    epsilons: Sequence[float], rounds: Sequence[int]
) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """Yield what the paper's budget composes to, and what ours is of a parameter and a round."""
    for rule, delta in itertools.product(("classic_beyond_proof", "analytic"), (0.01, 1e-3)):
        for r in (1, PAPER_ROUNDS):
            of = {"part": "budget", "of": "paper", "rule": rule, "delta": delta, "dp_rounds": r}
            yield of, lambda rule=rule, delta=delta, r=r: paper_budget(rule, delta, r)
    for r, epsilon in itertools.product(rounds, epsilons):
        of = {"part": "budget", "of": "ours", "epsilon": epsilon, "delta": 1e-3, "dp_rounds": r}
        yield of, lambda epsilon=epsilon, r=r: own_budget(epsilon, 1e-3, r)


@lru_cache
def paper_budget(rule: str, delta: float, rounds: int) -> dict[str, Any]:
    """Return ε of so many rounds of the paper's, by three compositions.

    K views, each round of each view two Gaussians (μ, W) at (10, 0.01) and a Laplace (σ²) at 10.
    "basic" adds all up (Theorem 7), with its own δ; "rdp" and "pld" are at the δ given.
    """
    z = accounting.gaussian_sigma(PAPER_EPSILON, PAPER_DELTA, rule)
    made = [
        Release(step="gaussian", noise=z, count=2 * VIEWS * rounds),
        Release(step="laplace", noise=1 / PAPER_EPSILON, count=VIEWS * rounds, mechanism="laplace"),
    ]
    return {
        "z": z,
        "basic": 3 * VIEWS * PAPER_EPSILON * rounds,
        "basic_delta": 2 * VIEWS * PAPER_DELTA * rounds,
        "rdp": accounting.epsilon(made, delta, "rdp"),
        "pld": accounting.epsilon(made, delta, "pld"),
    }


def own_budget(epsilon: float, delta: float, rounds: int) -> dict[str, Any]:
    """Return what `differences` at a composed (ε, δ) gives each parameter in each round.

    By itself μ^(k), in a ball of radius 1, has noise of √3 z · 2 √K for its sensitivity 2: a
    multiplier of √(3 K) z; ε of it at the paper's δ. ln σ_k² has Laplace noise of K z times its
    sensitivity.
    """
    made = releases(rounds, Dp(epsilon=epsilon, delta=delta))
    z = made[0].noise
    alone = Release(step="one", noise=float(np.sqrt(3 * VIEWS)) * z)
    return {
        "z": z,
        "gaussian": accounting.epsilon([alone], PAPER_DELTA),
        "laplace": 1.0 / (VIEWS * made[1].noise),
    }
