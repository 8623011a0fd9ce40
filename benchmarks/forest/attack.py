"""`forest`: outcomes that who knows all covariates solves for, by the share of rows in a sum.

    python benchmarks/forest/attack.py [--seeds 3] [--out FILE]

Three sites, 8 covariates, a yes/no outcome. `right` is the share of outcomes that the attack of
`tests/algorithms/forest_attack.py` finds; `own` that of the model's predictions on the same rows,
`new` of its predictions on other rows, `auc` on these.
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

from algorithms.forest_attack import asked_sums, solved
from algorithms.forest_cases import simulated

SHARES = {1000: (0.1, 0.2, 0.3, 0.5), 4000: (0.2,)}


def main() -> int:
    """Print a row for each share."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    asks_out(parser)
    given = parser.parse_args()
    for n, shares in SHARES.items():
        test = simulated("classification", 4000, 8, 1000)
        for share in shares:
            found: list[dict[str, Any]] = []
            for seed in range(given.seeds):
                table = simulated("classification", n, 8, seed)
                sums, model = asked_sums(pytest.MonkeyPatch(), table, share=share, seed=seed)
                new = model.predict(test.x)
                found.append(
                    {
                        "right": (solved(sums, n, share) == table.y).mean(),
                        "own": ((model.predict(table.x) > 0.5) == table.y).mean(),
                        "new": ((new > 0.5) == test.y).mean(),
                        "auc": roc_auc_score(test.y, new),
                        "sums": len(sums),
                    }
                )
            means = {k: round(float(np.mean([f[k] for f in found])), 3) for k in found[0]}
            print(n, share, means, flush=True)
            keep(given.out, {f"attack_{n}_{share:g}": means})
    return 0


if __name__ == "__main__":
    sys.exit(main())
