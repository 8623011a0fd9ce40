"""Simulated rows: table 6 of the paper, its FedProx, and q by WAIC; see `run`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fits import (
    NOISE,
    SCENARIOS,
    Size,
    Views,
    factor_analysis,
    fitted,
    folds,
    judged,
    settled,
    simulated,
    sites_of,
)

from fedcohort.arrays import Array

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

Q = 5
OURS: dict[str, Any] = {"q": Q, "draws": 0}
VIEW = OURS | {"noise": "view"}
PAPER = VIEW | {
    "start": "random", "spread": "modes", "tol": 0.0, "centres": False, "narrow": False,
}  # fmt: skip
CONVERGED: dict[str, Any] = {"q": Q, "learning_rate": 0.01, "lr_rule": "cosine"}
#: Name → method and settings. The autoencoders' defaults are the paper's: 100 rounds of 15 epochs,
#: all of a site's rows in a step, Adam at 1e-3, linear.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppca": ("multiview_ppca", OURS),
    "ppca view": ("multiview_ppca", VIEW),
    "ppca paper": ("multiview_ppca", PAPER),
    "one place": ("multiview_ppca", OURS | {"strategy": "centralised"}),
    "vae": ("vae", {"q": Q}),
    "mcvae": ("mcvae", {"q": Q}),
    "vae converged": ("vae", CONVERGED),
    "mcvae converged": ("mcvae", CONVERGED),
}
FACTORS = "factor analysis"
#: The paper's fit of one place: one round of 800 iterations of EM.
ALONE = {"rounds": 1, "internal_epochs": 1, "first_epochs": 799}
#: λ of FedProx, supplementary table 7.
PROX = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
CELLS = [(scenario, sites) for scenario, several in SCENARIOS.items() for sites in several]


def _splits(noise: str, size: Size) -> Iterator[tuple[int, int, Views, Array]]:
    """Yield repeat, fold, a table in ranges of its training rows, and which rows are for tests."""
    for repeat in range(size.repeats):
        data = simulated(noise, repeat)
        for fold, own in folds(len(data.frame), repeat, size.folds):
            yield repeat, fold, data.scaled(data.frame[~own]), own


def _asked(noise: str, scenario: str, sites: int, name: str) -> bool:
    """Return whether a method is run in one scenario."""
    if name == FACTORS:
        return sites == 1
    if name == "one place":
        return "K" in scenario
    return noise == "paper" or name.startswith("ppca")


def _settings(name: str, sites: int, size: Size) -> tuple[str, dict[str, Any]]:
    method, given = METHODS[name]
    return method, given | (ALONE if (name, sites) == ("ppca paper", 1) else {}) | size.less


def table(
    book: Book, size: Size, methods: Sequence[str], noises: Sequence[str]
) -> None:  # fmt: skip
    """Run table 6: all scenarios, methods and folds."""
    for noise in noises:
        for repeat, fold, data, own in _splits(noise, size):
            train, test = data.frame[~own], data.frame[own]
            for (scenario, sites), name in itertools.product(CELLS, methods):
                of = {
                    "part": "table", "noise": noise, "scenario": scenario, "sites": sites,
                    "method": name, "repeat": repeat, "fold": fold,
                }  # fmt: skip
                if not (_asked(noise, scenario, sites, name) and book.lacks(of)):
                    continue
                if name == FACTORS:
                    book.write(of, factor_analysis(data, train, test, Q))
                    continue
                parts = sites_of(data, train, scenario, sites, repeat)
                method, given = _settings(name, sites, size)
                fit, cpu = fitted(data, parts, repeat, method, **given)
                found = judged(fit, data, train, parts, test)
                book.write(of, found | settled(fit) | {"cpu": cpu})


def prox(book: Book, size: Size) -> None:
    """Run FedProx in scenario G."""
    for repeat, fold, data, own in _splits("paper", size):
        train, test = data.frame[~own], data.frame[own]
        for sites, method, mu in itertools.product(SCENARIOS["G"], ("vae", "mcvae"), PROX):
            of = {
                "part": "prox", "sites": sites, "method": method, "mu": mu, "repeat": repeat,
                "fold": fold,
            }  # fmt: skip
            if not book.lacks(of):
                continue
            parts = sites_of(data, train, "G", sites, repeat)
            given = {"q": Q, "strategy": "fedprox", "mu": mu} | size.less
            fit, cpu = fitted(data, parts, repeat, method, **given)
            book.write(of, judged(fit, data, train, parts, test) | {"cpu": cpu})


def waic(book: Book, size: Size, q_range: tuple[int, int] = (2, 8)) -> None:
    """Choose q of rows over three sites, scaled in three ways, by both kinds of noise."""
    ways = itertools.product(
        range(size.repeats), NOISE, ("none", "range", "sd"), ("view", "column")
    )
    for repeat, noise, scale, shared in ways:
        of = {"part": "waic", "noise": noise, "scale": scale, "shared": shared, "repeat": repeat}
        if not book.lacks(of):
            continue
        data = simulated(noise, repeat)
        if scale == "range":
            data = data.scaled(data.frame)
        parts = sites_of(data, data.frame, "IID", 3, repeat)
        fit, cpu = fitted(
            data, parts, repeat, "multiview_ppca", q="auto", q_range=q_range, noise=shared,
            scale="standard" if scale == "sd" else "none", **size.less,
        )  # fmt: skip
        by_q = {row["q"]: row["waic"] for row in fit.model.numbers}
        found = {"q": fit.model.q, "least": min(by_q, key=by_q.__getitem__), "cpu": cpu}
        book.write(of, found | {"waic": {str(q): value for q, value in by_q.items()}})
