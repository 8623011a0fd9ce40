"""Grade of a breast tumour, I to III, over four hospitals: unordered, and ordered, classes.

python examples/multinomial.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    women = load("sample:gbsg2", Path()).frames
    table = women[["age", "tsize", "pnodes", "progrec", "tgrade"]]
    grades = {"type": "category", "levels": ["I", "II", "III"]}
    known = {"variables": {c: {"type": "number"} for c in table.columns[:-1]} | {"tgrade": grades}}
    outcome = fc.Category("tgrade")
    hospitals = partition(table, "unbalanced", 4, seed=1, outcome=outcome)
    fed = fc.simulate(hospitals, outcome=outcome, dictionary=known)
    fit = fc.fit("multinomial", fed, reference="I")
    columns = ["class", "covariate", "relative_risk_ratio", "rrr_low", "rrr_high", "p"]
    print(fit.summary[columns].round(4).to_string(index=False))
    statistic, p = fit.model.likelihood_ratio
    print(f"\nall effects together: chi2 {statistic:.1f}, p {p:.1e}, in {fit.run.rounds} rounds")

    fed = fc.simulate(hospitals, outcome=fc.Ordered("tgrade"), dictionary=known)
    ordered = fc.fit("ordinal", fed)
    columns = ["covariate", "odds_ratio", "or_low", "or_high", "p"]
    print("\n" + ordered.summary[columns].round(4).to_string(index=False))
    for row in ordered.model.proportional_odds():
        print(f"same odds ratio at both thresholds? {row['covariate']:8} p {row['p']:.3f}")

    # the same as on the pooled table
    for one in (fit, ordered):
        pooled = fc.fit(one.method, fed, strategy="centralised")
        difference = abs(one.predict(table) - pooled.predict(table)).max()
        print(f"{one.method}: largest difference from the pooled fit {difference:.0e}")

    print("\nprobability of each grade, of the first three women:")
    print(ordered.predict(table[:3]).round(3))


if __name__ == "__main__":
    main()
