"""Folds of rows: the coordinator assigns them, and each site checks them for its own rows.

Sums over a fold reveal its rows. A coordinator could put one site alone into a fold, or so few of
its rows that a sum is one patient. So every site gets the whole assignment, {site: fold}, the same
at all sites, and refuses it if

* some sites are assigned as a whole and others row by row;
* a whole site has no other in its fold;
* a fold, or the rest without it, has 1 to m − 1 of its own rows, unless `HIDDEN` sites or
  more share it: their sum hides each of them.

With m = 1 nothing needs to be hidden. `study.at_site.bounds` checks that the named sites take part,
where the sum is masked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused

#: Instead of a site's fold: each of its rows has its own.
BY_ROW = -1
#: Number of sites that hide one another in a sum.
HIDDEN = 3


def own_fold(site: str, dealt: Mapping[str, int], folds: int, least: int) -> int:
    """Return the fold of all rows of a site, or `BY_ROW`.

    Parameters
    ----------
    dealt : fold of each site, 0 to `folds` − 1, or `BY_ROW` for all.
    least : m of the header.

    Raises
    ------
    Refused : "folds", by the header's first two rules, or there is no fold for this site.
    """
    values = list(dealt.values())
    by_row = all(type(k) is int and k == BY_ROW for k in values)
    by_site = all(type(k) is int and 0 <= k < folds for k in values)
    if site not in dealt or not (by_row or by_site):
        raise Refused(
            "folds",
            f"site {site!r} has no fold, or is not divided as the other sites are. Either all "
            f"sites are in one fold each, or all are divided row by row.",
        )
    if by_site and least > 1 and any(values.count(k) < 2 for k in values):
        raise Refused(
            "folds",
            f"site {site!r}: a fold of a single site would reveal the sums of that site's rows. "
            f"Hold out rows (folds: rows), or groups of two sites or more.",
        )
    return values[0] if by_row else dealt[site]


def check_rows(site: str, at: Array, dealt: Mapping[str, int], least: int) -> None:
    """Refuse folds with few rows of a site, by the header's last rule.

    Parameters
    ----------
    at : (n,), the fold of each of the site's rows.

    Raises
    ------
    Refused : "folds".
    """
    sharing = list(dealt.values()).count(dealt[site])
    held = np.unique(at, return_counts=True)[1]
    left = len(at) - held
    few = [(part > 0) & (part < least) for part in (held, left)]
    if sharing < HIDDEN and any(part.any() for part in few):
        raise Refused(
            "folds",
            f"site {site!r} has fewer than {least} records (min_cell) in a fold, or outside of it, "
            f"and fewer than {HIDDEN} sites share the folds, so sums would reveal these records. "
            f"Take fewer folds, or a penalty that needs none.",
        )
