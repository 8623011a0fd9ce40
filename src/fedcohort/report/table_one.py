"""A description of tables as text: Table 1 by site and by group, and hidden parts.

For the command line and `report.describing`. Hidden values are dashes, never derived from sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import words

#: Text of a hidden value.
HIDDEN = "–"
#: More sites than this do not stand beside each other.
MOST_SITES = 6

#: One line of the tidy table: of a number, or of a level, at a site and in a group.
Line = Mapping[str, Any]
#: What identifies a column of Table 1: a site and a group, None for all of them.
Column = tuple[str | None, str | None]


def by_site(table: Sequence[Line]) -> list[list[str]]:
    """Return Table 1 by site: its head, then a row for each number, level and missing count."""
    sites = sorted({str(line["site"]) for line in table if line["site"] is not None})
    columns: list[Column] = [(None, None)]
    columns += [(s, None) for s in sites] if 1 < len(sites) <= MOST_SITES else []
    return [["", "all", *(s or "" for s, _ in columns[1:])], *_rows(table, columns)]


def by_group(table: Sequence[Line], by: str, groups: Sequence[str]) -> list[list[str]]:
    """Return Table 1 by group over the sites that show them, with standardised differences."""
    rows = _rows([x for x in table if x["variable"] != by], [(None, g) for g in groups], smd=True)
    return [["", *(f"{by}: {g}" for g in groups), "SMD"], *rows]


def _rows(table: Sequence[Line], columns: Sequence[Column], smd: bool = False) -> list[list[str]]:
    """Return rows of text: the rows of each column first, then variable by variable."""
    found: dict[str, dict[Column, dict[str | None, Line]]] = {}
    for x in table:
        place = found.setdefault(x["variable"], {}).setdefault((x["site"], x["group"]), {})
        place[x["level"]] = x
    if not found:
        return []
    first = next(iter(found.values()))
    last = [""] if smd else []
    out = [["rows", *(_rows_of(first.get(c, {})) for c in columns), *last]]
    for name, places in found.items():
        whole = places[None, None]
        one = next(iter(whole.values()))
        title = name + (f", {one['unit']}" if one["unit"] else "")
        cells = [places.get(c, {}) for c in columns]
        apart = [_smd(one["smd"])] if smd else []
        if None in whole:
            out.append([title, *(_number(c[None]) if c else HIDDEN for c in cells), *apart])
        else:
            out.append([title, *("" for _ in cells), *apart])
            out += [
                [f"  {level}", *(_count(c.get(level)) for c in cells), *last] for level in whole
            ]
        if any(_missing(c) != "0" for c in cells):
            out.append(["  missing", *map(_missing, cells), *last])
    return out


def _rows_of(place: Mapping[str | None, Line]) -> str:
    n = next(iter(place.values()))["n"] if place else None
    return HIDDEN if n is None else words.count(n)


def _number(x: Line) -> str:
    """Return mean (sd), and median [quartiles] below it, each where it is shown."""
    spread = x["sd"] or ((x["q75"] - x["q25"]) if x["q25"] is not None else 0.0)
    digits = decimals(spread or x["mean"] or 0.0)

    def text(value: float) -> str:
        return f"{value:,.{digits}f}"

    parts: list[str] = []
    if x["mean"] is not None:
        parts.append(f"{text(x['mean'])} ({text(x['sd'])})")
    if x["q25"] is not None:
        parts.append(f"{text(x['median'])} [{text(x['q25'])}, {text(x['q75'])}]")
    return "\n".join(parts) or HIDDEN


def decimals(spread: float) -> int:
    """Return the decimals that print two digits of a spread."""
    return min(max(1 - math.floor(math.log10(abs(spread))), 0), 6) if spread else 0


def _count(x: Line | None) -> str:
    if x is None or x["count"] is None:
        return HIDDEN
    share = f" ({100 * x['share']:.0f}%)" if x["share"] is not None else ""
    return f"{words.count(x['count'])}{share}"


def _missing(place: Mapping[str | None, Line]) -> str:
    n = next(iter(place.values()))["missing"] if place else None
    return HIDDEN if n is None else words.count(n)


def _smd(value: float | None) -> str:
    return HIDDEN if value is None else f"{value:.2f}"


def noisy(dp: Mapping[str, Any]) -> str:
    """Return a private description's noise and cost, as sentences."""
    return (
        f"Differentially private, of each record: epsilon {dp['epsilon']:g}, delta "
        f"{dp['delta']:g}. A count has noise of a standard deviation of at most "
        f"{dp['noise']:.2g}; numbers are cut to the dictionary's limits, and quartiles are read "
        f"off the noisy histogram. Each run costs its epsilon again."
    )


def legend(min_cell: int, by: str = "") -> list[str]:
    """Return the meaning of the cells, a sentence each."""
    said = ["Numbers: mean (SD), and median [quartiles]. Levels: rows (share of those known)."]
    if min_cell > 1:
        said.append(
            f"{HIDDEN} is hidden: counts of 1 to {min_cell - 1}, what would tell them, and numbers "
            f"of few patients."
        )
    if by:
        said.append(
            "SMD: standardised difference between groups, the largest of a pair; from what is "
            "shown."
        )
    return said


def refused(refusals: Sequence[Line]) -> list[str]:
    """Return hidden parts by rule with their number, most frequent first."""
    counted = Counter((str(r["what"]), str(r["rule"])) for r in refusals)
    return [f"{what}, {n} ×: {rule}" for (what, rule), n in counted.most_common()]
