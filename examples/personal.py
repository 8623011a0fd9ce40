"""A model for one hospital of six, of which three are the other way round, by every way there is.

python examples/personal.py
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
    here, apart = [1.5, -1.0, 0.5], [-0.5, -1.0, 1.5]
    sites = {"north": patients(1, 60, here)}
    for seed, site in enumerate(("south", "east", "west", "upper", "lower"), start=2):
        sites[site] = patients(seed, 300, here if seed < 4 else apart)
    fed = fc.simulate(sites, outcome=fc.Binary("ill"))
    blind = patients(9, 5000, here)
    own = {"own_features": ["age", "dose"]}
    ways = {"local": {}, "global": {}, "finetune": {}, "fedper": own, "fedrep": own}
    for way, settings in {**ways, "ditto": {}, "apfl": {}, "cluster": {}}.items():
        with warnings.catch_warnings(action="ignore"):
            fit = fc.fit("personal", fed, user="north", way=way, **settings)
        error = ((fit.predict(blind) - blind.ill) ** 2).mean()
        print(f"{way:9} Brier score of north's new patients: {error:.3f}")


if __name__ == "__main__":
    main()
