"""`forest`: outcomes that who knows all covariates solves for, by the share of rows in a sum.

    python benchmarks/forest/attack.py [--seeds 3] [--out FILE]

Three sites, 8 covariates, a yes/no outcome. `right` is the share of outcomes that the attack of
`tests/algorithms/forest_attack.py` finds from the sums, `reader` from the saved model; `own` that
of the model's predictions on the same rows, `new` of its predictions on other rows, `auc` on these.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]
from book import asks_out, keep

from algorithms.forest_attack import asked_sums, solved, told_by_model
from algorithms.forest_cases import fit, simulated, split

#: Shares by number of rows; None: the union.
SHARES: dict[int, tuple[float | None, ...]] = {1000: (0.1, 0.2, 0.3, 0.5, None), 4000: (0.2, None)}


#: Share of its rows that a bootstrap draws.
BOOTSTRAP = 0.632


def attacked(n: int, share: float | None, seed: int) -> tuple[dict[str, float], Any]:
    """Return what the attacks find at a share, None for a union; and the model."""
    table = simulated("classification", n, 8, seed)
    sites = np.arange(n) % 3
    found: dict[str, float] = {}

    def right(sums: Any, of: float) -> float:
        return float((solved(sums, n, of) == table.y).mean())

    if share is None:
        model = fit(split(table, sites), "classification", seed=seed, strategy="union")
        own = told_by_model(model, table.x, BOOTSTRAP, sites)
        found["right"] = found["reader"] = right(own, BOOTSTRAP)
    else:
        sums, model = asked_sums(pytest.MonkeyPatch(), table, share=share, seed=seed)
        found["right"] = right(sums, share)
        found["reader"] = right(told_by_model(model, table.x, share), share)
    found["own"] = float(((model.predict(table.x) > 0.5) == table.y).mean())
    return found, model


def main() -> int:
    """Print a row for each share."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    asks_out(parser)
    given = parser.parse_args()
    for n, shares in SHARES.items():
        test = simulated("classification", 4000, 8, 1000)
        for share in shares:
            rows: list[dict[str, float]] = []
            for seed in range(given.seeds):
                found, model = attacked(n, share, seed)
                new = model.predict(test.x)
                found["new"] = float(((new > 0.5) == test.y).mean())
                rows.append({**found, "auc": float(roc_auc_score(test.y, new))})
            means = {k: round(float(np.mean([one[k] for one in rows])), 3) for k in rows[0]}
            name = "union" if share is None else f"{share:g}"
            print(n, name, means, flush=True)
            keep(given.out, {f"attack_{n}_{name}": means})
    return 0


if __name__ == "__main__":
    sys.exit(main())
