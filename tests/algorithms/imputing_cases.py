"""Tables with missing values for `mice` and `joint_normal`."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fedcohort as fc

VARIABLES = {
    "a": {"type": "number"},
    "b": {"type": "number", "range": [0.01, 1000]},
    "n": {"type": "integer", "range": [0, 40]},
    "flag": {"type": "binary"},
    "stage": {"type": "category", "levels": ["I", "II", "III"]},
}


def mixed(n: int, seed: int, share: float = 0.25) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table of all kinds of columns that one factor links, and the same with holes."""
    rng = np.random.default_rng(seed)
    f = rng.standard_normal(n)
    full = pd.DataFrame(
        {
            "a": f + 0.4 * rng.standard_normal(n),
            "b": np.exp(1 + 0.8 * f + 0.2 * rng.standard_normal(n)),
            "n": np.minimum(rng.poisson(np.exp(1 + 0.6 * f)), 40) * 1.0,
            "flag": (rng.random(n) < 1 / (1 + np.exp(-2 * f))) * 1.0,
            "stage": np.array(["I", "II", "III"], object)[
                np.digitize(f + 0.4 * rng.standard_normal(n), [-0.5, 0.6])
            ],
        }
    )
    return full, full.mask(rng.random(full.shape) < share)


def cohort(table: pd.DataFrame, sites: int = 3, seed: int = 0, **more) -> fc.Cohort:
    """Return sites with every `sites`-th row."""
    parts = {f"s{k}": table.iloc[k::sites].reset_index(drop=True) for k in range(sites)}
    variables = {c: VARIABLES[c] for c in table if c in VARIABLES}
    return fc.simulate(parts, dictionary={"variables": variables | more}, seed=seed)
