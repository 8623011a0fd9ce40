"""The deep generative decoder: clusters, number of components, missing entries, transfer, time.

    OMP_NUM_THREADS=1 python benchmarks/dgd/run.py --out benchmarks/dgd/results.json
        [--parts known digits slow filled transfer time] [--mds FILE]

known    300 rows of four groups in a plane, ten columns, three sites: `dgd` with 4, 20, 30 and 50
         components, a mixture on the latent points of `vae`, and `deep_clustering`.
digits   400 of scikit-learn's digits at three sites, likewise with 10.
slow     the digits with smaller steps: `dgd` with 10, 20, 30 and 50 components, its
         points clustered by a mixture, a classifier of the digit on its points, on those of `vae`
         and on the pixels, tested on 800 others; --maps FOLDER writes UMAP's maps of the points.
mds      genes and chromosomes of the MDS cohort, without a truth: how far two fits of different
         seeds agree; needs --mds.
filled   20 and 50 % of the entries of breast cancer, wine and diabetes missing at random: squared
         error beside means and the ten nearest neighbours, in variances of the complete column.
transfer 40 digits at each of two sites, with and without 600 public ones at the coordinator.
time     seconds of a site's visit by rows.

Seeds 0 and 1; of digits and transfer 0 alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

import fedcohort as fc

sys.path.insert(0, str(Path(__file__).parents[1]))
import book

Figures = dict[str, float]


def mixture(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Return rows of four groups on a circle, of ten columns, and their groups."""
    rng = np.random.default_rng(seed)
    angle, group = 2 * np.pi * np.arange(4) / 4, rng.integers(4, size=n)
    z = 4.0 * np.c_[np.cos(angle), np.sin(angle)][group] + 0.6 * rng.normal(size=(n, 2))
    return framed(z @ rng.normal(size=(2, 10)) + 0.3 * rng.normal(size=(n, 10))), group


