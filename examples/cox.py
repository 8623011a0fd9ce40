"""Cox regression of breast cancer recurrence over four hospitals.

python examples/cox.py
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

    # by default risk sets are summed over intervals with 5 deaths or more
    fit = fc.fit("cox", fed, ties="efron")
    columns = ["covariate", "hazard_ratio", "hr_low", "hr_high", "p"]
    print(fit.summary[columns].round(4).to_string(index=False))

    # at the exact times of death, it is the fit of the pooled table
    exact = fc.fit("cox", fed, ties="efron", time_grid="exact")
    print("\nlargest shift of a coefficient by the protected grid, in standard errors:")
    shift = fit.summary.coefficient - exact.summary.coefficient
    print((shift / exact.summary.standard_error).abs().max().round(3))

    print("\nprobability of no recurrence after 1, 3, 5 years, of the first three patients:")
    print(fit.predict_survival(gbsg2[:3], [365, 1096, 1826]).round(3))


if __name__ == "__main__":
    main()
