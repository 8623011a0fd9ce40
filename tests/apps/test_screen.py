"""What `fedcohort run` says at the end."""

from __future__ import annotations

import pytest

from fedcohort.apps import screen
from fedcohort.study.study import Results
from report import synthetic


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ([("missing outcome", 12), ("time not above 0", None)], "left out by data.exclude: 12 rows "
         "(missing outcome), a hidden number of rows (time not above 0)"),
        ([("missing outcome", 0), ("time not above 0", 1234)], "left out by data.exclude: 1,234 "
         "rows (time not above 0)"),
        ([], None),
    ],
)  # fmt: skip
def test_rows_that_the_study_left_out_are_counted_by_reason(tmp_path, capsys, counts, line):
    results = Results.from_folder(synthetic.make(tmp_path, scenarios=["iid"], repeats=1))
    flow = [
        {"stage": f"excluded: {r}", "site": s, "rows": n} for r, n in counts for s in (None, "a")
    ]
    content = {
        **results.content,
        "cohort": {"flow": [{"stage": "read", "site": None, "rows": 9}, *flow]},
    }
    screen.show(Results(results.folder, content))
    found = [x for x in capsys.readouterr().out.splitlines() if x.startswith("left out")]
    assert found == ([line] if line else [])
