"""How different are hospitals? One is sent older patients, one codes the outcome the other way.

python examples/shift.py
"""

from pathlib import Path

import pandas as pd

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    patients = load("sample:gbsg2", Path()).frames
    table = patients[["age", "tsize", "pnodes", "menostat"]].copy()
    table["died"] = patients["cens"].astype(int)
    outcome = fc.Binary("died")
    older = table["age"] > 60
    rest = partition(table[~older], "iid", 3, seed=1, outcome=outcome)
    north, south, turned = rest.values()
    hospitals = {
        "north": north,
        "south": south,
        "older": table[older],
        "turned": turned.assign(died=1 - turned["died"]),
    }
    fit = fc.fit("shift", fc.simulate(hospitals, outcome=outcome))

    clear = fit.summary[fit.summary.clear].sort_values("value", ascending=False)
    print(clear[["kind", "variable", "site", "other", "value", "expected"]].head(8).round(3))
    for kind in fit.model.kinds:
        names = list(fit.model.sites)
        matrix = pd.DataFrame(fit.model.matrix(kind), names, names)
        print(f"\n{kind}\n{matrix.round(2)}")
    names, places, share = fit.model.places("feature")
    print(f"\nmap by features, {share:.0%} of the differences")
    print(pd.DataFrame(places, list(names), ["x", "y"]).round(2))


if __name__ == "__main__":
    main()
