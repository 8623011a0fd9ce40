"""Simulated hospitals with the faults of real ones: sizes 1 to 140, gaps, odd files.

Every hospital has the same patients' columns but for those that it lacks. Survival depends on four
of them (`TRUE`) by a proportional hazard; all else is noise, or a fault:

    constant      the same value everywhere
    near copy     `height_cm` and `height_m`, which differ by rounding
    missing       3 to 50 % of a column, more at some hospitals
    absent        a column that some hospitals do not have
    few events    one hospital without any, three of 1 to 4 patients
    files         every fifth with semicolons and decimal commas, every seventh in Latin-1
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

#: Log hazard ratios of what survival depends on, a standard deviation (or a flag) each.
TRUE = {"age": 0.5, "blasts": 0.6, "platelets": -0.4, "tp53": 0.9}
NAMES = (
    "Aalen", "Basel", "Cádiz", "Düsseldorf", "Espoo", "Firenze", "Gdańsk", "Halle", "Innsbruck",
    "Jena", "Kraków", "Lübeck", "Málaga", "Nîmes", "Orléans", "Porto", "Québec", "Reims", "Siena",
    "Torino", "Uppsala", "València", "Würzburg", "Ypres", "Zürich",
)  # fmt: skip


def sizes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the patients of n hospitals: three of 1 to 4, one of 9, the others of 6 to 140."""
    found = np.clip(rng.lognormal(3.4, 0.9, n).astype(int), 6, 140)
    found[:5] = [140, 1, 3, 4, 9]
    return found


def patients(n: int, rng: np.random.Generator, labs: int, flags: int) -> pd.DataFrame:
    """Return n patients, complete."""
    height = rng.normal(170, 9, n)
    frame = pd.DataFrame(
        {
            "patient": [f"P{i:06d}" for i in rng.choice(10**6, n, replace=False)],
            "age": np.clip(rng.normal(68, 12, n), 18, 98).round(),
            "sex": rng.choice(["female", "male"], n),
            "height_cm": height.round(1),
            "height_m": (height / 100).round(4),
            "blasts": rng.gamma(1.5, 4, n).clip(0, 40).round(1),
            "platelets": rng.lognormal(4.7, 0.7, n).round(),
            "tp53": (rng.random(n) < 0.1) * 1,
            "karyotype": rng.choice(["good", "normal", "poor", "very poor"], n,
                                    p=[0.55, 0.25, 0.15, 0.05]),
            "protocol": "A1",
        }
    )  # fmt: skip
    for i in range(labs):
        frame[f"lab_{i:02d}"] = rng.gamma(4, 3 + i, n).round(2)
    for i in range(flags):
        frame[f"mutation_{i:02d}"] = (rng.random(n) < (0.02, 0.08, 0.3)[i % 3]) * 1
    return frame


def hospitals(n: int = 45, seed: int = 0, *, labs: int = 40, flags: int = 34):
    """Return tables by hospital; with the defaults of 86 columns beside hospital and outcome."""
    rng = np.random.default_rng((seed, 45))
    found = {}
    for i, size in enumerate(sizes(n, rng)):
        frame = patients(int(size), rng, labs, flags)
        z = {
            "age": (frame["age"] - 68) / 12,
            "blasts": (frame["blasts"] - 6) / 4.9,
            "platelets": (np.log(frame["platelets"]) - 4.7) / 0.7,
            "tp53": frame["tp53"],
        }
        score = sum(b * z[k] for k, b in TRUE.items())
        death = rng.exponential(1100 * np.exp(-score))
        left = rng.uniform(200, 3000, len(frame))
        frame["os_days"] = np.ceil(np.minimum(death, left))
        frame["dead"] = (death <= left) * 1
        if i < 3 or i == 5:
            frame["dead"] = 1 if i in (0, 1) else 0
            frame.loc[frame.index[::2], "dead"] = 0 if i == 0 else frame["dead"].iloc[0]
        _with_gaps(frame, rng, i, labs)
        found[f"{NAMES[i % len(NAMES)]}-{i:02d}"] = frame
    return found


def _with_gaps(frame: pd.DataFrame, rng: np.random.Generator, i: int, labs: int) -> None:
    """Take values, and at some hospitals whole columns, away."""
    share = rng.choice([0.03, 0.1, 0.3, 0.5], labs) * rng.choice([0.5, 1.0, 1.5])
    for j in range(labs):
        gone = rng.random(len(frame)) < share[j]
        frame[f"lab_{j:02d}"] = frame[f"lab_{j:02d}"].where(~gone)
    for name in ("karyotype", "blasts", "height_m"):
        frame[name] = frame[name].where(rng.random(len(frame)) >= 0.04)
    if i % 9 == 4:
        frame.drop(columns=[f"lab_{j:02d}" for j in range(0, labs, 11)], inplace=True)


def write(folder: Path, tables, *, odd: bool = True) -> None:
    """Write a CSV a hospital; every fifth and seventh as the header says, unless not `odd`."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, (name, frame) in enumerate(tables.items()):
        european, latin = odd and i % 5 == 4, odd and i % 7 == 6
        frame = frame.assign(sex=frame["sex"].map({"male": "männlich", "female": "weiblich"}))
        frame.to_csv(
            folder / f"{name}.csv",
            index=False,
            sep=";" if european else ",",
            decimal="," if european else ".",
            encoding="latin-1" if latin else "utf-8",
        )
