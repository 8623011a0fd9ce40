"""Which columns a drafted study leaves out, and whether its first model needs a penalty, and why.

A number that says the same as another one, such as height in other units, is no feature: together
they have effects that mean nothing, or none.

A penalty shrinks effects, and then nothing in the report estimates them. So the draft has one only
where a fit without would not end, or would be of noise:

    events   fewer than `FEWEST` events a coefficient over all sites, of a class the rarer one, of a
             value rows (Vittinghoff & McCulloch, Am. J. Epidemiol. 165, 2007)
    apart    a level of which no patient has the event, or of classes all have: its effect has no
             end
    alike    columns of which one follows from others

The bound of each site alone has a penalty of its own where some site has fewer than `ALONE` events
a coefficient (Peduzzi et al., J. Clin. Epidemiol. 49, 1996): nobody reads effects from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, levels_of
from fedcohort.numerics.collinearity import SINGULAR

#: Events a coefficient, of all sites and at one.
FEWEST, ALONE = 5, 10
#: Types of numbers, and the correlation from which two of them say the same.
NUMBERS, COPY = ("number", "integer"), 0.999
#: Levels of fewer rows are joined before a fit.
RARE = 5


def why_penalised(tables: Sequence[pd.DataFrame], dictionary: Dictionary, outcome: Outcome) -> str:
    """Return why a fit over all sites needs a penalty, in words; "" if it does not.

    Parameters
    ----------
    tables : in the form of the dictionary.
    """
    rows = pd.concat(tables, ignore_index=True)
    named = [v.name for v in dictionary.features(outcome) if v.name in rows.columns]
    rows = rows[rows[outcome.label].notna()]
    if outcome.fewest(rows) < FEWEST * coefficients(dictionary, outcome):
        return f"fewer than {FEWEST} {'rows' if outcome.is_number else 'events'} per coefficient"
    groups = {n: _groups(rows[n]) for n in named if dictionary[n].coded}
    if not outcome.is_number:
        kinds = _kinds(rows[outcome.label], outcome)
        for name, group in groups.items():
            if any(_apart(kind, group, both=outcome.has_classes) for kind in kinds):
                return f"a level of {name!r} has no events, or nothing else"
    numbers = {n: pd.to_numeric(rows[n], errors="coerce") for n in named if n not in groups}
    numbers = {n: x for n, x in numbers.items() if x.notna().any()}
    alike = _alike(numbers, groups)
    return f"{' and '.join(map(repr, alike))} say the same" if alike else ""


def copies(
    tables: Sequence[pd.DataFrame], dictionary: Dictionary, outcome: Outcome | None
) -> dict[str, str]:
    """Return numbers that say the same as one before, by name, with that one's name.

    Of a pair whose values and ranks both correlate by more than `COPY`, the one with fewer values
    goes, or the later one.

    Parameters
    ----------
    tables : in the form of the dictionary.
    """
    rows = pd.concat(tables, ignore_index=True)
    named = [v.name for v in dictionary.features(outcome) if v.type in NUMBERS]
    found = [pd.to_numeric(rows[n], errors="coerce").rename(n) for n in named if n in rows.columns]
    if len(found) < 2:
        return {}
    table = pd.concat(found, axis=1).replace([np.inf, -np.inf], np.nan)
    order = sorted(table.columns, key=lambda n: -table[n].count())
    both = (table, table.rank())
    size = np.min([np.abs(t.corr(min_periods=10).to_numpy()) for t in both], axis=0)
    at = {n: i for i, n in enumerate(table.columns)}
    gone: dict[str, str] = {}
    for i, name in enumerate(order):
        same = [n for n in order[:i] if n not in gone and size[at[n], at[name]] > COPY]
        if same:
            gone[name] = same[0]
    return gone


def few_alone(
    tables: Sequence[pd.DataFrame], column: str | None, dictionary: Dictionary, outcome: Outcome,
    n_sites: int,
) -> bool:  # fmt: skip
    """Return whether some site by itself has few events for its coefficients.

    Parameters
    ----------
    column : of the sites; without it each table is one, and a single one is dealt to `n_sites`.
    """
    fewest = math.inf
    for table in tables:
        for _, rows in table.groupby(column) if column else [("", table)]:
            if outcome.label in rows.columns:
                fewest = min(fewest, outcome.fewest(rows))
    if column is None and len(tables) == 1:
        fewest /= n_sites
    return fewest < ALONE * coefficients(dictionary, outcome)


def coefficients(dictionary: Dictionary, outcome: Outcome) -> int:
    """Return how many coefficients all features have: of a category one a level but the first.

    Of K classes K − 1 times as many.
    """
    classes = max(2, len(levels_of(outcome, dictionary)))
    return (classes - 1) * sum(max(1, len(v.levels) - 1) for v in dictionary.features(outcome))


def _kinds(values: pd.Series, outcome: Outcome) -> list[Array]:
    """Return who had the event, or is of each class, (n,) each; of two classes of the last."""
    if not outcome.has_classes:
        return [(pd.to_numeric(values, errors="coerce") > 0).to_numpy()]
    text = values.astype(str)
    classes = sorted(text.unique())
    several = len(classes) > 2
    return [(text == one).to_numpy() for one in classes[0 if several else -1 :]]


def _groups(values: pd.Series) -> pd.Series:
    """Return levels as a fit may see them: the rare ones are one, and missing ones the mode."""
    text = values.astype(object).where(values.notna(), None)
    found = text.value_counts()
    if not len(found):
        return pd.Series("", index=values.index)
    text = text.fillna(found.index[0]).astype(str)
    rare = {str(k) for k in found.index[found < RARE]}
    return text.where(~text.isin(rare), "rare levels")


def _apart(event: Array, group: pd.Series, *, both: bool) -> bool:
    """Return whether a level has no event, or, of classes, nothing else."""
    share = pd.Series(event, index=group.index).groupby(group).mean()
    return len(share) > 1 and bool((share == 0).any() or (both and (share == 1).any()))


def _alike(numbers: dict[str, pd.Series], groups: dict[str, pd.Series]) -> list[str]:
    """Return columns of which one follows from others, by a correlation that cannot be inverted."""
    parts: list[Array] = []
    owner: list[str] = []
    for name, x in numbers.items():
        parts.append(x.fillna(x.median()).to_numpy(float))
        owner.append(name)
    for name, group in groups.items():
        coded = pd.get_dummies(group, drop_first=True, dtype=float)
        parts += [coded[c].to_numpy() for c in coded.columns]
        owner += [name] * coded.shape[1]
    if not parts:
        return []
    x = np.column_stack(parts)
    x = x - x.mean(axis=0)
    size = np.sqrt((x**2).sum(axis=0))
    kept = size > 0
    x, owner = x[:, kept] / size[kept], [n for n, k in zip(owner, kept, strict=True) if k]
    if x.shape[1] < 2:
        return []
    values, vectors = np.linalg.eigh(x.T @ x)
    if values[0] > SINGULAR * values[-1]:
        return []
    flat = np.abs(vectors[:, values <= SINGULAR * values[-1]]).max(axis=1)
    return list(dict.fromkeys(n for n, w in zip(owner, flat, strict=True) if w > 1e-3))
