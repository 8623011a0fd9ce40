"""Tables and claims of `run.py`'s results.

    python benchmarks/dec_mds/show.py --out DIR

Prints Markdown: the 24 configurations beside the thesis's tables C.1 and C.2, what stands against
deep clustering, and what more sites cost, each of the most rounds that were run. A configuration
has its mean over seeds and, from two seeds on, the range; configurations are in a fixed order, as
one seed does not rank them. It leaves with 1 where a claim does not hold:

1. silhouette in the data: the median of the federated configurations' means is above HDP's
   reference.
2. clusters of every federated configuration differ in survival, p < 0.001.
3. no loss over 2, 4, 6, 8 equal or 8 skewed sites against all rows at one place: of five measures,
   none is worse in a paired t-test over seeds, p < 0.05 after Holm's correction.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import ttest_rel

#: Thesis 003, tables C.1 and C.2: split, strategy, aggregation → reconstruction, accuracy against
#: its HDP, cycle accuracy, loss of the autoencoder, silhouettes of data and latent points, and the
#: logarithm of Calinski–Harabasz of both. Its base is not said; the size of the figures makes it
#: the natural one (its table B.7, of the same kind of clusters, has 1.6 for 4.3: there it is 10).
THESIS = """
uniform fedyogi max_min 8.77262 .56192 .98434 .01759 .14702 .69714 4.31038 7.93359
uniform fedadam random .04096 .57024 .47088 .01787 .14518 .72065 4.24762 8.57021
skewed fedadam random .04124 .54185 .25061 .0173 .12026 .70514 4.14665 8.35007
skewed fedyogi random 2.61656 .60842 .81351 .01606 .10614 .6342 3.80749 7.65483
skewed fedyogi max_min 2.80088 .55605 .82917 .01603 .10446 .6232 4.03885 7.67925
skewed fedavg random_weighted .57802 .50367 .80715 .01911 .09398 .27914 3.40067 6.12165
skewed fedavg max_min .75641 .51787 .5766 .01909 .08585 .27174 3.96052 6.19145
uniform fedyogi double_kmeans 2.26761 .50024 .8977 .01754 .08392 .64788 3.89911 7.9153
uniform fedyogi random 4.2278 .40088 .77582 .01748 .08195 .55724 4.00766 7.50386
uniform fedavg random .38254 .48507 .96916 .02218 .08054 .14137 3.09767 6.01782
skewed fedyogi double_kmeans 2.2444 .41801 .77239 .01601 .07746 .60406 3.93928 7.85986
skewed fedavg double_kmeans .18046 .55605 .84043 .01903 .07714 .19629 3.49227 5.82638
skewed fedyogi random_weighted 1.01715 .43465 .744 .0159 .07347 .7072 3.90681 8.6849
skewed fedadam double_kmeans .04124 .52227 .29515 .01723 .07332 .64387 3.93511 8.37466
uniform fedavg random_weighted .14701 .48654 .98825 .02226 .06921 .20613 3.22043 6.14329
skewed fedadam max_min .42645 .52178 .39892 .01742 .06771 .61239 3.76844 7.86239
uniform fedadam max_min .04169 .4836 .49241 .01793 .06752 .6755 3.65534 8.00904
uniform fedadam random_weighted .04189 .48948 .38326 .01786 .0521 .51379 3.62878 7.70888
skewed fedadam random_weighted .04123 .54136 .37445 .01731 .04798 .652 3.53364 8.37406
skewed fedavg random .22358 .4699 .83554 .01935 .04591 .19776 3.65143 5.81864
uniform fedavg max_min .07096 .50857 .71072 .02207 .04477 .17052 3.7253 5.49092
uniform fedadam double_kmeans .04124 .44787 .34508 .01786 .03643 .69534 3.8747 8.56888
uniform fedyogi random_weighted 1.18649 .48458 .56975 .01763 .02751 .35708 3.56198 8.24578
uniform fedavg double_kmeans .05656 .55702 .88644 .02213 .02604 .1559 3.59329 5.25829
"""
#: Measures of the table, ours and the thesis's.
SHOWN = (
    "reconstruction", "accuracy", "cycle", "ae_loss", "silhouette", "silhouette_latent", "ch",
    "ch_latent",
)  # fmt: skip
#: Columns that name a configuration of the table.
CONFIGURATION = ["split", "strategy", "optimiser", "centroids", "target"]
#: Measures of the paired test, and whether more is better.
PAIRED = {
    "silhouette": True, "accuracy": True, "c_index": True, "cycle": True, "reconstruction": False,
}  # fmt: skip


def read(path: Path) -> pd.DataFrame:
    """Return a row per finished configuration."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return pd.DataFrame([row["of"] | {k: v for k, v in row.items() if k != "of"} for row in rows])


def thesis() -> dict[tuple[str, str, str], list[float]]:
    """Return the thesis's figures by split, strategy and aggregation."""
    lines = [line.split() for line in THESIS.strip().splitlines()]
    return {(a, b, c): list(map(float, rest)) for a, b, c, *rest in lines}


def number(value: Any) -> str:
    """Return a figure with three digits that count."""
    v = float(value)
    if not math.isfinite(v):
        return "–"
    return f"{v:.0f}" if abs(v) >= 100 else f"{v:.1f}" if abs(v) >= 10 else f"{v:.3f}"


