"""Survival of breast cancer patients with and without hormone therapy, over four hospitals.

python examples/kaplan_meier.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    gbsg2 = load("sample:gbsg2", Path()).frames
    outcome = fc.Survival("time", "cens")
    hospitals = partition(gbsg2, "unbalanced", 4, seed=1, outcome=outcome)
    fed = fc.simulate(hospitals, outcome=outcome)

    # steps of 5 patients or more, and nothing shown of fewer
    curves = fc.fit("kaplan_meier", fed, by="horTh", horizon=1826.0)
    print(curves.summary.round(1).to_string(index=False))
    pictures = Path("runs/kaplan_meier")
    pictures.mkdir(parents=True, exist_ok=True)
    curves.plot().save(pictures / "curves.svg")

    # at the exact times of death: what the pooled table gives
    exact = fc.fit("kaplan_meier", fed, by="horTh", horizon=1826.0, time_grid="exact")
    print(exact.summary.round(1).to_string(index=False))
    curves.plot(exact, names=["protected", "exact"]).save(pictures / "both.svg")
    print(f"pictures: {pictures}/curves.svg, both.svg")

    for grid in ("protected", "exact"):
        test = fc.fit("log_rank", fed, by="horTh", time_grid=grid).model
        print(f"log-rank test, {grid} grid: chi2 {test.chi2:.2f} on {test.df}, p {test.p:.4f}")


if __name__ == "__main__":
    main()
