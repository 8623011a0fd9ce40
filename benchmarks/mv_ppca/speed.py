"""Time of a round of multi-view PPCA against rows; see `run`."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from fits import Size, Views, fitted, sites_of
from simulations import OURS

from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Federation, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

ROUNDS = 20


class Timed:
    """A federation whose sums are timed: CPU seconds by step, in order."""

    def __init__(self, inner: Federation, seconds: dict[str, list[float]]):
        self._inner, self._seconds = inner, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def only(self, sites: Any) -> Timed:
        """Return the same of fewer sites."""
        return Timed(self._inner.only(sites), self._seconds)

    def awaiting(self, fewest: int | None = None) -> Timed:
        """Return the same of a federation whose calls wait."""
        return Timed(self._inner.awaiting(fewest), self._seconds)

    def sum(self, step: Any, **given: Any) -> Any:
        """Return the sum, and note how long it took."""
        start = time.process_time()
        told = self._inner.sum(step, **given)
        self._seconds.setdefault(step.name, []).append(time.process_time() - start)
        return told


def speed(book: Book, size: Size, rows: Sequence[int]) -> None:
    """Time rounds of more and more rows at three sites, 33 columns, q 5.

    Rounds are those of the program itself, whose sums are timed; a whole fit, with checks and
    preprocessing, is by `fc.fit`.
    """
    method = registry.find("multiview_ppca")
    config = method.configure(OURS | {"tol": 0.0, "rounds": size.rounds or ROUNDS})
    for repeat, n in itertools.product(range(size.repeats), rows):
        of = {"part": "speed", "n": n, "repeat": repeat}
        if not book.lacks(of):
            continue
        frame, views = multiview(n=n, shifted=n * 5 // 8, seed=repeat)
        data = Views(frame, views, dictionary_of(views))
        x = frame[data.columns].to_numpy()
        hosts = [
            Host(f"site-{i + 1}", FeatureTable(part.copy()), method.steps, repeat)
            for i, part in enumerate(np.array_split((x - x.mean(axis=0)) / x.std(axis=0), 3))
        ]
        of_view = tuple(view for view, own in views.items() for _ in own)
        task = Task(kind="latent", features=tuple(data.columns), seed=repeat, views=of_view)
        seconds: dict[str, list[float]] = {}
        method.fit(cast("Federation", Timed(local(hosts), seconds)), config, task)
        parts = sites_of(data, frame, "IID", 3, repeat)
        _, whole = fitted(data, parts, repeat, "multiview_ppca", **OURS)
        book.write(of, {
            "look": seconds["look"][0], "first": seconds["first_round"][0],
            "round": float(np.median(seconds["next_round"])),
            "rounds": len(seconds["next_round"]), "whole": whole,
        })  # fmt: skip
