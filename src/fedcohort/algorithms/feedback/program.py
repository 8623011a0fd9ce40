"""Feedback to each site on its own data: anomalies compared with the other sites, missing columns.

No paper describes the whole method. Votes of sites on a common grid (`others`) replace Table 1 by
site: the coordinator learns the positions of sites, but not which site has which. Each site removes
its own vote, compares its rows with the rest (`rules`), and tells its findings:

    unit of the grids   median of the votes on spreads, then on places, `REFINED` times      (1)
    votes               places, spreads, shares, levels, associations, as sums               (2)
    comparison          at the site, with (2) less its own                                   (3)

Revealed: `Scales`, `Places`, `Votes`, as sums over all sites; `Told` of each site, once: its
anomalous columns, by rule, with size to two digits or a twentieth, and the gain from columns that
it does not record. If sites keep these (`told` is false), only `Heard`; the findings stay in the
site's state, and `lines_for` puts them in words there. With three sites or more: with two, each
would learn the other's numbers. Sites receive (2) unchanged: with three, a site may see the numbers
of the two others, but not which is whose. All votes wait for the sites of the first one: two sums
that differ by a site would tell that site's vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from fedcohort.algorithms.feedback import others, own
from fedcohort.algorithms.feedback.model import Feedback, Remark
from fedcohort.algorithms.feedback.settings import FEWEST_SITES, FeedbackSettings
from fedcohort.algorithms.feedback.steps import (
    Told,
    compare,
    keep_findings,
    vote,
    vote_place,
    vote_scale,
)
from fedcohort.algorithms.feedback.words import UNITS, line, unrecorded
from fedcohort.arrays import Array
from fedcohort.data.describe import Reading, variables_of
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Outcome, Survival, columns_of
from fedcohort.protocol import DataError, Federation, SiteUnavailable, Task

#: Number of times that the grid of places is recentred at the median of its votes. Cells far from
#: the centre are wide; each time the centre is 20 times nearer.
REFINED = 3


def fit(fed: Federation, config: FeedbackSettings, task: Task) -> Feedback:
    """Collect votes from all sites, and each site's findings.

    Raises
    ------
    DataError : there is no column to compare.
    SiteUnavailable : fewer than three sites answer, or one left between two calls; no vote of the
        others is told then.
    """
    reading, outcome = _read(task)
    label, m = label_of(reading, outcome), task.min_cell
    levels, places = reading.n_levels, tuple(reading.place)
    taken = columns_of(outcome)
    feature = np.array([name not in taken for name in places], bool)
    next(iter(fed.rounds(1)))
    inside = fed.through(reading.view)
    scale = inside.sum(vote_scale, min_cell=m).spread
    inside = inside.only(inside.answered)
    _check(inside.sites)
    complete = inside.awaiting()
    unit = _units(scale)
    centre = np.zeros(len(unit))
    for _ in range(REFINED):
        found = complete.sum(vote_place, centre=centre, unit=unit, min_cell=m).place
        _check_same(complete)
        middle = others.median_of(found)
        centre = centre + np.where(np.isnan(middle), 0.0, unit * others.value_of(middle))
    votes = complete.sum(
        vote, centre=centre, unit=unit, n_levels=levels, label=label, min_cell=m
    )  # fmt: skip
    _check_same(complete)
    asked: dict[str, Any] = {
        **vars(votes), "centre": centre, "unit": unit, "n_levels": levels, "label": label,
        "feature": feature, "factors": np.array([u.back for u in UNITS]), "far": config.far,
    }  # fmt: skip
    if not config.told:
        replies_kept = inside.gather(keep_findings, **asked, min_cell=m)
        few = tuple(site for site in sorted(replies_kept) if replies_kept[site].few)
        return Feedback(sites=tuple(sorted(replies_kept)), few=few, remarks=())
    replies = inside.gather(compare, **asked, min_cell=m)
    remarks = [
        one
        for site in sorted(replies)
        for one in _remarks(site, replies[site], reading, places, outcome, config.gains)
    ]
    fed.record(findings=float(sum(r.rule != "unrecorded" for r in remarks)))
    few = tuple(site for site in sorted(replies) if replies[site].few)
    return Feedback(sites=tuple(sorted(replies)), few=few, remarks=tuple(remarks))


def lines_for(
    config: FeedbackSettings, task: Task, site: str, left: Mapping[str, Array]
) -> list[str]:
    """Return the findings that a site keeps, in words, for that site alone.

    Parameters
    ----------
    left : the state left by `keep_findings`.
    """
    reading, outcome = _read(task)
    found = Told(**left)
    if found.few:
        return ["There are too few rows to compare with the other sites'."]
    remarks = _remarks(site, found, reading, tuple(reading.place), outcome, config.gains)
    lines = [r.line.removeprefix(f"{site}: ") for r in remarks]
    return lines or ["No anomaly compared with the other sites."]


def _read(task: Task) -> tuple[Reading, Outcome | None]:
    """Return the reading of compared columns, and the outcome.

    Raises
    ------
    DataError : there is no column to compare.
    """
    outcome = cast("Outcome | None", task.outcome_of)
    reading = Reading(variables_of(cast("Dictionary", task.dictionary), outcome))
    if not reading.variables:
        raise DataError("no column is left to compare, besides identifiers, dates and text.")
    return reading, outcome


def label_of(reading: Reading, outcome: Outcome | None) -> Array:
    """Return the kind of the outcome and its places (3,); see `own.columns_of`."""
    c = len(reading.view.numeric)
    if outcome is None or isinstance(outcome, Category):
        return np.array([own.NO_LABEL, 0, 0])
    if isinstance(outcome, Survival):
        time, event = reading.place[outcome.time], reading.place[outcome.event]
        return np.array([own.TIME, time, event - c])
    at = reading.place[outcome.y]
    if isinstance(outcome, Binary):
        two = at >= c and int(reading.n_levels[at - c]) == 2
        return np.array([own.CODES, at - c, 0] if two else [own.NO_LABEL, 0, 0])
    return np.array([own.NUMBER, at, 0])


def _units(votes: Array) -> Array:
    """Return the unit (c,) of each number's grid; 0 without votes."""
    middle = others.median_of(votes) - others.OCTAVES * others.QUARTERS
    return np.where(np.isnan(middle), 0.0, 2.0 ** (np.nan_to_num(middle) / others.QUARTERS))


def _check(sites: Sequence[str]) -> None:
    """Refuse fewer sites than `FEWEST_SITES`."""
    if len(sites) < FEWEST_SITES:
        raise SiteUnavailable(
            f"{len(sites)} sites answer, and feedback compares each with at least two others. "
            f"Bring the others back and --resume."
        )


def _check_same(fed: Federation) -> None:
    """Refuse votes from other sites than the first: a site removes its own."""
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left between two calls, but all votes must be from the same "
            f"sites. Bring them back and --resume, or start again without them."
        )


def _remarks(
    site: str,
    reply: Told,
    reading: Reading,
    places: tuple[str, ...],
    outcome: Outcome | None,
    gains: int,
) -> list[Remark]:
    """Return one site's findings in words."""
    parts = zip(
        reply.rule.tolist(), reply.column.tolist(), reply.other.tolist(), reply.size.tolist(),
        reply.more.tolist(), strict=True,
    )  # fmt: skip
    out = [line(site, reading, places, outcome, *one) for one in parts]
    added = zip(
        reply.unrecorded.tolist(), reply.fall.tolist(), reply.low.tolist(), reply.high.tolist(),
        strict=True,
    )  # fmt: skip
    return out + [unrecorded(site, places, outcome, *one) for one in list(added)[:gains]]
