"""Training rows of simulated sites made worse on purpose: good and bad nodes.

GenoMed4All D6.2, section 6.6 and chapter 11: good nodes hold many complete rows, bad nodes few rows
of which a share of the entries is missing, or replaced by noise. Nolte et al. (2023), section 3.4:
each client permutes 20 % of its target values before training. Test rows stay as they are in both.

At a site of n rows and p features, in this order, with r(x) = x rounded, halves up:

    rows         k or r(share·n) rows stay, spread evenly over events or classes; order kept
    swap         outcomes of r(share·n) rows, permuted at random among them
    flip         r(share·n) rows get another class; of survival, event and censored change places
    noise        numbers get N(0, (noise·s)²), s the standard deviation over all sites
    replace      r(share·entries) of the known entries become a level that occurs, or a number
                 between the smallest and the largest of all sites, drawn evenly
    units        columns are multiplied by a factor
    missing      r(share·entries) of the known entries are removed: at random; by value, in each
                 column, the chance of an entry in proportion to its rank; or by column, all of
                 r(share·p) columns

Each kind at each site has its own generator, from the seed, the kind and the site's name, and takes
the first of a permutation. So what one site loses does not depend on the others, and 20 % missing
entries are among the 40 % of another scenario. Numbers stay within the dictionary's `range`, whole
ones whole, unless a factor changes them.

It runs on tables of one process before any fit: nothing is revealed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import code_column, number_column
from fedcohort.data.outcome import Outcome
from fedcohort.data.variable import Variable
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError

#: Which entries are missing.
RANDOM, VALUE, COLUMN = "random", "value", "column"
HOW = (RANDOM, VALUE, COLUMN)
#: Kinds of draws; the order is part of every draw.
_KINDS = ("sites", "rows", "swap", "flip", "noise", "replace", "missing")
_TAG = 0x64656772


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """What is done to the rows of some sites; see the header.

    Attributes
    ----------
    sites : their names, or how many are drawn.
    rows : number of rows that stay, from 2, or their share, below 1; None: all.
    missing : share of known entries that are removed. how : one of `HOW`.
    columns : features that may lose entries; empty: all.
    flip : share of rows. noise : in standard deviations. replace : share of known entries.
    units : factor by column.
    """

    sites: tuple[str, ...] | int
    rows: float | None = None
    missing: float = 0.0
    how: str = RANDOM
    columns: tuple[str, ...] = ()
    flip: float = 0.0
    noise: float = 0.0
    replace: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass
class Given:
    """What one site was given.

    Attributes
    ----------
    laid, rows : rows before and after. entries : known entries of features in the rows after.
    removed, replaced, noisy : how many of these. how : by which of `HOW` they were removed.
    columns : columns that became empty.
    swapped, flipped : rows whose outcomes were permuted, or changed.
    units : factor by column.
    degraded : whether the site is one of `degrade`.
    known, intact : known entries of features and outcome in the rows before, and how many of them
        are still there with their values.
    """

    laid: int
    rows: int = 0
    known: int = 0
    intact: int = 0
    entries: int = 0
    removed: int = 0
    replaced: int = 0
    noisy: int = 0
    swapped: int = 0
    flipped: int = 0
    noise: float = 0.0
    how: str = RANDOM
    columns: tuple[str, ...] = ()
    units: Mapping[str, float] = field(default_factory=dict[str, float])
    degraded: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them."""
        return asdict(self) | {"columns": list(self.columns)}


