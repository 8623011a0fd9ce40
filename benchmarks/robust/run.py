"""C-index of DeepCox where three of nine sites lie, for each attack and each aggregation.

    python benchmarks/robust/run.py [--repeats 5] [--markdown FILE]

The packaged sample gbsg2 (686 patients); a fifth of the rows is held out; the others are dealt to
nine sites, three of which lie in every round. Mean over the repeats, each with its own split, and
the 95 % interval of that mean (Student's t). Every cell uses the same splits. The mean is taken as
a plain sum without masks, so that `protocol.updates` sees single replies; its row "mean, unchecked"
is what the sums would be without those checks on updates.
"""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attacks import federation, sample, sites_of, some
from scipy import stats

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.protocol import FedcohortError, Task, updates
from fedcohort.training.networks import strategies

ATTACKS = ("none", "label flip", "sign flip", "scaled x10", "scaled x1000", "constant", "nan")
CENTRES: dict[str, dict[str, Any]] = {
    "mean, unchecked": {},
    "mean": {},
    "median": {"aggregation": "median"},
    "trimmed_mean": {"aggregation": "trimmed_mean", "trim": 0.34},
    "krum": {"aggregation": "krum", "byzantine": 3},
    "multi_krum": {"aggregation": "multi_krum", "byzantine": 3},
    "norm_bound": {"aggregation": "norm_bound"},
}
SITES, LIARS, ROUNDS = 9, ("site-2", "site-5", "site-7"), 15


def _anything(*_: Any) -> str:
    return ""


@contextmanager
def unchecked(on: bool) -> Any:
    """Switch the checks of how far an update goes off, to see what they are for."""
    held = (updates.FAR, strategies.leap)
    if on:
        updates.FAR, strategies.leap = np.inf, _anything
    try:
        yield
    finally:
        updates.FAR, strategies.leap = held


def c_index(repeat: int, attack: str, centre: str) -> float:
    """Return the C-index on the rows held out; 0.5 where there is no model to predict with."""
    table = sample()
    order = np.random.default_rng(repeat).permutation(len(table.time))
    test, train = some(table, order[:137]), some(table, order[137:])
    fed, _ = federation(sites_of(train, SITES, repeat), LIARS, attack, "fedavg", seed=repeat)
    settings = METHOD.configure(
        {"rounds": ROUNDS, "internal_epochs": 5, "time_grid": 20, **CENTRES[centre]}
    )
    names = tuple(f"x{i}" for i in range(table.x.shape[1]))
    try:
        with unchecked("unchecked" in centre):
            model = METHOD.fit(fed, settings, Task(kind="survival", features=names, seed=repeat))
        risk = model.predict(test.x)
    except FedcohortError as error:
        print(f"{centre}, {attack}, repeat {repeat}: {error}", file=sys.stderr)
        return 0.5
    return harrell(risk, test.time, test.event) if np.isfinite(risk).all() else 0.5


def main() -> None:
    """Measure every cell and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    lines = [f"| aggregation | {' | '.join(ATTACKS)} |", "|---" * (len(ATTACKS) + 1) + "|"]
    for centre in CENTRES:
        cells: list[str] = []
        for attack in ATTACKS:
            found = np.array([c_index(r, attack, centre) for r in range(given.repeats)])
            half = stats.t.ppf(0.975, len(found) - 1) * stats.sem(found) if len(found) > 1 else 0.0
            cells.append(f"{found.mean():.3f} ± {half:.3f}")
        lines.append(f"| {centre} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if given.markdown:
        given.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