def most_rounds(found: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of each configuration with the most rounds, of all seeds."""
    most = found.groupby(CONFIGURATION).rounds.transform("max")
    return found[found.rounds == most]


def spread(values: pd.Series) -> str:
    """Return the mean over seeds, with the range from two seeds on."""
    if len(values) == 1:
        return number(values.iloc[0])
    return f"{number(values.mean())} ({number(values.min())} to {number(values.max())})"


def table(found: pd.DataFrame) -> None:
    """Print the thesis's configurations."""
    theirs = thesis()
    for target, title in (("site", "P of each site's own rows"), ("global", "P of all rows")):
        rows = found[(found.target == target) & (found.split != "pooled")]
        print(f"\n### {title}: ours, mean (range) over seeds / thesis, one run\n")
        print(
            "| split | strategy | rounds | centroids | seeds | " + " | ".join(SHOWN) + " | p | C |"
        )
        print("|---" * (len(SHOWN) + 7) + "|")
        for (split, strategy, _, centroids, _), same in rows.groupby(CONFIGURATION, sort=True):
            key = (split.split()[0], strategy, centroids)
            cells = [
                f"{spread(same[name])} / {number(_log(name, value))}"
                for name, value in zip(SHOWN, theirs[key], strict=True)
            ]
            first = (*key[:2], f"{same.rounds.iloc[0]:.0f}", centroids, f"{len(same)}")
            last = (f"at most {same.p.max():.1g}", spread(same.c_index))
            print("| " + " | ".join([*first, *cells, *last]) + " |")
    print("\n### All rows at one place\n")
    print("| optimiser | rounds | seeds | " + " | ".join(SHOWN) + " | C |")
    print("|---" * (len(SHOWN) + 4) + "|")
    for optimiser, same in found[found.split == "pooled"].groupby("optimiser"):
        cells = [spread(same[name]) for name in (*SHOWN, "c_index")]
        print(
            f"| {optimiser} | {same.rounds.iloc[0]:.0f} | {len(same)} | " + " | ".join(cells) + " |"
        )


def _log(name: str, value: float) -> float:
    """Return CH of the thesis's logarithm, as a natural one; see the page."""
    return math.exp(value) if name.startswith("ch") else value


def reference(found: pd.DataFrame) -> pd.Series:
    """Return the line of HDP that accuracy is against: the first chain with six topics."""
    six = found[(found.method == "hdp") & (found.clusters == 6)]
    return six.sort_values("seed").iloc[0]


def against(found: pd.DataFrame) -> None:
    """Print HDP, k-modes and k-means: median and range over seeds."""
    names = ("clusters", "silhouette", "ch", "accuracy", "ari", "ami", "c_index", "chi2", "p")
    print("\n### HDP, k-modes, k-means: median (range) over seeds\n")
    print("| method | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for method, rows in found.groupby("method"):
        cells = [
            f"{rows[n].median():.2g} (at most {rows[n].max():.1g})" if n == "p" else
            f"{number(rows[n].median())} ({number(rows[n].min())}–{number(rows[n].max())})"
            for n in names
        ]  # fmt: skip
        print(f"| {method} | " + " | ".join(cells) + " |")
    row = reference(found)
    cells = [f"{row.p:.2g}" if n == "p" else number(row[n]) for n in names]
    print(f"| hdp, seed {row.seed}: the reference | " + " | ".join(cells) + " |")


def sites(found: pd.DataFrame) -> list[str]:
    """Print what more sites cost; return losses that are significant."""
    found = found[found.rounds == found.rounds.max()]
    wide = found.pivot(index="seed", columns="sites").dropna()
    print(f"\n### Sites: mean ± sd over {len(wide)} seeds; p of the paired test, one-sided\n")
    print("| sites | " + " | ".join(PAIRED) + " |\n" + "|---" * (len(PAIRED) + 1) + "|")
    tests: list[tuple[float, str]] = []
    for name in ["pooled", *sorted(n for n in found.sites.unique() if n != "pooled")]:
        cells: list[str] = []
        for measure, more in PAIRED.items():
            ours, base = wide[(measure, name)], wide[(measure, "pooled")]
            cell = f"{ours.mean():.4f} ± {ours.std():.4f}"
            if name != "pooled":
                p = ttest_rel(ours, base, alternative="less" if more else "greater").pvalue
                tests.append(
                    (float(p), f"{name} sites: {measure} {ours.mean() - base.mean():+.4f}")
                )
                cell += f" ({p:.3f})"
            cells.append(cell)
        print(f"| {name} | " + " | ".join(cells) + " |")
    tests.sort()
    worse: list[str] = []
    for i, (p, what) in enumerate(tests):
        if not p * (len(tests) - i) < 0.05:
            break
        worse.append(f"{what}, p {p:.2g}")
    return worse


def main() -> int:
    """Print what there is; return whether a claim is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    found = read(parser.parse_args().out / "runs.jsonl")
    broken: list[str] = []
    parts = {name: rows.dropna(axis=1, how="all") for name, rows in found.groupby("part")}
    if "against" in parts:
        against(parts["against"])
    if "sites" in parts:
        broken += sites(parts["sites"])
    if "table" in parts:
        rows = parts["table"]
        rows = most_rounds(rows)
        table(rows)
        ours = rows[rows.split != "pooled"]
        if "against" in parts:
            least = float(reference(parts["against"]).silhouette)
            median = float(ours.groupby(CONFIGURATION).silhouette.mean().median())
            if not median > least:
                broken.append(f"median silhouette {median:.3f}, HDP's {least:.3f}")
        broken += [
            f"{row.split} {row.strategy} {row.centroids} {row.target} seed {row.seed}: "
            f"log-rank p {row.p:.2g}"
            for row in ours.itertuples()
            if not row.p < 0.001
        ]
    print("\n" + ("\n".join(broken) or "all claims hold"))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
