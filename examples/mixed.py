"""How far tumours have grown, over eight hospitals that differ: one intercept for each of them.

python examples/mixed.py
"""

from pathlib import Path

import numpy as np

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    masses = load("sample:breast_cancer", Path()).frames
    table = masses[["mean texture", "mean smoothness", "mean concavity", "mean radius"]]
    outcome = fc.Continuous("mean radius")
    hospitals = partition(table, "iid", 8, seed=1, outcome=outcome)
    shifts = np.random.default_rng(0).normal(0, 1.5, 8)  # hospitals measure differently: τ = 1.5
    for (name, frame), shift in zip(hospitals.items(), shifts, strict=True):
        hospitals[name] = frame.assign(**{"mean radius": frame["mean radius"] + shift})
    fed = fc.simulate(hospitals, outcome=outcome)

    fit = fc.fit("mixed", fed, scale="standard")
    print(fit.summary[["covariate", "coefficient", "low", "high"]].round(3).to_string(index=False))
    model = fit.model
    print(f"\nvariance between hospitals {model.tau2:.2f} ({model.tau2_low:.2f}", end="")
    print(f" to {model.tau2_high:.2f}), within {model.sigma2:.2f}; ICC {model.icc:.2f}")
    print(f"no difference between hospitals: p = {model.heterogeneity[1]:.1g}")

    # the same question, answered by hospitals that fit alone
    pooled = fc.fit("meta_analysis", fed, scale="standard")
    columns = ["covariate", "coefficient", "low", "high", "i2", "tau2"]
    print("\n" + pooled.summary[columns].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