def digits(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Return digits, with the pixels that vary, and their numbers."""
    x, y = load_digits(return_X_y=True)
    at = np.random.default_rng(seed).permutation(len(x))[:n]
    return framed(x[:, x.std(axis=0) > 0.5][at]), y[at]


def framed(x: Any) -> pd.DataFrame:
    """Return a frame with numbered columns."""
    return pd.DataFrame(np.asarray(x, float), columns=[f"c{j}" for j in range(x.shape[1])])


def over(frame: pd.DataFrame, sites: int, seed: int) -> Any:
    """Return a federation of the rows, dealt in turn."""
    at = np.arange(len(frame)) % sites
    return fc.simulate({f"site{s}": frame[at == s] for s in range(sites)}, seed=seed)


def agreement(truth: Any, found: Any) -> Figures:
    """Return adjusted Rand index, mutual information, and accuracy by the best matching."""
    table = pd.crosstab(truth, found).to_numpy()
    rows, columns = linear_sum_assignment(-table)
    return {
        "ari": adjusted_rand_score(truth, found),
        "nmi": normalized_mutual_info_score(truth, found),
        "accuracy": table[rows, columns].sum() / len(truth),
    }


def clusters(
    frame: pd.DataFrame, truth: Any, seed: int, k: int, dgd: Mapping[str, Any],
    vae: Mapping[str, Any], dec: Mapping[str, Any],
) -> Iterator[tuple[str, Figures]]:  # fmt: skip
    """Yield the figures of each method."""
    fed = over(frame, 3, seed)
    for number in (k, 20, 30, 50):
        start = time.process_time()
        fit = fc.fit("dgd", fed, n_clusters=number, **dgd)
        spent = time.process_time() - start
        found = fit.model.predict(fit.parts.design.matrix(frame))
        left = float(len(fit.model.shares))
        yield f"dgd {number}", {**agreement(truth, found), "left": left, "seconds": spent}
    start = time.process_time()
    z = np.asarray(fc.fit("vae", fed, **vae).transform(frame))
    label = GaussianMixture(k, n_init=5, random_state=seed).fit_predict(z)
    spent = time.process_time() - start
    yield "vae and mixture", {**agreement(truth, label), "seconds": spent}
    start = time.process_time()
    found = np.asarray(fc.fit("deep_clustering", fed, n_clusters=k, **dec).predict(frame))
    spent = time.process_time() - start
    yield "deep_clustering", {**agreement(truth, found), "seconds": spent}


def known(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield figures of the known mixture, a seed at a time."""
    for seed in range(2):
        frame, group = mixture(300, seed)
        yield from clusters(
            frame, group, seed, 4, {"q": 2, "hidden": ()},
            {"q": 2, "rounds": 50, "learning_rate": 0.01},
            {"architecture": (10, 2), "rounds": 100, "learning_rate": 0.01},
        )  # fmt: skip


def of_digits(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield figures of the digits."""
    for seed in range(1):
        frame, number = digits(400, seed)
        yield from clusters(
            frame, number, seed, 10, {"q": 10, "hidden": (50,)},
            {"q": 10, "hidden": (50,), "rounds": 50, "learning_rate": 0.01},
            {"architecture": (50, 10), "rounds": 100, "learning_rate": 0.01},
        )  # fmt: skip


#: Smaller steps, chosen on seed 0 of the digits: of the decoder, and of representations.
SLOW: Mapping[str, Any] = {"learning_rate": 0.01, "representation_rate": 0.3}


def slow(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield figures of smaller steps, and what a classifier learns from the points."""
    for seed in range(2):
        frame, number = digits(1200, seed)
        new, later = frame[400:], number[400:]
        frame, number = frame[:400], number[:400]
        fed = over(frame, 3, seed)
        yield "pixels", {"right": classified(frame, number, new, later)}
        arms: dict[str, tuple[str, dict[str, Any]]] = {
            f"dgd {k}": ("dgd", {"q": 10, "hidden": (50,), "n_clusters": k, **SLOW})
            for k in (10, 20, 30, 50)
        } | {"vae": ("vae", {"q": 10, "hidden": (50,), "rounds": 50, "learning_rate": 0.01})}
        for name, (method, settings) in arms.items():
            start = time.process_time()
            fit = fc.fit(method, fed, **settings)
            spent = time.process_time() - start
            z = np.asarray(fit.transform(frame))
            label = GaussianMixture(10, n_init=5, random_state=seed).fit_predict(z)
            found = {
                "of_points": float(adjusted_rand_score(number, label)), "seconds": spent,
                "right": classified(z, number, np.asarray(fit.transform(new)), later),
            }  # fmt: skip
            if method == "dgd":
                found |= agreement(number, np.asarray(fit.predict(frame)))
                found["left"] = float(len(fit.model.shares))
            if args.maps and not seed:
                mapped(z, number, args.maps / f"{name.replace(' ', '_')}.png")
            yield name, found


def classified(x: Any, y: Any, new: Any, later: Any) -> float:
    """Return the share of new rows whose class a logistic regression finds."""
    known = np.asarray(x, float)
    scale = np.maximum(known.std(axis=0), 1e-9)
    model = LogisticRegression(max_iter=2000).fit(known / scale, y)
    return float(model.score(np.asarray(new, float) / scale, later))


def mapped(z: Any, y: Any, file: Path) -> None:
    """Draw UMAP's map of points; umap-learn is an extra of the package."""
    import matplotlib.pyplot as plt
    import umap

    at = np.asarray(umap.UMAP(random_state=0).fit_transform(z))
    plt.figure(figsize=(4, 4))
    plt.scatter(*at.T, c=y, cmap="tab10", s=8)
    plt.savefig(file, dpi=80)
    plt.close()


def mds(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield how far the labels of two fits agree, on genes and chromosomes of 800 patients."""
    if args.mds is None:
        return
    table = pd.read_csv(args.mds, low_memory=False)
    binary = [
        c for c in table if table[c].dropna().isin([0, 1]).all() and table[c].notna().mean() > 0.9
        and table[c].mean() > 0.03
    ]  # fmt: skip
    x = table[binary].iloc[np.random.default_rng(0).permutation(len(table))[:800]].astype(float)
    x.columns = [f"c{j}" for j in range(x.shape[1])]
    types: dict[str, Any] = {str(c): {"type": "binary"} for c in x}
    at = np.arange(len(x)) % 3
    for name, k, steps in (
        ("dgd 6", 6, {}), ("dgd 6 slow", 6, SLOW), ("dgd 20 slow", 20, SLOW),
        ("dgd 30 slow", 30, SLOW), ("dgd 50 slow", 50, SLOW),
    ):  # fmt: skip
        labels: list[Any] = []
        left = 0.0
        for seed in range(2):
            sites = {f"site{s}": x[at == s] for s in range(3)}
            fed = fc.simulate(sites, dictionary=types, seed=seed)
            fit = fc.fit("dgd", fed, n_clusters=k, q=5, hidden=(30,), **steps)
            labels.append(fit.model.predict(fit.parts.design.matrix(x)))
            left = float(len(fit.model.shares))
        yield name, {
            "agreement": adjusted_rand_score(*labels), "columns": float(x.shape[1]),
            "left": left,
        }  # fmt: skip


def filled(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield squared errors of missing entries, by table and share."""
    tables: dict[str, Callable[..., Any]] = {
        "breast": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes
    }  # fmt: skip
    for name, load in tables.items():
        x = load().data
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        for share in (0.2, 0.5):
            for seed in range(2):
                gone = np.random.default_rng(seed).random(x.shape) < share
                gone[gone.all(axis=1), 0] = False
                gaps = np.where(gone, np.nan, x)

                def error(of: Any, gone: Any = gone, x: Any = x) -> float:
                    return float(((np.asarray(of) - x)[gone] ** 2).mean())

                fed = over(framed(gaps), 3, seed)
                yield (
                    f"{name} {share:.0%}",
                    {
                        "mean": error(np.where(gone, np.nanmean(gaps, axis=0), gaps)),
                        "knn": error(KNNImputer(n_neighbors=10).fit_transform(gaps)),
                        "dgd": error(dgd_filled(fed, framed(gaps))),
                    },
                )


def dgd_filled(fed: Any, frame: pd.DataFrame) -> Any:
    """Return the completed rows, in the frame's units."""
    fit = fc.fit("dgd", fed, q=3, n_clusters=3, hidden=(), rounds=25, cluster_rounds=25)
    design = fit.parts.design
    found = fit.model.impute(design.matrix(frame))
    shift = frame.mean().to_numpy()
    scale = frame.std(ddof=0).to_numpy()
    return np.where(frame.isna(), found * scale + shift, frame)


def transfer(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield errors of the hidden half of new digits, after 5 rounds of each phase and after 50."""
    for seed in range(1):
        frame, _ = digits(1200, seed)
        public, mine, new = frame[:600], frame[600:680], frame[680:880]
        gone = np.random.default_rng(seed).random(new.shape) < 0.5
        fed = over(mine, 2, seed)
        for rounds in (5, 50):
            for own in (None, (public, None)):
                fit = fc.fit(
                    "dgd", fed, q=5, n_clusters=5, hidden=(50,), rounds=rounds,
                    cluster_rounds=rounds, coordinator_data=own,
                )  # fmt: skip
                x = fit.parts.design.matrix(new)
                back = fit.model.impute(np.where(gone, np.nan, x))
                name = f"{rounds} rounds, {'public rows' if own else 'alone'}"
                yield name, {"error": float(((back - x)[gone] ** 2).mean())}


def by_rows(args: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield seconds of processor for ten rounds of one site."""
    for n in (500, 1000, 2000, 4000):
        frame, _ = mixture(n, 0)
        fed = over(frame, 1, 0)
        spent = []
        for rounds in (1, 11):
            start = time.process_time()
            fc.fit("dgd", fed, begin="drawn", n_clusters=20, cluster_rounds=rounds, batch_size=100)
            spent.append(time.process_time() - start)
        yield f"{n} rows", {"seconds": spent[1] - spent[0]}


PARTS = {
    "known": known, "filled": filled, "digits": of_digits, "slow": slow, "mds": mds,
    "transfer": transfer, "time": by_rows,
}  # fmt: skip


def main() -> None:
    """Run the parts that are asked for; keep the mean and the standard deviation over seeds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--mds", type=Path, help="table of the MDS cohort")
    parser.add_argument("--maps", type=Path, help="folder for UMAP's maps of the digits' points")
    book.asks_out(parser)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in args.parts:
        found: dict[str, list[Figures]] = {}
        for name, figures in PARTS[part](args):
            found.setdefault(name, []).append(figures)
            print(part, name, {k: round(v, 3) for k, v in figures.items()}, flush=True)
        for name, rows in found.items():
            table = pd.DataFrame(rows)
            kept = {k: round(float(v), 4) for k, v in table.mean().items()}
            kept |= {f"{k}_sd": round(float(v), 4) for k, v in table.std().dropna().items()}
            group = re.sub(r"\W+", "_", f"{part} {name}").strip("_")
            book.keep(args.out, {group: {**kept, "seeds": len(rows)}})


if __name__ == "__main__":
    main()
