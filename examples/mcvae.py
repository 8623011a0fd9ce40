"""Cells of breast tumours in three views at four sites, of which two did not measure a view.

python examples/mcvae.py
"""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedcohort as fc


def main() -> None:
    cells = load_breast_cancer(as_frame=True)
    frame, benign = cells.data, cells.target.to_numpy()
    views = {kind: [c for c in frame if kind in c] for kind in ("mean", "error", "worst")}
    sites = {f"site{k}": frame[k::4] for k in range(4)}
    sites["site2"] = sites["site2"].drop(columns=views["worst"])
    sites["site3"] = sites["site3"].drop(columns=views["error"])
    fed = fc.simulate(sites, views=views)

    for method in ("vae", "mcvae"):
        with warnings.catch_warnings(action="ignore"):
            fit = fc.fit(method, fed, q=5, rounds=40, learning_rate=0.01)
        seen = frame.drop(columns=views["worst"])
        latent = np.concatenate([fit.transform(frame[::2]), fit.transform(seen[1::2])])
        known, asked = benign[::2], benign[1::2]
        told = LinearDiscriminantAnalysis().fit(latent[: len(known)], known)
        right = (told.predict(latent[len(known) :]) == asked).mean()
        worst = frame[views["worst"]]
        error = ((fit.impute(seen) - frame)[worst.columns].abs() / worst.std()).to_numpy().mean()
        mean = ((worst - worst.mean()).abs() / worst.std()).to_numpy().mean()
        print(f"{method}: benign or not, from latent points without view 'worst': {right:.0%}")
        print(f"  error of that view, filled from the others: {error:.2f} (its mean: {mean:.2f})")


if __name__ == "__main__":
    main()
