"""Who is the user, with which rows, beside whom: three data sets, split over sites.

Titanic: four agents by age. AGE_STRICT has those up to 20 years, 21 to 35, 36 and more, and of
unknown age; AGE_SOME the same, but that the first two are mixed and halved. MDS (the IWG-PM's
cohort, death within two years, of those who died or were followed so long): AGE_STRICT up to 62
years, to 71, to 77, older; AGE_SOME as before; BATCH the eight batches of records with at least 150
of them, which are no hospitals. Heart: four hospitals.

A user's rows are halved anew by each seed: the first 1 + ⌊n/2⌋ shuffled rows are the test, and
other sites have all their rows (of the heart data, the split HALVES). FLamby is that of its
authors: every hospital has its training rows alone.

Survival is the MDS cohort again, with times to death or the end of follow-up, of all patients whose
time is known; splits and covariates as before, of other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable

#: The value of `minor` where an age is not known (the paper's).
UNKNOWN_MINOR = 0.201
#: Rows of a batch in the paper's protocol.
BATCH = {"AGE_STRICT": 161, "AGE_SOME": 132}
#: Largest ages of the first three sites.
TITANIC_AGES, MDS_AGES = (20.99, 35.99), (62, 71, 77)
#: Fewest rows of a batch of records that is a site, and of a flag that is a covariate.
LARGE, COMMON = 150, 0.04
YEARS = 2.0


@dataclass(frozen=True)
class Case:
    """One user of one split.

    Attributes
    ----------
    sites : rows to train with, by site; the user's are those that are not in `test`.
    rate : η of full gradients. batch : rows of a batch as in the paper, or 0.
    """

    cohort: str
    split: str
    seed: int
    user: str
    features: tuple[str, ...]
    sites: Mapping[str, Any]
    test: Any
    rate: float
    batch: int = 0

    @property
    def next_site(self) -> str:
        """The site after the user, whose labels are flipped where that is asked."""
        names = list(self.sites)
        return names[(names.index(self.user) + 1) % len(names)]

    def only(self, names: Sequence[str]) -> Case:
        """Return the case with these covariates."""
        at = [self.features.index(name) for name in names]
        sites = {s: LabelledTable(t.x[:, at].copy(), t.y) for s, t in self.sites.items()}
        test = LabelledTable(self.test.x[:, at].copy(), self.test.y)
        return Case(**{**vars(self), "features": tuple(names), "sites": sites, "test": test})

    def flipped(self) -> Case:
        """Return the case with the labels of the next site flipped."""
        table = self.sites[self.next_site]
        sites = {**self.sites, self.next_site: LabelledTable(table.x, 1.0 - table.y)}
        return Case(**{**vars(self), "sites": sites})


def titanic(path: Path, seeds: Sequence[int]) -> Iterator[Case]:
    """Yield every agent as user, of both splits."""
    raw = pd.read_csv(path)
    age = raw.age.to_numpy(float)
    table = LabelledTable(_titanic_features(raw), raw.survived.to_numpy(float))
    names = ("fare", "female", "port C", "port Q", "alone", "class 1", "class 2", "age", "minor")
    groups = np.where(np.isnan(age), 3, np.digitize(age, TITANIC_AGES))
    for seed in seeds:
        for split, batch in BATCH.items():
            rows = by_age(groups, split, np.random.default_rng((278, seed)))
            agents = {f"agent{k}": part for k, part in enumerate(rows)}
            for user in agents:
                sites, test = halved(table, agents, user)
                yield Case("titanic", split, seed, user, names, sites, test, 3.0, batch)


def mds(path: Path, seeds: Sequence[int]) -> Iterator[Case]:
    """Yield every site as user, of three splits: death within two years."""
    raw = pd.read_csv(path, low_memory=False)
    time = pd.to_numeric(raw.os_years, errors="coerce")
    dead = raw.os_event.eq(1) & time.le(YEARS)
    known = time.gt(0) & (dead | time.gt(YEARS)) & raw.age.notna()
    raw, y = raw[known].reset_index(drop=True), dead[known].to_numpy(float)
    names, x = _mds_features(raw)
    yield from _mds_cases("mds", raw, names, LabelledTable(x, y), seeds)


def survival(path: Path, seeds: Sequence[int]) -> Iterator[Case]:
    """Yield every site as user, of three splits: time to death."""
    raw = pd.read_csv(path, low_memory=False)
    time = pd.to_numeric(raw.os_years, errors="coerce")
    known = time.gt(0) & raw.os_event.isin((0, 1)) & raw.age.notna()
    raw, time = raw[known].reset_index(drop=True), time[known].to_numpy(float)
    names, x = _mds_features(raw)
    table = SurvivalTable(x, time, raw.os_event.eq(1).to_numpy())
    yield from _mds_cases("survival", raw, names, table, seeds)


def _mds_cases(
    cohort: str, raw: pd.DataFrame, names: tuple[str, ...], table: Any, seeds: Sequence[int]
) -> Iterator[Case]:
    groups = np.digitize(raw.age, np.array(MDS_AGES) + 0.99)
    batches = raw.id_block.value_counts()
    large = sorted(batches.index[batches >= LARGE])
    for seed in seeds:
        for split in ("AGE_STRICT", "AGE_SOME", "BATCH"):
            rng = np.random.default_rng((278, seed))
            if split == "BATCH":
                sites = {b: rng.permutation(np.flatnonzero(raw.id_block == b)) for b in large}
            else:
                sites = {f"agent{k}": part for k, part in enumerate(by_age(groups, split, rng))}
            for user in sites:
                own, test = halved(table, sites, user)
                yield Case(cohort, split, seed, user, names, own, test, 1.0)


def heart(path: Path, seeds: Sequence[int]) -> Iterator[Case]:
    """Yield every hospital as user; of FLamby's split, seeds draw folds and parts alone."""
    raw = pd.read_csv(path)
    raw = raw[raw.flamby_split.notna()].reset_index(drop=True)
    train = (raw.flamby_split == "train").to_numpy()
    columns = [standardised(raw[c].to_numpy(float), train) for c in HEART]
    columns += [(raw.cp == k).to_numpy(float) for k in (2, 3, 4)]
    columns += [(raw.restecg == k).to_numpy(float) for k in (1, 2)]
    columns += [raw[c].to_numpy(float) for c in ("sex", "fbs", "exang")]
    x, y = np.column_stack(columns), raw.y.to_numpy(float)
    names = (*HEART, "cp 2", "cp 3", "cp 4", "restecg 1", "restecg 2", "sex", "fbs", "exang")
    for seed in seeds:
        own = {
            str(c): LabelledTable(x[rows], y[rows])
            for c, rows in raw[train].groupby("centre").groups.items()
        }
        for user in own:
            rows = np.flatnonzero(~train & (raw.centre == user))
            yield Case("heart", "FLamby", seed, user, names, own,
                       LabelledTable(x[rows], y[rows]), 1.0)  # fmt: skip
        rng = np.random.default_rng((278, seed))
        every = {
            str(c): rng.permutation(rows.to_numpy())
            for c, rows in raw.groupby("centre").groups.items()
        }
        for user in every:
            sites, test = halved(LabelledTable(x, y), every, user)
            yield Case("heart", "HALVES", seed, user, names, sites, test, 1.0)


