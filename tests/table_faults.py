"""Tables whose every cell can be recognised, and what can go wrong with them on their way.

Text in cells holds ``ZQ``, numbers hold ``7319``, dates lie in the years 1931 to 1973: whatever
of it stands in an error or a report came from a cell.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
import re

import numpy as np
import pandas as pd

#: What no output may hold.
CELL = re.compile(r"zq|7319|19[3-7]\d-\d\d|\x00", re.IGNORECASE)

HEADER = ["patient", "age", "marker", "grade", "smoker", "birth", "time", "event", "hospital"]
DICTIONARY = """\
variables:
  patient: {type: text, identifier: true}
  age: {type: integer, unit: days, range: [1, 99999999]}
  marker: {type: number, missing: [-9]}
  grade: {type: category, levels: [I, II, III]}
  smoker: binary
  birth: {type: date, since: "1920-01-01", unit: years}
  time: {type: time, unit: days}
  event: event
"""
STUDY = """\
study: s
data: {source: %s, %soutcome: {time: time, event: event}, sites: {column: hospital}}
arms: [{method: cox}]
"""
#: Cells that stand where they should not.
JUNK = [
    "", " ", "ZQ", "12,7319", "7319 g/dl", "<7319", "-7319", "0", "1e7319", "-inf", "nan", "NA",
    "7319.5", "73190101", "7319-13-45", "1931-12-31T25:61", "TRUE", "ZQ\nZQ", 'ZQ"ZQ', "ZQ,ZQ",
    "=ZQ()", "ZQ" * 500, "\x00ZQ", "\ufeffZQ", "ＺＱ７３１９", "zq\u2028zq", "\x1b[31mZQ", "i",
    " II ", "-9", "1e308", "0x7319", "7_319", "1,7319,000.5", "#REF!ZQ", "{ZQ}", "%sZQ", "ZQ\r",
    "'ZQ", "I", "1", "2", "9" * 400, "7319" * 90, "٧٣١٩", "ZQ\t", "-0.0", "None",
]  # fmt: skip


def grid(rows: int = 14) -> list[list[str]]:
    """Return a sound table as text, header first."""
    first = datetime.date(1931, 1, 1)
    table = [list(HEADER)]
    for i in range(rows):
        birth = first + datetime.timedelta(days=1007 * i)
        table.append(
            [f"ZQ{i:03}", f"7319{i:03}", f"0.7319{i * 37 % 100:03}", "I II III".split()[i % 3],
             str(i % 2), str(birth), f"7319{(i * 13) % 97:02}", str(int(i % 3 > 0)),
             "north" if i % 2 else "south"]
        )  # fmt: skip
    return table


def _cell(table, rng):
    row = rng.randrange(len(table))
    if table[row]:
        table[row][rng.randrange(len(table[row]))] = rng.choice(JUNK)


def _column(table, rng):
    at, junk = rng.randrange(len(HEADER)), rng.choice(JUNK)
    for row in table[1:]:
        if at < len(row):
            row[at] = junk


def _own_site(table, rng):
    for i, row in enumerate(table[1:]):
        row[-1:] = [f"ZQ{i}"]


def _shuffle_column(table, rng):
    at = rng.randrange(len(HEADER))
    cells = [row[at] for row in table if at < len(row)]
    rng.shuffle(cells)
    for row, cell in zip((r for r in table if at < len(r)), cells, strict=True):
        row[at] = cell


def _name(table, rng):
    if table and table[0]:
        table[0][rng.randrange(len(table[0]))] = rng.choice([*HEADER, *JUNK, "Age", "tme", "Event"])


def _drop_column(table, rng):
    at = rng.randrange(len(HEADER))
    for row in table:
        del row[at : at + 1]


def _repeat_column(table, rng):
    at = rng.randrange(len(HEADER))
    for row in table:
        row.extend(row[at : at + 1])


def _extra_cells(table, rng):
    rng.choice(table).extend(rng.choices(JUNK, k=rng.randrange(1, 4)))


def _short_row(table, rng):
    row = rng.choice(table)
    del row[rng.randrange(len(row) + 1) :]


def _repeat_row(table, rng):
    table.insert(rng.randrange(len(table) + 1), list(rng.choice(table)))


def _empty_rows(table, rng):
    table.insert(rng.randrange(len(table) + 1), rng.choice([[], [""], [""] * len(HEADER)]))


def _thousandfold(table, rng):
    at = rng.choice([1, 2, 6])
    for row in table[1::3]:
        if at < len(row):
            row[at] += "000"


def _first_rows(table, rng):
    del table[rng.randrange(len(table) + 1) :]


def _no_header(table, rng):
    del table[:1]


def _turned(table, rng):
    width = max(map(len, table), default=0)
    table[:] = [[row[i] if i < len(row) else "" for row in table] for i in range(width)]


def _upside_down(table, rng):
    table.reverse()


#: What can go wrong with the cells of a table; each changes it in place, at random.
FAULTS = (
    _cell, _cell, _cell, _cell, _column, _own_site, _shuffle_column, _name, _drop_column,
    _repeat_column, _extra_cells, _short_row, _repeat_row, _empty_rows, _thousandfold, _first_rows,
    _no_header, _turned, _upside_down,
)  # fmt: skip


def broken_grid(rng: random.Random, faults: int) -> list[list[str]]:
    """Return a table with some faults."""
    table = grid()
    for fault in rng.choices(FAULTS, k=faults):
        if table:
            fault(table, rng)
    return table


def csv_bytes(table: list[list[str]], rng: random.Random) -> bytes:
    """Return a table as a CSV file, mostly as it should be."""
    mark = rng.choice([","] * 12 + [";", "\t", "|", " "])
    end = rng.choice(["\n"] * 8 + ["\r\n", "\r", "\n\n"])
    quoted = rng.random() < 0.7

    def written(cell: str) -> str:
        if quoted and re.search(r'[,;\t"\r\n|]', cell):
            return '"' + cell.replace('"', '""') + '"'
        return cell

    text = end.join(mark.join(map(written, row)) for row in table) + rng.choice([end, ""])
    code = rng.choice(["utf-8"] * 12 + ["utf-8-sig", "utf-16", "latin-1", "cp1252"])
    body = text.encode(code, errors="replace")
    if rng.random() < 0.08:
        body = body[: rng.randrange(len(body) + 1)]
    if rng.random() < 0.05:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + bytes(rng.choices(range(256), k=rng.randrange(1, 9))) + body[at:]
    return body


#: What a column of a frame in memory may be made of.
DTYPES = (
    lambda c: c.astype("category"),
    lambda c: c.astype("string"),
    lambda c: pd.to_numeric(c, errors="coerce").astype("Float64"),
    lambda c: pd.to_numeric(c, errors="coerce"),
    lambda c: pd.to_datetime(c, errors="coerce", format="ISO8601"),
    lambda c: pd.to_datetime(c, errors="coerce", format="ISO8601", utc=True),
    lambda c: pd.to_timedelta(np.arange(len(c)), unit="D"),
    lambda c: [decimal.Decimal("7319.5")] * len(c),
    lambda c: [["ZQ"]] * len(c),
    lambda c: [{"ZQ": 7319}] * len(c),
    lambda c: [b"ZQ"] * len(c),
    lambda c: [7319 + 1j] * len(c),
    lambda c: [datetime.date(1931, 5, 5)] * len(c),
    lambda c: [datetime.time(7, 31, 9)] * len(c),
    lambda c: [True] * len(c),
    lambda c: [10**400] * len(c),
    lambda c: [None] * len(c),
    lambda c: ["ZQ", 7319, None, 1.5, True][: len(c)] + ["ZQ"] * max(len(c) - 5, 0),
    lambda c: pd.arrays.PeriodArray(pd.period_range("1931-01", periods=len(c), freq="M")),
)


def broken_frame(table: list[list[str]], rng: random.Random) -> pd.DataFrame:
    """Return a table as a frame in memory, with columns of odd types, names or index."""
    width = len(table[0]) if table else 0
    rows = [[*row, *[None] * width][:width] for row in table[1:]]
    frame = pd.DataFrame(rows, columns=table[0] if table else None, dtype=object)
    for _ in range(rng.randrange(4)):
        if frame.shape[1]:
            at, made = rng.randrange(frame.shape[1]), rng.choice(DTYPES)
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # pandas cannot
                cells = made(frame.iloc[:, at])
                if isinstance(cells, list):
                    cells = pd.Series(cells, frame.index, dtype=object)
                frame.isetitem(at, cells)
    if rng.random() < 0.1:
        frame.index = rng.choices(range(3), k=len(frame))
    if rng.random() < 0.05:
        frame.columns = [7319, *frame.columns[1:]][: frame.shape[1]]
    return frame
