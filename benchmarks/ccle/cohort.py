"""CCLE's tables, and who has which rows: coordinator, sites, test.

A row is a drug on a cell line; its outcome is the activity area, because 55 % of the IC50 are
capped. Lines without expression, copy number and mutations are left out: 7,278 rows of 316 lines
and 24 drugs. Columns have two views, `cell` and `drug`.

Rows are drawn in units, which are pairs (the paper's), lines or drugs (no unit is on two sides):

    test         `TEST` of the units
    validation   `VALIDATION` of the units, at the coordinator
    first        5 % of the other rows, at the coordinator (lines: 5 % of the lines)
    sites        the rest, and the test rows as the site's own test rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.degrade import degrade
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Continuous
from fedcohort.data.split.overlap import overlap

OUTCOME = "actarea"
TEST, VALIDATION, FIRST = 0.1, 0.1, 0.05
UNITS = {"pair": None, "line": "depmap_id", "drug": "drug"}
#: Tables of lines, and the letter before the names of their columns.
CELLS = {"e": "exp_z", "c": "cn", "m": "mut"}


@dataclass(frozen=True)
class Columns:
    """How many columns of expression, copy number, mutation and of drugs; None: all that vary."""

    e: int | None = None
    c: int | None = None
    m: int | None = None
    d: int | None = None


@dataclass(frozen=True)
class Cohort:
    """Rows of one split.

    Attributes
    ----------
    train : rows by site. test : test rows by site, together all of them.
    first, validation : the coordinator's.
    features : columns to learn from. dictionary : of these and the outcome.
    """

    train: Mapping[str, pd.DataFrame]
    test: Mapping[str, pd.DataFrame]
    first: pd.DataFrame
    validation: pd.DataFrame
    features: tuple[str, ...]
    dictionary: dict[str, Any]

    @property
    def views(self) -> dict[str, list[str]]:
        """The columns of cell lines, and those of drugs."""
        drug = [name for name in self.features if name.startswith("d_")]
        return {"cell": [n for n in self.features if n not in set(drug)], "drug": drug}

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that a method may see, and the outcome."""
        return frame[[*self.features, OUTCOME]].reset_index(drop=True)


def read(folder: Path) -> pd.DataFrame:
    """Return a row for each drug on a line with omics: names, outcome, all columns that vary."""
    rows = pd.read_csv(folder / "ccle_response_11670.csv")
    rows = rows.loc[rows["has_omics"] == 1, ["depmap_id", "drug", OUTCOME]]
    for letter, name in CELLS.items():
        table = pd.read_csv(folder / f"cells_580x706_{name}.csv.gz", index_col="depmap_id")
        table = table.loc[table.index.isin(rows["depmap_id"])]
        table = table.loc[:, table.nunique() > 1].add_prefix(f"{letter}_")
        rows = rows.merge(table, left_on="depmap_id", right_index=True)
    drugs = pd.read_csv(folder / "ccle_drugs_24_rdkit.csv", index_col="drug")
    drugs = drugs.loc[:, drugs.nunique() > 1].add_prefix("d_")
    return rows.merge(drugs, left_on="drug", right_index=True).reset_index(drop=True)


def drawn(
    rows: pd.DataFrame,
    columns: Columns,
    seed: int,
    split: str,
    sites: int,
    drugs: int = 0,
    swap: float = 0.0,
) -> Cohort:
    """Return who has which rows.

    Parameters
    ----------
    rows : as of `read`. split : pair, line or drug.
    drugs : k drugs of each site (`overlap`); 0: rows at random, lines whole with `split` line.
    swap : share of each site's training rows whose outcomes are permuted.
    """
    rng = np.random.default_rng((0xCC1E, seed))
    unit = UNITS[split]
    code = np.arange(len(rows)) if unit is None else pd.factorize(rows[unit], sort=True)[0]
    of = rng.permutation(code.max() + 1)
    n_test, n_val = (round(share * len(of)) for share in (TEST, VALIDATION))
    test, validation = np.isin(code, of[:n_test]), np.isin(code, of[n_test : n_test + n_val])
    rest = np.flatnonzero(~test & ~validation)
    whole = code if split == "line" else np.arange(len(rows))
    first = np.zeros(len(rows), bool)
    first[rest] = np.isin(whole[rest], _some(np.unique(whole[rest]), FIRST, rng))
    names = _chosen(rows.loc[first], columns)
    shared = rows.loc[~validation & ~first].reset_index(drop=True)
    tested = test[~validation & ~first]
    site = _dealt(shared, whole[~validation & ~first], sites, drugs, rng)
    known = {**dict.fromkeys(names, "number"), OUTCOME: "number"}
    train, blind = {}, {}
    for k in range(sites):
        train[f"site-{k + 1:02}"] = shared.loc[(site == k) & ~tested]
        blind[f"site-{k + 1:02}"] = shared.loc[(site == k) & tested]
    if swap:
        variables = Dictionary.from_dict(known).variables
        features = [v for name, v in variables.items() if name != OUTCOME]
        outcome = Continuous(OUTCOME)
        train, _ = degrade(train, (), swap, features, outcome, seed=seed, sites_seed=seed)
    return Cohort(train, blind, rows.loc[first], rows.loc[validation], names, known)


def _some(units: Array, share: float, rng: np.random.Generator) -> Array:
    return rng.permutation(units)[: round(share * len(units))]


def _dealt(
    rows: pd.DataFrame, whole: Array, sites: int, drugs: int, rng: np.random.Generator
) -> Array:
    """Return each row's site; rows of one number in `whole` have the same."""
    if drugs:
        return overlap(rows, sites, rng, "drug", drugs)
    code = pd.factorize(whole)[0]
    return rng.permutation(np.arange(code.max() + 1) % sites)[code]


def _chosen(first: pd.DataFrame, columns: Columns) -> tuple[str, ...]:
    """Return the columns with the largest variance in the coordinator's rows of the first model.

    Of drugs, whose descriptors have many units, variance is divided by the squared range. Columns
    that do not vary in these rows are left out.
    """
    found: list[str] = []
    for letter, most in vars(columns).items():
        part = first[[c for c in map(str, first) if c.startswith(f"{letter}_")]]
        spread = part.var()
        if letter == "d":
            spread = spread / (part.max() - part.min()) ** 2
        spread = spread[spread > 0].sort_values(ascending=False, kind="stable")
        found += list(spread.index[:most])
    return tuple(found)


def additive(cohort: Cohort, *, lines: bool) -> Array:
    """Return predictions of the test rows: the drug's mean, with `lines` plus the line's.

    They need no network: means of pooled training rows, a line's of what its drug's mean leaves.
    What is unknown has the overall mean, or 0.
    """
    train = pd.concat([*cohort.train.values(), cohort.first])
    test = pd.concat(list(cohort.test.values()))
    mean = train[OUTCOME].mean()
    drug = train.groupby("drug")[OUTCOME].mean()
    y = test["drug"].map(drug).fillna(mean)
    if lines:
        left = train[OUTCOME] - train["drug"].map(drug)
        y = y + test["depmap_id"].map(left.groupby(train["depmap_id"]).mean()).fillna(0.0)
    return y.to_numpy()
