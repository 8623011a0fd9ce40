"""What each hospital should look at in its data: one of them has a unit of its own.

python examples/feedback.py
"""

import numpy as np
import pandas as pd

import fedcohort as fc


def hospital(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(60 + 4 * rng.normal(), 12, n).round()
    glucose = np.exp(rng.normal(1.8, 0.25, n) + 0.004 * (age - 60)).round(1)
    lactate = np.exp(rng.normal(0.6, 0.4, n)).round(1)
    risk = 0.06 * (age - 60) + 0.4 * (glucose - 6) + 0.9 * (lactate - 2)
    death = (rng.random(n) < 1 / (1 + np.exp(1 - risk))).astype(int)
    return pd.DataFrame({"age": age, "glucose": glucose, "lactate": lactate, "death": death})


def main() -> None:
    names = ("north", "south", "west", "east", "centre")
    tables = {name: hospital(150 + 70 * i, i) for i, name in enumerate(names)}
    tables["south"]["glucose"] = (18.02 * tables["south"]["glucose"]).round()  # mg/dl
    tables["west"]["death"] = 1 - tables["west"]["death"]  # alive, not dead
    tables["east"]["lactate"] = np.nan  # not measured
    fit = fc.fit("feedback", fc.simulate(tables, outcome=fc.Binary("death")))
    for line in fit.summary["line"]:
        print(line)


if __name__ == "__main__":
    main()
