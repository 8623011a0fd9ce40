"""Tables of `run.py`'s results, with the figures of the paper beside them.

    python benchmarks/ccle/show.py --out DIR

Prints Markdown: a table for each size, number of rounds, split, swap and number of drugs at a site,
then what NCI-60 had in the paper. A cell is the mean over seeds, from two seeds on with the least
and the most, and with their number where other cells of the row have more; gains are of seeds that
both have. Arms stand in a fixed order. With fewer than `RANKS` seeds a line says that nothing is
ranked.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast

import pandas as pd

#: The paper's NRMSE and PCC on CCLE (its section 3.1), by arm and sites; its other figures are
#: drawn in figure 3 or stand in its supplement, and are not printed in its text.
PAPER = {
    ("ann", 3): (0.40, 0.916), ("ann", 20): (0.45, 0.894),
    ("drf", 3): (0.37, 0.929), ("drf", 20): (0.39, 0.921),
}  # fmt: skip
#: Its mean gain in NRMSE over clients alone, in %, by arm: CCLE (3.1) and NCI-60 (3.2).
GAINS = {"ann": (13.6, 6.3), "cnn": (20.6, 11.6), "drf": (24.4, 15.8)}
#: NCI-60, gain in PCC over clients alone, in %; DRF against ANN: −0.089 NRMSE, +0.127 PCC.
NCI_PCC = {"ann": 23.43, "cnn": 30.78, "drf": 34.81}
ARMS = {
    "drug means": "mean of the drug", "drug and line means": "means of drug and line",
    "ann": "ANN", "cnn": "REFINED-CNN", "drf": "REFINED-DRF", "cnn-shuffled": "CNN, random map",
    "drf-shuffled": "DRF, random map",
    "drf-personal": "DRF, own last layer", "drf-halt": "DRF, halted while R is high",
    "boosting": "boosted trees",
}  # fmt: skip
SCOPES = ("federated", "isolated", "pooled", "initial")
CASE = ["size", "rounds_at_most", "split", "swap", "drugs", "sites"]
RANKS = 3


def read(path: Path) -> pd.DataFrame:
    """Return a row per finished fit."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return pd.DataFrame([
        {"rounds_at_most": row["of"]["rounds"], **row["of"], **row} for row in lines
    ]).drop(columns="of")  # fmt: skip


def spread(values: pd.Series, seeds: int) -> str:
    """Return the mean over seeds, from two on with the range; – for none.

    seeds : of the table's row; a cell of fewer says its number.
    """
    values = values.dropna()
    if values.empty:
        return "–"
    about = [f"{len(values)} of {seeds} seeds"] * (len(values) < seeds)
    about += [f"{values.min():.3f}–{values.max():.3f}"] * (len(values) > 1)
    return f"{values.mean():.3f}" + (f" ({', '.join(about)})" if about else "")


def gained(by: dict[str, pd.DataFrame]) -> float:
    """Return the gain in NRMSE of federated over isolated in %, of the seeds that have both."""
    alone, together = (by[scope].set_index("seed")["nrmse"] for scope in ("isolated", "federated"))
    both = alone.index.intersection(together.index)
    return 100.0 * (1.0 - together[both].mean() / alone[both].mean())


def name_of(case: tuple[Any, ...]) -> str:
    """Return the heading of a case, values of `CASE`."""
    size, rounds, split, swap, drugs, sites = case
    held = {"pair": "pairs of drug and line", "line": "whole cell lines", "drug": "whole drugs"}
    text = f"{size}, at most {rounds} rounds, {sites} sites, test rows: {held[split]}"
    text += f", {swap:.0%} of outcomes permuted" if swap else ""
    return text + (f", {drugs} drugs at each site" if drugs else "")


def table(rows: pd.DataFrame, sites: int, plain: bool) -> None:
    """Print one case: NRMSE and PCC of all test rows by scope, own test rows, CPU seconds."""
    print("| arm | seeds | " + " | ".join(SCOPES) + " | own, federated | own, isolated | gain | "
          "paper | its gain | CPU s |")  # fmt: skip
    print("|---" * (len(SCOPES) + 8) + "|")
    for arm, title in ARMS.items():
        same = rows[rows["arm"] == arm]
        if same.empty:
            continue
        by = {scope: same[same["scope"] == scope] for scope in SCOPES}
        n = same["seed"].nunique()
        cells = [title, str(n)]
        cells += [f"{spread(of['nrmse'], n)} / {spread(of['pcc'], n)}" for of in by.values()]
        for scope in SCOPES[:2]:
            own = by[scope].reindex(columns=["own_nrmse", "own_pcc"])
            cells.append(f"{spread(own['own_nrmse'], n)} / {spread(own['own_pcc'], n)}")
        gain = gained(by)
        cells.append("–" if pd.isna(gain) else f"{gain:.1f} %")
        theirs = PAPER.get((arm, sites)) if plain else None
        cells.append(f"{theirs[0]:.2f} / {theirs[1]:.3f}" if theirs else "–")
        cells.append(f"{GAINS[arm][0]} %" if plain and arm in GAINS else "–")
        cpu = same.reindex(columns=["cpu"])["cpu"].dropna()
        cells.append(f"{cpu.min():.0f}–{cpu.max():.0f}" if len(cpu) else "–")
        print("| " + " | ".join(cells).replace("– / –", "–") + " |")


def statistic(rows: pd.DataFrame) -> None:
    """Print R of the sites' models on the coordinator's validation rows."""
    known = rows[rows.reindex(columns=["R"])["R"].notna()]
    for _, row in known.iterrows():
        text = (
            f"\nR of {ARMS[row['arm']]}, seed {row['seed']}: {row['R'][0]:.2f} in the third "
            f"round, {max(row['R']):.2f} at most, {row['R'][-1]:.2f} at the end"
        )
        if not pd.isna(halted := row.get("halted")):
            text += f"; {halted:.0f} of {row['rounds']:.0f} rounds halted"
        print(text)


def nci() -> None:
    """Print the paper's gains on NCI-60, which has no figures of ours."""
    print("\n### NCI-60: the paper's gains over clients alone; its data are not at hand\n")
    print("| arm | NRMSE | PCC | ours |\n|---|---|---|---|")
    for arm, (_, nrmse) in GAINS.items():
        print(f"| {ARMS[arm]} | {nrmse} % lower | {NCI_PCC[arm]} % higher | – |")
    print("\nREFINED-DRF beside ANN, mean: NRMSE 0.089 lower, PCC 0.127 higher")


def main() -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of results.jsonl")
    found = read(parser.parse_args().out / "results.jsonl")
    for keys, rows in found.groupby(CASE, sort=True):
        case = cast("tuple[Any, ...]", keys)
        print(f"\n### {name_of(case)}\n")
        counts = rows.iloc[0]
        print(f"{counts['columns']:.0f} columns; rows: {counts['first']:.0f} of the first model, "
              f"{counts['validation']:.0f} to validate, {counts['train']:.0f} at sites, "
              f"{counts['test']:.0f} to test. NRMSE / PCC.\n")  # fmt: skip
        _, _, split, swap, drugs, sites = case
        table(rows, sites, split == "pair" and not swap and not drugs)
        statistic(rows)
        if (seeds := rows["seed"].nunique()) < RANKS:
            print(f"\n{seeds} seed{'s' * (seeds > 1)}: nothing is ranked.")
    nci()
    return 0


if __name__ == "__main__":
    sys.exit(main())
