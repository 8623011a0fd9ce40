"""Descriptive statistics over sites, without numbers of few patients.

Table 1 by site is `data.describe`, by group `data.describe_groups`, with standardised differences
between groups of the shown numbers (`algorithms.describe.lines`); histograms are
`data.describe_bins`, correlations `data.describe_pairs`. These modules, `privacy.disclosure` and
`shown_number` have the rules of what is hidden, and why nobody can compute it from the rest.

Revealed: `SiteTable` and, if requested, `SiteQuantiles` and `GroupTables`, of each site, once;
`Bins` and `Pairs`, once, as sums over all sites. With noise, see `private`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from fedcohort.algorithms.describe import private
from fedcohort.algorithms.describe.lines import lines
from fedcohort.algorithms.describe.model import Description
from fedcohort.algorithms.describe.refusals import (
    of_bars,
    of_noise,
    of_pairs,
    of_sites,
    of_summaries,
)
from fedcohort.algorithms.describe.settings import DescribeSettings
from fedcohort.data.describe import Reading, describe, variables_of
from fedcohort.data.describe.bins import Bars, histograms
from fedcohort.data.describe.groups import describe_groups
from fedcohort.data.describe.pairs import Correlation, correlate
from fedcohort.data.describe.summary import Summary
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.variable import Variable
from fedcohort.data.words import known_name
from fedcohort.protocol import (
    DataError,
    Dp,
    Federation,
    SettingError,
    SiteUnavailable,
    Task,
)

#: Most groups of a readable table.
MOST_GROUPS = 20


def fit(fed: Federation, config: DescribeSettings, task: Task) -> Description:
    """Describe the rows of all sites that answer the first call.

    Raises
    ------
    DataError : no column can be described, or a table differs from the dictionary.
    SettingError : `by` is not a column with levels; exact numbers with a `min_cell` above 1.
    SiteUnavailable : a site left between two calls.
    """
    m = task.min_cell
    if not config.rounding and m > 1:
        raise SettingError(
            f"setting 'rounding' is False, and min_cell is {m}: exact means tell small counts. "
            f"Leave it out, or give min_cell=1 if all sites agree that nothing is hidden."
        )
    dictionary = cast("Dictionary", task.dictionary)
    reading = Reading(_described(dictionary, cast("Outcome | None", task.outcome_of), config.by))
    if task.dp is not None:
        return _privately(fed, config, reading, m, task.dp)
    if config.by:
        _check_groups(config.by, reading)
    shares = tuple(sorted(config.quantiles))
    groups: list[Summary] = []
    left_out: tuple[str, ...] = ()
    bars: list[Bars] = []
    without: list[str] = []
    pairs: Correlation | None = None
    found: list[Summary] = []
    note = ""
    for _ in fed.rounds(1):
        one = describe(fed, reading.variables, shares=shares, min_cell=m, rounding=config.rounding)
        found, note = one.summaries, one.note
        fed = fed.only(fed.answered)
        over_sites = [s for s in found if s.site is None]
        if config.by:
            groups, left_out = describe_groups(
                fed, reading, config.by, shares=shares, min_cell=m, rounding=config.rounding,
                one=one,
            )  # fmt: skip
            _check_all_answered(fed)
        view = fed.through(reading.view)
        if config.histograms:
            by_name = {s.variable.name: s for s in over_sites}
            bars, without = histograms(
                view, [by_name[v.name] for v in reading.view.numeric], min_cell=m
            )
            _check_all_answered(fed)
        if config.correlation:
            pairs = correlate(view, reading, over_sites, min_cell=m, rounding=config.rounding)
            _check_all_answered(fed)
        n_hidden = sum(s.n_hidden for s in (*found, *groups))
        fed.record(hidden=float(n_hidden))
    every = [*found, *groups]
    return Description(
        by=config.by,
        groups=reading.levels.get(config.by, ()),
        min_cell=m,
        table=lines(every, shares),
        histograms=tuple(bars),
        correlation=pairs,
        suppressed=sum(s.n_hidden for s in every),
        refusals=(
            *of_sites(left_out, config.by, m),
            *of_summaries(every, m, note),
            *of_bars(without, m),
            *of_pairs(pairs, m),
        ),
    )


def bounds(config: DescribeSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    if not config.by:
        return {"by": ()}
    dictionary = cast("Dictionary", task.dictionary)
    reading = Reading(_described(dictionary, cast("Outcome | None", task.outcome_of), config.by))
    return {"by": (reading.place[config.by] - len(reading.view.numeric),)}


def _privately(
    fed: Federation, config: DescribeSettings, reading: Reading, min_cell: int, dp: Dp
) -> Description:
    """Describe all rows together, with noise."""
    next(fed.rounds(1))
    (release,) = private.releases(config, dp)
    found = private.described(fed, reading, release, min_cell=min_cell, bars=config.histograms)
    n_hidden = sum(s.n_hidden for s in found.summaries)
    fed.record(hidden=float(n_hidden))
    return Description(
        by="",
        groups=(),
        min_cell=min_cell,
        table=lines(found.summaries),
        histograms=tuple(found.bars),
        correlation=None,
        suppressed=n_hidden,
        refusals=tuple(of_noise(found.summaries, found.drowned, found.loud, min_cell)),
        noise=found.noise,
        epsilon=dp.epsilon,
        delta=dp.delta,
    )


def held(config: DescribeSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments that a site checks in a private description: all of them."""
    dictionary = cast("Dictionary", task.dictionary)
    reading = Reading(_described(dictionary, cast("Outcome | None", task.outcome_of), config.by))
    asked = private.asked_of(private.Layout.of(reading))
    return {private.describe_privately.name: asked}


def _described(dictionary: Dictionary, outcome: Outcome | None, by: str) -> list[Variable]:
    """Return the described variables, and the variable of the groups."""
    found = list(variables_of(dictionary, outcome))
    if by and by not in [v.name for v in found]:
        if by not in dictionary:
            raise SettingError(
                f"by: the dictionary has {known_name('variable', by, dictionary.variables)}"
            )
        v = dictionary[by]
        if v.identifier or v.type in ("text", "date"):
            kind = "an identifier" if v.identifier else f"of type {v.type!r}"
            raise SettingError(f"by: {by!r} is {kind}; name a column with levels.")
        found.append(v)
    if not found:
        raise DataError("no column is left to describe, besides identifiers, dates and text.")
    return found


def _check_groups(by: str, reading: Reading) -> None:
    """Refuse a column that cannot form groups."""
    levels = reading.levels[by]
    if not levels:
        raise SettingError(
            f"by: {by!r} is a number. Name a column with levels, or make one of its classes."
        )
    if not 1 < len(levels) <= MOST_GROUPS:
        raise SettingError(
            f"by: {by!r} has {len(levels)} levels; groups are 2 to {MOST_GROUPS}. Join some."
        )
    if len(reading.variables) == 1:
        raise DataError(f"there is no column besides {by!r} to describe by its groups.")


def _check_all_answered(fed: Federation) -> None:
    """Refuse to combine calls over different sites."""
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left between two calls, but a description needs the same sites "
            f"in all calls. Bring them back and --resume, or start again without them."
        )
