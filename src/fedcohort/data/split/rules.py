"""Rules that divide one table into sites: the scenarios of a simulation.

    iid          rows at random, sizes equal
    unbalanced   rows at random, one site (the hub) has a given share of them
    by-outcome   rows sorted by time, class or value, cut into equal parts
    by-feature   the same by one feature: a given one, or the most predictive
    dirichlet    each class (or quarter of the times) is divided by its own Dirichlet draw
    groups       whole groups of a column, so that the sites' sizes are similar
    overlap      k of the groups of a column at each site, a group's rows evenly over its sites
    by-group     a third of the sites has both groups of a column, the others one each (`thirds`)
    views        rows at random, or by group; a third of the sites lacks one view, a third another
    natural      each value of a column is a site

Every row goes to exactly one site, and each site gets rows. Within a site the rows keep their
order; rows that tie at a cut fall to either side at random. The same table, rule and seed
give the same sites.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.outcome import Outcome
from fedcohort.data.read.frames import by_column
from fedcohort.data.split import thirds
from fedcohort.data.split.importance import most_predictive, sort_key
from fedcohort.data.split.overlap import overlap
from fedcohort.data.words import known_name, rows
from fedcohort.protocol.errors import DataError, StudyError


def partition(
    frame: pd.DataFrame,
    rule: str,
    n: int | None = None,
    seed: int = 0,
    outcome: Outcome | None = None,
    *,
    views: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> dict[str, pd.DataFrame]:
    """Divide the rows of a table over sites.

    Parameters
    ----------
    rule : one of `RULES`.
    n : number of sites; "natural" takes it from the column.
    outcome : for "by-outcome", "by-feature" and "dirichlet".
    views : for "views": the dictionary's views in order, each with its columns, without those of
        the outcome.
    options : of the rule: hub (share of rows, 0.4), feature, alpha (0.5), group, k (groups of each
        site), column, lacking (the two views that sites lack; by default the second and the third).

    Returns
    -------
    frames : by site name, "site-1", "site-2", … or the values of the column; names sort. The
        column of "natural" is left out; that of "groups" stays. By "views", a site that lacks a
        view does not have its columns.

    Raises
    ------
    StudyError : a rule or option is unknown or out of range; a rule in thirds has no multiple of 3
        sites, or no such views.
    DataError : there are too few rows or groups for n sites, or a column or value is missing.
    """
    if rule not in RULES:
        raise StudyError(f"there is {known_name('split', rule, RULES)}")
    known = _options(RULES[rule])
    for name in options:
        if name not in known:
            raise StudyError(f"split {rule!r} has {known_name('option', name, known or ['none'])}")
    if rule == "natural":
        return natural(frame, **options)
    if n is None or not 1 <= n <= len(frame):
        wanted = "any number of" if n is None else n
        raise DataError(f"split {rule!r}: {len(frame)} rows cannot make {wanted} sites.")
    gone = [""] * n
    if rule in thirds.THIRDS:
        thirds.check_thirds(rule, n)
    if rule == "views":
        gone = thirds.lacked(n, views or {}, options.get("lacking"))
    rng = np.random.default_rng((seed, 0x73706C69))
    site = RULES[rule](frame, n, rng, outcome, **options)
    digits = len(str(n))
    out: dict[str, pd.DataFrame] = {}
    for i, view in enumerate(gone):
        part = frame[site == i]
        if view and views:
            part = part.drop(columns=list(views[view]), errors="ignore")
        out[f"site-{i + 1:0{digits}d}"] = part
    return out


def natural(frame: pd.DataFrame, *, column: str = "site") -> dict[str, pd.DataFrame]:
    """Make one site of each value of a column, without that column."""
    return by_column(frame, column, "split 'natural'")


def _iid(frame: pd.DataFrame, n: int, rng: np.random.Generator, _: Outcome | None) -> Array:
    return rng.permutation(np.arange(len(frame)) % n)


def _unbalanced(
    frame: pd.DataFrame, n: int, rng: np.random.Generator, _: Outcome | None, *, hub: float = 0.4
) -> Array:
    """Give the first site the share `hub` of the rows, and the others equal parts of the rest."""
    if not 0 < _number("hub", hub) < 1:
        raise StudyError(f"split 'unbalanced': hub is {hub!r}; give a share between 0 and 1.")
    if n == 1:
        return np.zeros(len(frame), np.int64)
    at_hub = int(np.clip(round(hub * len(frame)), 1, len(frame) - n + 1))
    others = 1 + np.arange(len(frame) - at_hub) % (n - 1)
    return rng.permutation(np.concatenate([np.zeros(at_hub, np.int64), others]))


def _by_outcome(
    frame: pd.DataFrame, n: int, rng: np.random.Generator, outcome: Outcome | None
) -> Array:
    return _cut(_outcome_key(frame, outcome, "by-outcome"), n, rng)


def _by_feature(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    outcome: Outcome | None,
    *,
    feature: str | None = None,
) -> Array:
    if feature is None:
        if outcome is None:
            raise StudyError("split 'by-feature' without an outcome: name the feature.")
        feature = most_predictive(frame, outcome)
    return _cut(sort_key(frame, feature), n, rng)


def _dirichlet(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    outcome: Outcome | None,
    *,
    alpha: float = 0.5,
) -> Array:
    """Divide each class over the sites in shares drawn from Dirichlet(alpha, …, alpha)."""
    if not 0 < _number("alpha", alpha) < np.inf:
        raise StudyError(f"split 'dirichlet': alpha is {alpha!r}; give a number above 0.")
    key = _outcome_key(frame, outcome, "dirichlet")
    labelled = outcome is not None and outcome.has_classes
    kind = key if labelled else np.searchsorted(np.quantile(key, (0.25, 0.5, 0.75)), key)
    site = np.zeros(len(frame), np.int64)
    for one in np.unique(kind):
        inside = rng.permutation(np.flatnonzero(kind == one))
        ends = np.round(np.cumsum(rng.dirichlet(np.full(n, float(alpha)))) * len(inside))
        site[inside] = np.minimum(
            np.searchsorted(ends, np.arange(len(inside)), side="right"), n - 1
        )
    return _filled(site, n, rng)


def _groups(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    _: Outcome | None,
    *,
    group: str | None = None,
) -> Array:
    """Give whole groups, largest first, each to the site with the fewest rows so far."""
    if group is None:
        raise StudyError("split 'groups': name the column that holds the groups as 'group'.")
    column = column_of(frame, group)
    if (bad := column.isna().to_numpy()).any():
        raise DataError(f"column {group!r} names no group in {rows(bad)}. Complete or drop them.")
    code = pd.factorize(column)[0]
    sizes = np.bincount(code)
    if len(sizes) < n:
        raise DataError(f"column {group!r} has {len(sizes)} groups, too few for {n} sites.")
    held = np.zeros(n)
    home = np.zeros(len(sizes), np.int64)
    for g in np.lexsort((rng.random(len(sizes)), -sizes)):
        home[g] = np.argmin(held)
        held[home[g]] += sizes[g]
    return home[code]


def _overlap(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    _: Outcome | None,
    *,
    group: str | None = None,
    k: int = 0,
) -> Array:
    if group is None or not k:
        raise StudyError(
            "split 'overlap': name the column that holds the groups as 'group', and give the "
            "number of groups of each site as 'k'."
        )
    return overlap(frame, n, rng, group, k)


def _by_group(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    _: Outcome | None,
    *,
    group: str | None = None,
) -> Array:
    if group is None:
        raise StudyError("split 'by-group': name the column that holds the two groups as 'group'.")
    return thirds.by_group(frame, n, rng, group)


def _views(
    frame: pd.DataFrame,
    n: int,
    rng: np.random.Generator,
    outcome: Outcome | None,
    *,
    group: str | None = None,
    lacking: Sequence[str] | None = None,
) -> Array:
    """Divide the rows as "iid" or "by-group" does; `partition` removes the views (`lacking`)."""
    del lacking
    return _iid(frame, n, rng, outcome) if group is None else thirds.by_group(frame, n, rng, group)


def _cut(key: Array, n: int, rng: np.random.Generator) -> Array:
    """Sort rows by `key` (n,) and cut them into equal parts; ties at a cut fall at random."""
    site = np.empty(len(key), np.int64)
    site[np.lexsort((rng.random(len(key)), key))] = np.arange(len(key)) * n // len(key)
    return site


def _filled(site: Array, n: int, rng: np.random.Generator) -> Array:
    """Move rows from the largest site to those with fewer than two, or with none if rows are
    few.
    """
    min_rows = 2 if len(site) >= 2 * n else 1
    sizes = np.bincount(site, minlength=n)
    while sizes.min() < min_rows:
        giver, taker = int(sizes.argmax()), int(sizes.argmin())
        site[rng.choice(np.flatnonzero(site == giver))] = taker
        sizes = np.bincount(site, minlength=n)
    return site


def _outcome_key(frame: pd.DataFrame, outcome: Outcome | None, rule: str) -> Array:
    """Return numbers (n,) that order the rows by outcome; for survival by time."""
    if outcome is None:
        raise StudyError(f"split {rule!r} needs an outcome to look at.")
    name = outcome.columns[0]
    key = sort_key(frame, name)
    if (bad := np.isinf(key)).any():
        raise DataError(f"column {name!r} is missing in {rows(bad)}. Complete or drop them.")
    return key


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StudyError(f"option {name!r} of a split is {value!r}; give a number.")
    return float(value)


def _options(rule: Callable[..., Any]) -> list[str]:
    return [p.name for p in inspect.signature(rule).parameters.values() if p.kind is p.KEYWORD_ONLY]


#: Rules by name.
RULES: dict[str, Callable[..., Any]] = {
    "iid": _iid,
    "unbalanced": _unbalanced,
    "by-outcome": _by_outcome,
    "by-feature": _by_feature,
    "dirichlet": _dirichlet,
    "groups": _groups,
    "overlap": _overlap,
    "by-group": _by_group,
    "views": _views,
    "natural": natural,
}