def chosen(items: Sequence[Degradation], names: Sequence[str], seed: int) -> dict[str, Degradation]:
    """Return each degraded site's item. Sites are drawn among those that no item names.

    Raises
    ------
    DataError : a name is unknown or in two items, or more sites are drawn than there are.
    """
    found: dict[str, Degradation] = {}
    for item in items:
        for site in item.sites if isinstance(item.sites, tuple) else ():
            if site not in names:
                raise DataError(f"degrade: there is {known_name('site', site, names)}")
            if site in found:
                raise DataError(f"degrade: site {site!r} stands twice. Put all in one item.")
            found[site] = item
    rng = _generator(seed, "sites", "")
    for item in items:
        if isinstance(item.sites, int):
            free = [s for s in sorted(names) if s not in found]
            if item.sites > len(free):
                raise DataError(
                    f"degrade: {item.sites} sites are to be drawn, and {len(free)} are left of "
                    f"{len(names)}. Draw fewer."
                )
            drawn = rng.permutation(len(free))[: item.sites]
            found |= {free[i]: item for i in drawn}
    return found


def degrade(
    frames: Mapping[str, pd.DataFrame],
    items: Sequence[Degradation],
    swap: float,
    features: Iterable[Variable],
    outcome: Outcome | None,
    *,
    seed: int,
    sites_seed: int,
) -> tuple[dict[str, pd.DataFrame], dict[str, Given]]:
    """Return the sites' tables made worse, and what each site was given.

    Parameters
    ----------
    frames : training rows by site.
    swap : share of each site's rows whose outcomes are permuted.
    features : columns that may change; `outcome` names those of the outcome.
    seed : of all draws but that of the sites, which is from `sites_seed`.

    Raises
    ------
    DataError : a site or column is unknown, a column has no numbers to convert, labels cannot be
        flipped, or there is no outcome to swap or flip.
    """
    known = {v.name: v for v in features}
    which = chosen(items, list(frames), sites_seed)
    _check(items, swap, known, outcome)
    whole = pd.concat(list(frames.values()), ignore_index=True)
    out: dict[str, pd.DataFrame] = {}
    told: dict[str, Given] = {}
    for site, frame in frames.items():
        frame = frame.reset_index(drop=True)
        one = _Site(frame, site, seed, known, outcome, whole)
        item = which.get(site)
        if item is not None and item.rows is not None:
            one.keep(item.rows)
        one.given.rows = len(one.frame)
        one.swap(swap)
        if item is not None:
            one.given.degraded = True
            one.flip(item.flip)
            one.given.entries = sum(int(one.frame[v.name].notna().sum()) for v in one.known)
            one.add_noise(item.noise)
            one.replace(item.replace)
            one.convert(item.units)
            one.remove(item)
        one.given.known, one.given.intact = one.left_of(frame)
        out[site], told[site] = one.frame, one.given
    return out, told


def _check(
    items: Sequence[Degradation],
    swap: float,
    known: Mapping[str, Variable],
    outcome: Outcome | None,
) -> None:
    if outcome is None and (swap or any(i.flip for i in items)):
        raise DataError("there is no outcome to swap or flip; leave these keys out.")
    if outcome is not None and outcome.is_number and any(i.flip for i in items):
        raise DataError(
            f"degrade: the outcome {outcome.label!r} is a number, which has no label to flip. Use "
            f"swap_outcome, which permutes values."
        )
    taken = () if outcome is None else outcome.columns
    for item in items:
        for name in item.columns:
            if name not in known:
                raise DataError(f"degrade: there is {known_name('feature', name, known)}")
        for name in item.units:
            if name in taken:
                continue
            if name not in known:
                raise DataError(f"degrade: there is {known_name('column', name, known)}")
            if not _is_number(known[name]):
                raise DataError(f"degrade: column {name!r} holds no numbers to convert.")


def _is_number(v: Variable) -> bool:
    return v.type in ("number", "integer") and not v.coded


def _generator(seed: int, kind: str, site: str) -> np.random.Generator:
    name = int.from_bytes(site.encode(), "big")
    return np.random.default_rng((seed, _TAG, _KINDS.index(kind), name))


def _part(share: float, n: int) -> int:
    """Return r(share·n) of the header; 1e-9 makes up for a share's rounding."""
    return math.floor(share * n + 0.5 + 1e-9)


