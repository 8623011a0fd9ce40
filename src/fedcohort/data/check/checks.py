"""Checks of tables before a study: the first error is raised.

The rules are those of `fedcohort data check` (`examine`). Messages name file, column, rule and
rows, never a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from fedcohort.data.check.accepted import NOTHING, Accepted
from fedcohort.data.check.examining import examine, with_outcome
from fedcohort.data.check.findings import ERROR
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.check.sites import SITE_RULES, SITE_UNITS
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import column_of
from fedcohort.data.outcome import Outcome
from fedcohort.data.read.canonical import canonical
from fedcohort.data.variable import columns_by_view, lacking
from fedcohort.protocol.errors import DataError


def check_table(
    frame: pd.DataFrame,
    outcome: Outcome | None,
    where: str,
    dictionary: Dictionary | None = None,
) -> None:
    """Check one table that is not yet divided into sites.

    Parameters
    ----------
    where : name of the table in errors: a file, or a site.

    Raises
    ------
    DataError : a rule is broken; the message has the first finding and the number of others.
    """
    known = with_outcome(dictionary, outcome)
    check_sheets([Sheet(canonical(frame, known), where)], outcome, known, natural=False)


def check_sites(
    frames: Mapping[str, pd.DataFrame],
    outcome: Outcome | None,
    dictionary: Dictionary | None = None,
    *,
    strict: bool = True,
) -> None:
    """Check the tables of all sites.

    Parameters
    ----------
    strict : natural sites also need two rows each, and an event each if the outcome is survival;
        sites that a partitioner made are exempt.

    Raises
    ------
    DataError : there are no sites; a table breaks a rule; no site has an event.
    """
    if not frames:
        raise DataError("there are no sites. Give at least one table, or a column of sites.")
    known = with_outcome(dictionary, outcome)
    sheets = [
        Sheet(canonical(frame, known), f"site {site!r}", site) for site, frame in frames.items()
    ]
    check_sheets(sheets, outcome, known, natural=strict)


def check_sheets(
    sheets: Sequence[Sheet],
    outcome: Outcome | None,
    dictionary: Dictionary,
    *,
    natural: bool = True,
    eventless: bool = False,
    accepted: Accepted = NOTHING,
) -> list[str]:
    """Check all tables of a study, in the form of their dictionary; see `examine`.

    Returns
    -------
    units : findings on accepted differences of units.

    Raises
    ------
    DataError : there is an error, or no table has a column of a view. The message has the first
        error and the number of others.
    """
    found = examine(
        sheets, dictionary, outcome, natural=natural, eventless=eventless, warnings=False,
        accepted=accepted,
    )  # fmt: skip
    wrong = [f for f in found if f.severity == ERROR or f.rule in SITE_RULES]
    if not wrong:
        _check_views(sheets, dictionary)
        return [f.what for f in found if f.rule == SITE_UNITS]
    more = f" (And {len(wrong) - 1} more: see `fedcohort data check`.)" if len(wrong) > 1 else ""
    raise DataError(wrong[0].line + more)


def _check_views(sheets: Sequence[Sheet], dictionary: Dictionary) -> None:
    views = columns_by_view(dictionary.variables.values())
    nowhere = frozenset(views).intersection(*(lacking(views, s.frame.columns) for s in sheets))
    for view in (v for v in views if v in nowhere):
        where = sheets[0].name if len(sheets) == 1 else f"all {len(sheets)} sites"
        raise DataError(
            f"{where}: no table has a column of the view {view!r} ({', '.join(views[view][:3])}"
            f"{', …' if len(views[view]) > 3 else ''}). Take it out of the dictionary, or correct "
            f"the headers."
        )


def check_column(frame: pd.DataFrame, name: str, where: str) -> None:
    """Check that a table has a column, such as that of the site.

    Raises
    ------
    DataError : it has none, or several; the message gives the nearest name.
    """
    try:
        column_of(frame, name)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
