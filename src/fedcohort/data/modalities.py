"""Views: groups of columns, such as a laboratory's or a scanner's, that a site may lack as a whole.

The dictionary gives a column its view. A site without any column of a view did not measure it, and
its rows are missing there; one that has some of them lost the others, which is an error. Nothing
is revealed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fedcohort.data.variable import Variable


def columns_by_view(variables: Iterable[Variable]) -> dict[str, list[str]]:
    """Return the names of each view's columns, in order; columns without a view are left out."""
    found: dict[str, list[str]] = {}
    for v in variables:
        if v.view:
            found.setdefault(v.view, []).append(v.name)
    return found


def lacking(views: dict[str, list[str]], header: Collection[str]) -> frozenset[str]:
    """Return the views of which a table with this header has no column at all."""
    return frozenset(
        view for view, names in views.items() if not any(name in header for name in names)
    )