HEART = ("age", "trestbps", "chol", "thalach", "oldpeak")
COHORTS = {"titanic": titanic, "heart": heart, "mds": mds, "survival": survival}


def halved(table: Any, rows: Mapping[str, Array], user: str) -> tuple[dict[str, Any], Any]:
    """Return the tables to train with, and the user's test; `rows` are shuffled."""
    cut = 1 + len(rows[user]) // 2
    kept = {**rows, user: rows[user][cut:]}

    def take(part: Array) -> Any:
        return type(table)(*(None if column is None else column[part] for column in table))

    return {site: take(part) for site, part in kept.items()}, take(rows[user][:cut])


def by_age(groups: Array, split: str, rng: np.random.Generator) -> list[Array]:
    """Return the rows of each of four agents, by number, shuffled."""
    rows = [rng.permutation(np.flatnonzero(groups == k)) for k in range(4)]
    if split == "AGE_SOME":
        rows[:2] = np.array_split(rng.permutation(np.concatenate(rows[:2])), 2)
    return rows


def standardised(x: Array, of: Array | None = None) -> Array:
    """Return x (n,) less its mean over its standard deviation, both of the rows `of`."""
    given = x if of is None else x[of]
    return (x - np.nanmean(given)) / np.nanstd(given)


def _titanic_features(raw: pd.DataFrame) -> Array:
    age = raw.age.to_numpy(float)
    fare = raw.fare.fillna(raw.fare.median()).to_numpy(float)
    return np.column_stack([
        standardised(fare), raw.sex == "female", raw.embarked == "C", raw.embarked == "Q",
        raw.sibsp + raw.parch == 0, raw.pclass == 1, raw.pclass == 2,
        standardised(np.where(np.isnan(age), np.nanmedian(age), age)),
        np.where(np.isnan(age), UNKNOWN_MINOR, age < 17),
    ]).astype(float)  # fmt: skip


def _mds_features(raw: pd.DataFrame) -> tuple[tuple[str, ...], Array]:
    """Return 7 clinical values (missing ones the median), sex, and flags that are not rare."""
    numbers = ("age", "bm_blast_pct", "hb", "plt", "anc", "wbc", "monocytes")
    flags = raw[[c for c in raw if c.startswith(("cyto_loss", "cyto_gain", "gene_"))]]
    flags = flags.apply(pd.to_numeric, errors="coerce").clip(0, 1)
    common = [c for c in flags if COMMON <= flags[c].mean() <= 1 - COMMON]
    columns = [
        standardised(v.fillna(v.median()).to_numpy(float))
        for v in (pd.to_numeric(raw[c], errors="coerce") for c in numbers)
    ]
    columns += [(raw.sex == "M").to_numpy(float)]
    columns += [flags[c].fillna(0).to_numpy(float) for c in common]
    return (*numbers, "male", *common), np.column_stack(columns)
