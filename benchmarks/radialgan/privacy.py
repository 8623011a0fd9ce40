"""Membership and use of the virtual rows of RadialGAN, without and with noise.

    python benchmarks/radialgan/privacy.py FILE --lines LINES [--seeds 5] [--rows 150] [--out FILE]

FILE, sites and settings as in `run.py`; death within two years. Each site draws 1,000 virtual rows.
Without noise, and with ε = 3, δ = 1e-5 of each record:

    own      AUC of the nearest-record attack between the site's own training rows, on which its
             decoder was trained without noise in either fit, and its blind rows
    others   the same for the training rows of the other two sites, by the four shared columns:
             what crosses sites, and what the noise protects
    use      AUC on the site's blind rows of a logistic regression on its virtual rows alone, and
             of one on its own training rows

A cell is a seed and a site; intervals are of the mean over cells, by Student's t.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedcohort as fc
from fedcohort.metrics.virtual import nearest_record
from fedcohort.study.virtual import Drawing

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))
from book import Book, asks_out, keep
from run import SHARED, SITES, cohort, dealt

DP = {"epsilon": 3.0, "delta": 1e-5}
VIRTUAL = 1000
#: Usual ranges of numbers, which a private fit scales by: of medicine, not of this table.
RANGES = {
    "age": (18, 100), "hb": (4, 18), "bm_blast_pct": (0, 30), "plt": (0, 7), "anc": (0, 3),
    "wbc": (0, 4), "pb_blast_pct": (0, 20),
}  # fmt: skip


def dictionary() -> dict[str, Any]:
    """Return the dictionary of all columns; each column is a view."""
    names = dict.fromkeys(c for own in SITES.values() for c in own)
    known: dict[str, Any] = {
        c: {"type": "number", "usual": list(RANGES[c])} if c in RANGES else {"type": "binary"}
        for c in names
    }
    return {c: {**v, "view": c} for c, v in known.items()} | {"dead": {"type": "binary"}}


def attacked(members: pd.DataFrame, blind: pd.DataFrame, virtual: pd.DataFrame) -> float:
    """Return the AUC of the nearest-record attack, columns in units of the members' spread."""
    spread = members.std().replace(0.0, 1.0).to_numpy()
    points = [
        frame[members.columns].to_numpy(float) / spread for frame in (members, blind, virtual)
    ]
    one, other = nearest_record(*points)
    y = np.repeat([1, 0], [len(one), len(other)])
    return float(roc_auc_score(y, np.concatenate([one, other])))


def used(train: pd.DataFrame, blind: pd.DataFrame) -> float:
    """Return the AUC on blind rows of a logistic regression of training rows."""
    x, y = train.drop(columns="dead"), train["dead"].astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000)).fit(x, y)
    return float(roc_auc_score(blind["dead"], model.predict_proba(blind[x.columns])[:, 1]))


def run(table: pd.DataFrame, seed: int, rows: int, noise: bool) -> dict[str, dict[str, float]]:
    """Return the measures by site."""
    dealing = dealt(table[table["known"]], seed, rows)
    frames = {s: train[[*SITES[s], "dead"]] for s, (train, _) in dealing.items()}
    fed = fc.simulate(frames, outcome=fc.Binary("dead"), seed=seed, dictionary=dictionary())
    fit = fc.fit("radialgan", fed, dp=DP if noise else None)
    found: dict[str, dict[str, float]] = {}
    for site, (train, blind) in dealing.items():
        drawn = Drawing.of(fit.of(site).parts).table(VIRTUAL, seed)
        columns = [c for c in SITES[site] if c in drawn]  # nearly constant ones are left out
        virtual = drawn[[*columns, "dead"]].astype(float)
        others = pd.concat([t for s, (t, _) in dealing.items() if s != site])
        found[site] = {
            "own": attacked(train[[*columns, "dead"]], blind, virtual),
            "others": attacked(others[[*SHARED, "dead"]], blind, virtual),
            "use": used(virtual, blind),
            "use_of_own": used(train[[*columns, "dead"]], blind),
        }
    return found


def main() -> None:
    """Run what is missing and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="FILE", type=Path, help="the IWG-PM cohort")
    parser.add_argument("--lines", type=Path, required=True, help="finished fits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150, help="training rows of a site")
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table, book = cohort(given.path), Book(given.lines)
    for seed in range(given.seeds):
        for noise in (True, False):
            of = {"rows": given.rows, "noise": noise, "seed": seed}
            if book.lacks(of):
                book.write(of, run(table, seed, given.rows, noise))
        figures: dict[str, dict[str, float]] = {}
        for noise, group in ((True, "private"), (False, "plain")):
            lines = book.rows(rows=given.rows, noise=noise)
            cells = pd.DataFrame([line[site] for line in lines for site in SITES])
            half = student.ppf(0.975, len(cells) - 1) * cells.sem()
            figures[group] = {"seeds": float(len(lines))} | {
                f"{name}{end}": round(float(value), 4)
                for end, values in (("", cells.mean()), ("_low", cells.mean() - half),
                                    ("_high", cells.mean() + half))
                for name, value in values.items()
            }  # fmt: skip
        keep(given.out, figures)


if __name__ == "__main__":
    main()
