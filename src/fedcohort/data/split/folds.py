"""Rows in folds, where a coordinator says how they are dealt and a site sees to its own rows.

Sums over a fold tell of its rows alone. Who deals them could leave one site alone in a fold, or so
few of its rows that a sum is a patient. So every site is told the whole deal, ``{site: fold}``, the
same at all of them; it refuses one in which

* some sites are dealt whole and others row by row, or a whole site has no other beside it;
* a fold, or what is left without it, has 1 to m − 1 of its own rows, unless `HIDDEN` sites or more
  share it: their sum hides each of them.

With m = 1 nothing is to be hidden. That those who are named do take part is looked at where the
sum is masked (`study.at_site.bounds`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused

#: As a site's fold: each of its rows has its own.
BY_ROW = -1
#: So many sites hide one another in a sum.
HIDDEN = 3


def own_fold(site: str, dealt: Mapping[str, int], folds: int, least: int) -> int:
    """Return the fold of all rows of a site, or `BY_ROW`.

    Parameters
    ----------
    dealt : fold of each site, 0 to `folds` − 1, or `BY_ROW` of all.
    least : m of the header.

    Raises
    ------
    Refused : "folds", by the header's first rule, or the deal has no fold for this site.
    """
    values = list(dealt.values())
    by_row = all(type(k) is int and k == BY_ROW for k in values)
    by_site = all(type(k) is int and 0 <= k < folds for k in values)
    if site not in dealt or not (by_row or by_site):
        raise Refused(
            "folds",
            f"site {site!r} is dealt folds otherwise than the other sites, or not at all. All "
            f"sites are dealt whole, or all row by row.",
        )
    if by_site and least > 1 and any(values.count(k) < 2 for k in values):
        raise Refused(
            "folds",
            f"site {site!r}: a fold of a single site would show what that site's rows add up to. "
            f"Hold out rows (folds: rows), or groups of two sites or more.",
        )
    return values[0] if by_row else dealt[site]


def check_rows(site: str, at: Array, dealt: Mapping[str, int], least: int) -> None:
    """Refuse folds that a site has few rows in, by the header's second rule.

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
            f"and fewer than {HIDDEN} sites share the folds, so that sums would tell of so few. "
            f"Take fewer folds, or a penalty that needs none.",
        )
