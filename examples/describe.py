"""Table 1 of breast-cancer patients over four hospitals, by hormonal therapy, fit to be shown.

python examples/describe.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    cohort = load("sample:gbsg2", Path())
    hospitals = partition(cohort.frames, "unbalanced", 4, seed=1, outcome=cohort.outcome)
    fed = fc.simulate(hospitals, outcome=cohort.outcome, dictionary=cohort.dictionary)

    fit = fc.fit("describe", fed, by="horTh")
    table = fit.summary
    columns = ["variable", "level", "group", "n", "count", "mean", "sd", "median", "smd"]
    over_sites = table[table.site.isna() & table.variable.isin(["age", "tsize", "tgrade"])]
    print(over_sites[columns].round(2).to_string(index=False, na_rep=""))

    refusals = fit.model.refusals
    print(f"\n{fit.model.suppressed} counts are hidden; not shown, {len(refusals)} times, such as:")
    for refusal in refusals[:3]:
        where = f"{refusal['site'] or 'all sites'}, {refusal['group'] or 'all groups'}"
        print(f"  {refusal['variable']} ({where}), {refusal['what']}: {refusal['rule']}")

    (age,) = [h for h in fit.model.histograms if h.name == "age"]
    print(f"\nage between {', '.join(f'{e:g}' for e in age.edges)}: {age.counts}")


if __name__ == "__main__":
    main()
