"""One latent space of three views at six sites; four lack a view, one measures another unlike all.

python examples/multiview_ppca.py
"""

from pathlib import Path

import pandas as pd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedcohort as fc
from fedcohort.data.read.sources import load


def main() -> None:
    source = load("sample:multiview", Path())
    table = source.frames
    train, blind = table[:300], table[300:].reset_index(drop=True)
    views = {k: [c for c in table if c.startswith(k)] for k in ("v1", "v2", "v3")}
    sites = {f"site{k}": train[k::6].reset_index(drop=True) for k in range(6)}
    for k, lacked in zip(range(2, 6), ("v2", "v2", "v3", "v3"), strict=True):
        sites[f"site{k}"] = sites[f"site{k}"].drop(columns=views[lacked])
    sites["site1"][views["v3"]] += 0.2
    fed = fc.simulate(sites, dictionary=source.dictionary, seed=0)

    fit = fc.fit("multiview_ppca", fed, q=5, compare=True, draws=0)
    print(fit.summary.round(2).to_string(index=False))
    told = LinearDiscriminantAnalysis().fit(fit.transform(train), train["group"])
    print(f"group from latent points: {told.score(fit.transform(blind), blind['group']):.0%}")
    for view, columns in views.items():
        filled = fit.impute(blind.drop(columns=columns))
        off = ((filled[columns] - blind[columns]).abs() / blind[columns].std()).to_numpy()
        print(f"error of {view} from the other views: {off.mean():.2f} sd")
    print(pd.DataFrame(fit.model.differences()).nsmallest(3, "p").round(3).to_string(index=False))


if __name__ == "__main__":
    main()
