"""The coordinator's part of preprocessing: from the dictionary to the design."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Outcome
from fedcohort.data.prepare.columns import Column, NumberColumn, ranged
from fedcohort.data.prepare.design import MOST_FILLED, Design
from fedcohort.data.prepare.iterative import fit_joint
from fedcohort.data.prepare.levels import NO_VALUES, Dropped, level_column
from fedcohort.data.prepare.numbers import Seen, number_columns, pixel_columns
from fedcohort.data.prepare.options import checked
from fedcohort.data.prepare.sketch import Moments
from fedcohort.data.prepare.steps import column_spread, column_tally
from fedcohort.data.variable import LARGEST, RANGED, columns_by_view
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError, NothingToLearn, SettingError
from fedcohort.protocol.federation import Federation


def fit_design(
    fed: Federation,
    dictionary: Dictionary,
    outcome: Outcome | None,
    *,
    scale: str = "standard",
    impute: str = "median",
    winsorise: float = 0.0,
    pool_levels: int = 0,
    min_cell: int = 5,
    offset: str = "",
    weights: str = "",
    strata: str = "",
    pixels: bool = False,
) -> Design:
    """Fit the design that all sites apply.

    Parameters
    ----------
    fed : sites that hold data frames.
    dictionary : its variables become features, except the outcome, identifiers and text. A date
        becomes the time `since` another.
    outcome : of the rows; None for features alone.
    scale : "none", "standard" (mean 0, sd 1), "minmax" (the range to [0, 1]) or "quantile" (the
        share of rows below). The last two cut `winsorise` of the rows at each tail, or 0.5 %.
    impute : "mean", "median", "most_frequent", "indicator" (median, and a column that indicates
        missing values) or "iterative" (given the other columns, see `joint`). With the first four,
        levels and binary values are filled by the most frequent one. "none" fills nothing: x is NaN
        there, and the `fill` of a number is its mean.
    winsorise : share of the rows at each tail, 0 to 0.25, whose values are set to the limit.
    pool_levels : levels with fewer rows over all sites become one; those with fewer than
        `min_cell` always do.
    min_cell : smallest number of rows of a feature's group, and of either tail beyond a limit;
        histogram cells with fewer than twice as many are not split.
    offset : column that programs add to the linear predictor; it is the last of x, unscaled. ""
        for none.
    weights : column with the weight of each row; "" for none.
    strata : column whose levels each have a baseline hazard; "" for none.
    pixels : whether the columns are an image's pixels: all of them stay, on one scale
        (`numbers.pixel_columns`).

    Returns
    -------
    design : without columns that are constant or empty everywhere; `dropped` gives the reasons.
        A site may lack a view as a whole: its values are missing there.

    Raises
    ------
    DataError : a site's table does not match the dictionary, a column has values too large to be
        squared, or no feature is left.
    SettingError : a setting is none of the above, or `offset`, `weights` or `strata` names no such
        column.
    """
    asked = {"scale": scale, "impute": impute, "winsorise": winsorise, "pool_levels": pool_levels}
    for key, value in asked.items():
        checked(key, value)
    check_roles(dictionary, outcome, offset=offset, weights=weights)
    if pixels:
        check_pixels(scale, impute, winsorise)
    levels_of = strata_levels(dictionary, outcome, strata)
    roles = {offset, weights, strata}
    variables = tuple(v for v in dictionary.features(outcome) if v.name not in roles)
    if not variables:
        raise DataError("no column is left as a feature, besides outcome, identifiers and text.")
    encoding = Encoding(variables)
    seen = _look(fed, encoding, min_cell)
    min_rows = max(int(pool_levels), min_cell if min_cell > 1 else 0)
    numbers: Sequence[NumberColumn | Dropped]
    if pixels:
        numbers, moments = pixel_columns(seen, encoding.numeric, scale=scale)
    else:
        numbers, moments = number_columns(
            seen, encoding.numeric, scale=scale, impute=impute, winsorise=winsorise,
            min_rows=min_rows,
        )  # fmt: skip
    levels = [
        level_column(v, c, seen.rows, min_rows=min_rows, indicator=impute == "indicator")
        for v, c in zip(encoding.coded, seen.levels, strict=True)
    ]
    found = {c.name: c for c in (*numbers, *levels) if not isinstance(c, Dropped)}
    columns = tuple(
        found[v.name] if pixels else ranged(found[v.name], v) for v in variables if v.name in found
    )
    if not columns:
        raise NothingToLearn(
            f"none of the {len(variables)} columns varies among the {seen.rows} rows of all sites, "
            f"so there is no feature. Check that the tables are not empty."
        )
    joint = None
    if impute == "iterative":
        centre, sd = _raw_moments(columns, encoding, moments, seen.levels)
        joint = fit_joint(fed, columns, seen.rows, centre, sd)
    return Design(
        columns=columns,
        outcome=outcome,
        classes=classes_of(dictionary, outcome),
        scale=scale,
        impute=impute,
        winsorise=float(winsorise),
        pool_levels=int(pool_levels),
        joint=joint,
        offset=offset,
        weights=weights,
        strata=strata,
        strata_levels=levels_of,
        dropped={k: v for k, v in unused(dictionary, outcome).items() if k not in roles}
        | {c.name: c.reason for c in (*numbers, *levels) if isinstance(c, Dropped)},
        filled={} if impute == "none" else _filled(columns, encoding, seen),
    )


def check_pixels(scale: str, impute: str, winsorise: float) -> None:
    """Refuse options that treat the pixels of an image one by one.

    Raises
    ------
    SettingError : names the option.
    """
    for key, value, words in (
        ("scale", scale, ("standard", "none")),
        ("impute", impute, ("mean", "median", "most_frequent")),
        ("winsorise", winsorise, (0.0,)),
    ):
        if value not in words:
            raise SettingError(
                f"{key} is {value!r}, but the columns are the pixels of an image, which have one "
                f"scale; give {' or '.join(map(str, words))}."
            )


def check_roles(dictionary: Dictionary, outcome: Outcome | None, **roles: str) -> None:
    """Check that settings such as `offset` and `weights` name columns of numbers, or none.

    Raises
    ------
    SettingError : a column is not in the dictionary, is the outcome, or holds no numbers.
    """
    for role, name in roles.items():
        if not name:
            continue
        v = _in_role(dictionary, outcome, role, name)
        if v.identifier or v.coded or v.type not in (*RANGED, "binary"):
            what = "an identifier" if v.identifier else f"of type {v.type!r}"
            raise SettingError(
                f"{role} is {name!r}, which the dictionary says is {what}; name a column of type "
                f"{' or '.join(map(repr, RANGED[:2]))}, or give a dictionary that says it is one."
            )


def strata_levels(dictionary: Dictionary, outcome: Outcome | None, name: str) -> tuple[str, ...]:
    """Return the levels of the column that `strata` names; none if it names none.

    Raises
    ------
    SettingError : the column is not in the dictionary, is the outcome, or has no levels there.
    """
    if not name:
        return ()
    v = _in_role(dictionary, outcome, "strata", name)
    levels = ("0", "1") if v.type == "binary" and not v.levels else v.levels
    if v.identifier or v.type not in ("binary", "category") or not levels:
        what = "an identifier" if v.identifier else f"of type {v.type!r}"
        more = "" if levels else " without levels"
        raise SettingError(
            f"strata is {name!r}, which the dictionary says is {what}{more}; name a column of type "
            f"'binary' or 'category' whose levels it lists."
        )
    return levels


def _in_role(dictionary: Dictionary, outcome: Outcome | None, role: str, name: str) -> Variable:
    """Return the column that a setting names; it must not be the outcome."""
    if name not in dictionary:
        known = known_name("column", name, dictionary.variables)
        raise SettingError(f"{role} names a column, and the dictionary has {known}")
    if outcome is not None and name in outcome.columns:
        raise SettingError(f"{role} is {name!r}, which is the outcome. Name another column.")
    return dictionary[name]


def _look(fed: Federation, encoding: Encoding, min_cell: int) -> Seen:
    """Make the first two calls and return their results."""
    inside = fed.through(encoding)
    most = max((len(v.levels) for v in encoding.coded), default=0)
    first = inside.sum(column_tally, most_levels=most)
    if large := [v.name for v, k in zip(encoding.numeric, first.overflows, strict=True) if k]:
        raise DataError(
            f"column {large[0]!r} holds values beyond ±{LARGEST:.0e}, too large to be squared. "
            f"Correct them, or list the code among the column's missing values."
        )
    n = first.present.astype(float)
    mean = np.divide(first.total, n, out=np.zeros(len(n)), where=n > 0)
    squares = inside.sum(column_spread, centre=mean).squares if len(n) else np.zeros(0)
    sd = np.sqrt(np.divide(squares, n, out=np.zeros(len(n)), where=n > 0))
    moments = Moments(n, mean, sd, first.fractional == 0)
    return Seen(inside, int(first.rows), moments, first.levels, min_cell)


def _filled(columns: tuple[Column, ...], encoding: Encoding, seen: Seen) -> dict[str, float]:
    """Return the share of missing values of each column in which it exceeds `MOST_FILLED`."""
    present = {v.name: float(n) for v, n in zip(encoding.numeric, seen.moments.n, strict=True)}
    for v, counts in zip(encoding.coded, seen.levels, strict=True):
        present[v.name] = float(counts[: len(v.levels)].sum())
    shares = {c.name: round(1.0 - present[c.name] / max(seen.rows, 1), 2) for c in columns}
    return {name: share for name, share in shares.items() if share > MOST_FILLED}


def _raw_moments(
    columns: tuple[Column, ...], encoding: Encoding, moments: Moments, levels: Array
) -> tuple[Array, Array]:
    """Return mean and standard deviation (d,) of the variables of the joint distribution."""
    number = {v.name: j for j, v in enumerate(encoding.numeric)}
    coded = {v.name: counts for v, counts in zip(encoding.coded, levels, strict=True)}
    mean: list[float] = []
    sd: list[float] = []
    for c in columns:
        if isinstance(c, NumberColumn):
            mean.append(float(moments.mean[number[c.name]]))
            sd.append(float(moments.sd[number[c.name]]))
            continue
        counts = coded[c.name][: len(c.levels)]
        place = c.read(np.arange(len(c.levels)))
        rows = np.bincount(place[place >= 0], counts[place >= 0], minlength=len(c.kept))
        share = rows[1:] / rows.sum()
        mean += share.tolist()
        sd += np.sqrt(share * (1 - share)).tolist()
    return np.array(mean), np.array(sd)


def empty_views(design: Design, dictionary: Dictionary) -> tuple[str, ...]:
    """Return the views without any value at any site, in order."""
    columns = [v for v in dictionary.variables.values() if v.usable]
    nothing = {name for name, reason in design.dropped.items() if reason == NO_VALUES}
    views = columns_by_view(columns)
    return tuple(view for view, names in views.items() if nothing.issuperset(names))


def unused(dictionary: Dictionary, outcome: Outcome | None) -> dict[str, str]:
    """Return the columns that may not enter a model, each with the reason."""
    taken = outcome.columns if outcome is not None else ()
    return {
        v.name: "identifier" if v.identifier else v.type if v.feature else "not a feature"
        for v in dictionary.variables.values()
        if not v.usable and v.name not in taken
    }


def classes_of(dictionary: Dictionary, outcome: Outcome | None) -> tuple[str, ...]:
    """Return the classes of a labelled outcome, from the dictionary.

    Raises
    ------
    DataError : the outcome has no levels there, or a binary one has not two.
    """
    if outcome is None or not outcome.has_classes:
        return ()
    v = dictionary[outcome.label]
    levels = ("0", "1") if v.type == "binary" and not v.levels else v.levels
    if not levels:
        raise DataError(
            f"outcome {v.name!r} is of type {v.type!r} in the dictionary; make it a category and "
            f"list its levels."
        )
    if not outcome.has_events and len(levels) < 3:
        raise DataError(
            f"the outcome {v.name!r} is of type {outcome.type}, and has {len(levels)} level"
            f"{'s' * (len(levels) != 1)} in the dictionary; list all of them, or set its type to "
            f"binary if there are two."
        )
    if outcome.has_events and len(levels) != 2:
        n = f"{len(levels)} level{'s' * (len(levels) != 1)}"
        advice = (
            "Name an outcome that varies, or list both levels in the dictionary."
            if len(levels) < 2
            else "Set its type to category or ordinal, or recode it to two."
        )
        raise DataError(f"the binary outcome {v.name!r} has {n}; it needs two. {advice}")
    return outcome.levels(dictionary)