class _Site:
    """The rows of one site, while they are changed.

    whole : training rows of all sites, unchanged.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        site: str,
        seed: int,
        known: Mapping[str, Variable],
        outcome: Outcome | None,
        whole: pd.DataFrame,
    ):
        self.frame, self.site, self.seed = frame, site, seed
        self.known = [v for v in known.values() if v.name in frame.columns]
        self.outcome, self.whole = outcome, whole
        self.given = Given(laid=len(frame))
        self.kept = np.arange(len(frame))

    def _rng(self, kind: str) -> np.random.Generator:
        return _generator(self.seed, kind, self.site)

    def keep(self, rows: float) -> None:
        n = len(self.frame)
        k = min(n, int(rows) if rows >= 1 else max(2, _part(rows, n)))
        rng = self._rng("rows")
        order = rng.permutation(n)
        if self.outcome is not None:
            order = order[np.argsort(self.outcome.strata(self.frame)[order], kind="stable")]
        at = np.floor((np.arange(k) + rng.random()) * n / k).astype(int)
        self.kept = np.sort(order[at])
        self.frame = self.frame.iloc[self.kept].reset_index(drop=True)

    def left_of(self, before: pd.DataFrame) -> tuple[int, int]:
        """Return the known entries of the rows before, and those that are as they were."""
        names = [v.name for v in self.known]
        names += [] if self.outcome is None else [*self.outcome.columns]
        was = before[names]
        same = was.iloc[self.kept].reset_index(drop=True) == self.frame[names]
        return int(was.notna().to_numpy().sum()), int(same.to_numpy().sum())

    def swap(self, share: float) -> None:
        rng = self._rng("swap")
        some = rng.permutation(len(self.frame))[: _part(share, len(self.frame))]
        if len(some) and self.outcome is not None:
            to = rng.permutation(some)
            for name in self.outcome.columns:
                values = self.frame[name].copy()
                values.iloc[some] = self.frame[name].iloc[to].to_numpy()
                self.frame = self.frame.assign(**{name: values})
        self.given.swapped = len(some)

    def flip(self, share: float) -> None:
        rng = self._rng("flip")
        some = rng.permutation(len(self.frame))[: _part(share, len(self.frame))]
        if len(some) and self.outcome is not None:
            name = self.outcome.label
            levels = sorted(self.whole[name].dropna().unique())
            if len(levels) < 2:
                raise DataError(f"degrade: column {name!r} has one level; none to flip to.")
            at = {level: i for i, level in enumerate(levels)}
            values = self.frame[name].copy()
            further = rng.integers(1, len(levels), len(some))
            values.iloc[some] = [
                levels[(at[value] + step) % len(levels)]
                for value, step in zip(values.iloc[some], further, strict=True)
            ]
            self.frame = self.frame.assign(**{name: values})
        self.given.flipped = len(some)

    def convert(self, units: Mapping[str, float]) -> None:
        changed = {name: pd.to_numeric(self.frame[name]) * factor
                   for name, factor in units.items() if name in self.frame.columns}  # fmt: skip
        self.frame = self.frame.assign(**changed)
        self.given.units = {name: units[name] for name in changed}

    def add_noise(self, sds: float) -> None:
        self.given.noise = sds
        if not sds:
            return
        rng = self._rng("noise")
        for v in self.known:
            x = number_column(self.frame, v) if _is_number(v) else np.zeros(0)
            known = ~np.isnan(x)
            if not known.any():
                continue
            sd = np.nanstd(number_column(self.whole, v))
            self._set(v, known, x + sds * sd * rng.normal(size=len(x)))
            self.given.noisy += int(known.sum())

    def _set(self, v: Variable, where: Array, values: Any) -> None:
        """Set entries of a column; a number keeps the form and the range of its column."""
        column = self.frame[v.name]
        if _is_number(v):
            low, high = v.range
            numbers = np.clip(values, -np.inf if low is None else low,
                              np.inf if high is None else high)  # fmt: skip
            if v.type == "integer":
                numbers = np.round(numbers)
            column = pd.Series(
                np.where(where, numbers, number_column(self.frame, v)), column.index, name=v.name
            )
        else:
            column = _with(column, where, values[where])
        self.frame = self.frame.assign(**{v.name: column})

    def _entries(self, names: Collection[str] = ()) -> list[tuple[Variable, Array]]:
        """Return which entries (n,) of each feature are known."""
        return [
            (v, self.frame[v.name].notna().to_numpy())
            for v in self.known
            if not names or v.name in names
        ]

    def replace(self, share: float) -> None:
        if not share:
            return
        rng = self._rng("replace")
        entries = [(v, e) for v, e in self._entries() if v.type != "date"]
        for (v, _), where in zip(entries, _some(entries, share, rng), strict=True):
            n = len(self.frame)
            if not where.any():
                continue
            if _is_number(v):
                x = number_column(self.whole, v)
                low, high = np.nanmin(x), np.nanmax(x)
                whole = v.type == "integer"
                drawn = rng.integers(int(low), int(high) + 1, n) if whole else \
                    rng.uniform(low, high, n)  # fmt: skip
            else:
                levels = sorted(self.whole[v.name].dropna().unique(), key=str)
                known = pd.Series(levels, dtype=self.whole[v.name].dtype).to_numpy()
                drawn = known[rng.integers(0, len(known), n)]
            self._set(v, where, drawn)
            self.given.replaced += int(where.sum())

    def remove(self, item: Degradation) -> None:
        if not item.missing:
            return
        rng, self.given.how = self._rng("missing"), item.how
        entries = self._entries(item.columns)
        if item.how == COLUMN:
            gone = rng.permutation(len(entries))[: _part(item.missing, len(entries))]
            lost = [e & (i in gone) for i, (_, e) in enumerate(entries)]
            self.given.columns = tuple(entries[i][0].name for i in sorted(gone))
        elif item.how == VALUE:
            lost = [self._by_value(v, e, item.missing, rng) for v, e in entries]
        else:
            lost = _some(entries, item.missing, rng)
        for (v, _), where in zip(entries, lost, strict=True):
            if where.any():
                emptied = _with(self.frame[v.name], where, None)
                self.frame = self.frame.assign(**{v.name: emptied})
            self.given.removed += int(where.sum())

    def _by_value(self, v: Variable, known: Array, share: float, rng: np.random.Generator) -> Array:
        """Draw entries without replacement, with chances in proportion to their ranks.

        The entries of the largest ln(u)/w, u uniform and w the weight (Efraimidis & Spirakis 2006).
        """
        if v.coded:
            values = code_column(self.frame, v).astype(float)
        elif v.type == "binary":
            values = pd.factorize(self.frame[v.name], sort=True)[0].astype(float)
        else:
            values = number_column(self.frame, v)
        at = np.flatnonzero(known)
        rank = pd.Series(values[at]).rank().to_numpy()
        keys = np.log(rng.random(len(known)))[at] / rank
        lost = np.zeros(len(known), bool)
        lost[at[np.argsort(-keys, kind="stable")[: _part(share, len(at))]]] = True
        return lost


def _with(column: pd.Series, where: Array, values: Any) -> pd.Series:
    """Return a column with other values at some rows (n,), in its own form; None is missing."""
    out = column.copy()
    out.iloc[np.flatnonzero(where)] = values
    return out


def _some(
    entries: Sequence[tuple[Variable, Array]], share: float, rng: np.random.Generator
) -> list[Array]:
    """Return which of the known entries (n,) of each column are drawn, r(share·entries) in all."""
    if not entries:
        return []
    known = np.column_stack([e for _, e in entries])
    flat = np.flatnonzero(known.ravel())
    lost = np.zeros(known.size, bool)
    lost[rng.permutation(flat)[: _part(share, len(flat))]] = True
    return list(lost.reshape(known.shape).T)
