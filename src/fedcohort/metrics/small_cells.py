"""What may be shown of counts: none that is of one to four people.

A report leaves the coordinator, and a count of few people may tell who they are. A count below
`at_least` that is not 0 is not shown. Where counts add up to a total that is known, one hidden
count is the total less the others, so the smallest of the others is hidden as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array


def shown(count: int, at_least: int) -> int | None:
    """Return a count, or None where it is of fewer than `at_least` people, but not of nobody."""
    return None if 0 < count < at_least else int(count)


def shown_parts(
    counts: Sequence[int] | Array, at_least: int, of: Sequence[int] | Array | None = None
) -> list[int | None]:
    """Return the counts of a known total as they may be shown; None stands for a hidden one.

    Parameters
    ----------
    counts : (g,), such as the events in each group.
    of : (g,), the people that they are counted among, where these are shown as well: what a count
        leaves of them is hidden with it.
    """
    rest = (
        [0] * len(counts) if of is None else [int(n - c) for n, c in zip(of, counts, strict=True)]
    )
    parts = [
        None if shown(left, at_least) is None else shown(int(c), at_least)
        for c, left in zip(counts, rest, strict=True)
    ]
    if parts.count(None) == 1:
        others = [i for i, c in enumerate(parts) if c]
        if others:
            parts[min(others, key=lambda i: parts[i] or 0)] = None
    return parts


def merged(counts: Array, at_least: int) -> Array:
    """Return where to cut cells (m,) in steps that each hold `at_least` counts or more.

    What is left after the last full step joins it.

    Returns
    -------
    ends : (s,) the last cell of each step, ascending; empty if all counts are fewer.
    """
    ends: list[int] = []
    held = 0
    for i, count in enumerate(np.asarray(counts).tolist()):
        held += count
        if held >= at_least:
            ends.append(i)
            held = 0
    if held and ends:
        ends[-1] = int(np.flatnonzero(counts)[-1])
    return np.array(ends, np.int64)
