"""One line for each call and site, as `docs` promise it, with true sizes."""

from __future__ import annotations

import json

import numpy as np

from fedcohort.protocol.ledger import Ledger

KEYS = [
    "call", "round", "step", "verb", "site", "fields", "min_cell", "masked",
    "mechanism", "epsilon", "delta",
]  # fmt: skip


def test_a_line_names_call_site_and_fields_with_shape_type_and_bytes():
    ledger = Ledger(min_cell=7)
    fields = {"s0": np.zeros((3, 2), np.float32), "n": np.array(4)}
    ledger.write(5, 2, "risk", "sum", ["a", 'b"\n'], fields)
    first, second = map(json.loads, ledger.lines)
    assert list(first) == KEYS
    assert first == {
        "call": 5,
        "round": 2,
        "step": "risk",
        "verb": "sum",
        "site": "a",
        "fields": {
            "s0": {"shape": [3, 2], "dtype": "float32", "bytes": 24},
            "n": {"shape": [], "dtype": "int64", "bytes": 8},
        },
        "min_cell": 7,
        "masked": False,
        "mechanism": None,
        "epsilon": None,
        "delta": None,
    }
    assert second["site"] == 'b"\n'
    assert ledger.bytes_up == {"a": 32, 'b"\n': 32}


def test_a_line_is_one_line_and_holds_no_number_that_was_sent():
    ledger = Ledger()
    ledger.write(0, 0, "mean", "gather", ["a"], {"x": np.array([4711.25])})
    assert "\n" not in ledger.lines[0]
    assert "4711" not in ledger.lines[0]


def test_lines_follow_a_change_of_shape_between_calls_of_one_step():
    ledger = Ledger()
    for n in (1, 2, 1):
        ledger.write(0, 0, "s", "sum", ["a"], {"x": np.zeros(n)})
    shapes = [json.loads(line)["fields"]["x"]["shape"] for line in ledger.lines]
    assert shapes == [[1], [2], [1]]
    assert ledger.bytes_up == {"a": 32}
