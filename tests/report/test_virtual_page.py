"""The parts of a page about virtual rows."""

from __future__ import annotations

from fedcohort.report.virtual_parts import blocks


def curve(rows, times):
    return [
        {"rows": rows, "time": t, "survival": 1 - t / 400, "low": None, "high": None} for t in times
    ]


def page(virtual, real=()):
    lists = {"virtual_curves": [*curve("virtual", virtual), *curve("real", real)]}
    return "".join(str(block.body) for block in blocks("v", lists, "months"))


def test_curves_end_with_the_real_rows_and_the_page_says_where_the_virtual_ones_do():
    text = page([0, 10, 50, 90, 360], [0, 12, 60])
    assert "the curve of virtual rows ends at 360 months (30 years)" in text
    drawn = text[text.index("<svg") : text.index("</svg>")]
    assert ">30<" not in drawn and ">5<" in drawn  # years of the axis


def test_curves_within_the_real_ones_and_curves_alone_are_whole():
    assert "as far as real rows go" not in page([0, 10, 60], [0, 12, 60])
    alone = page([0, 10, 360])
    assert "as far as" not in alone and ">30<" in alone
