"""Is a table fit for a study? Errors name file, column, rule and rows, never a value."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fedcohort.data.dictionary import Dictionary, sorted_levels
from fedcohort.data.encode import Encoding, column_of
from fedcohort.data.outcome import Binary, Category, Outcome, Survival
from fedcohort.data.targets import survival_of, target_of
from fedcohort.protocol.errors import DataError


def check_table(
    frame: pd.DataFrame,
    outcome: Outcome | None,
    where: str,
    dictionary: Dictionary | None = None,
) -> None:
    """Check one table: its header, its outcome, and the columns that the dictionary names.

    Parameters
    ----------
    where : what the table is called in errors: a file, or a site.

    Raises
    ------
    DataError : the first rule that is broken, on one line.
    """
    try:
        _check(frame, outcome, dictionary)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


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
    DataError : there are no sites; a table breaks a rule; no site at all has an event.
    """
    if not frames:
        raise DataError("there are no sites. Give at least one table, or a column of sites.")
    events = dict.fromkeys(frames, 0)
    for site, frame in frames.items():
        where = f"site {site!r}"
        check_table(frame, outcome, where, dictionary)
        if strict and len(frame) < 2:
            raise DataError(f"{where} has 1 row; a site needs 2. Leave it out, or join it.")
        if isinstance(outcome, Survival):
            events[site] = int(survival_of(frame, outcome)[1].sum())
            if strict and not events[site]:
                raise DataError(
                    f"{where} has no event in column {outcome.event!r} among {len(frame)} rows; "
                    f"nothing can be learnt there. Leave it out, or join it with another site."
                )
    if isinstance(outcome, Survival) and not any(events.values()):
        raise DataError(
            f"no site has an event in column {outcome.event!r}. Code events that were seen as 1."
        )


def _check(frame: pd.DataFrame, outcome: Outcome | None, dictionary: Dictionary | None) -> None:
    if not len(frame):
        raise DataError(f"there are no rows under the {frame.shape[1]} columns.")
    named = list(dictionary.variables) if dictionary is not None else []
    for name in (*(outcome.columns if outcome is not None else ()), *named):
        column_of(frame, name)
    if isinstance(outcome, Survival):
        survival_of(frame, outcome)
    elif outcome is not None:
        target_of(frame, outcome, _classes(frame, outcome))
    if dictionary is not None:
        Encoding(dictionary.features(outcome))(frame)


def _classes(frame: pd.DataFrame, outcome: Outcome) -> tuple[str, ...]:
    """Return the classes of a labelled outcome that occur in this table."""
    if not isinstance(outcome, (Binary, Category)):
        return ()
    classes = sorted_levels(column_of(frame, outcome.y).dropna().unique())
    if isinstance(outcome, Binary) and len(classes) > 2:
        raise DataError(
            f"column {outcome.y!r} has {len(classes)} levels; a binary outcome has two. Use a "
            f"categorical outcome."
        )
    return classes


def check_column(frame: pd.DataFrame, name: str, where: str) -> None:
    """Check that a table has a column, such as that of the site.

    Raises
    ------
    DataError : it has none, or several; the nearest name is given.
    """
    try:
        column_of(frame, name)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
