"""A model for one hospital of five, of which two are like it and one codes the outcome upside down.

python examples/weight_erosion.py
"""

import warnings

import numpy as np
import pandas as pd

import fedcohort as fc


def patients(seed: int, n: int, effects: list[float]) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    ill = rng.random(n) < 1 / (1 + np.exp(-x @ effects))
    return pd.DataFrame(x, columns=["age", "marker", "dose"]).assign(ill=ill.astype(int))


def main() -> None:
    here, apart, flipped = [1.5, -1.0, 0.5], [0.5, -1.0, 1.5], [-1.5, 1.0, -0.5]
    sites = {"north": patients(1, 60, here)}
    for seed, (site, effects) in enumerate(
        {"south": here, "east": here, "west": apart, "flipped": flipped}.items(), start=2
    ):
        sites[site] = patients(seed, 300, effects)
    fed = fc.simulate(sites, outcome=fc.Binary("ill"))
    blind = patients(6, 5000, here)
    arms = {"all sites alike": {"p_d": 0.0}, "north alone": {"p_d": 9.0}, "Weight Erosion": {}}
    for name, settings in arms.items():
        with warnings.catch_warnings(action="ignore"):
            fit = fc.fit("weight_erosion", fed, user="north", **settings)
        error = ((fit.predict(blind) - blind.ill) ** 2).mean()
        print(f"{name:16} Brier score of north's new patients: {error:.3f}")
    print("weights:", {site: round(a, 2) for site, a in fit.model.alpha.items()})


if __name__ == "__main__":
    main()
