"""A table of patients with an outcome, for tests of virtual patients."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival

KNOWN = Dictionary.from_dict(
    {
        "age": {"type": "number", "range": [0, 100]},
        "grade": {"type": "category", "levels": ["low", "high"]},
        "time": {"type": "time"},
        "event": {"type": "event"},
    }
)
OUTCOME = Survival("time", "event")


def patients(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 90, n)
    death = rng.exponential(40 / np.exp(age / 30))
    leave = rng.exponential(10, n)
    return pd.DataFrame(
        {
            "age": age.round(2),
            "grade": np.where(rng.random(n) < age / 100, "high", "low"),
            "time": np.minimum(death, leave).round(4) + 0.01,
            "event": (death <= leave).astype(float),
        }
    )
