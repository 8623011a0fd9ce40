"""What a study shows of virtual rows: the lists of `study.virtual.shown`, and those of SMOTE.

Rows with ``reference`` "SMOTE" are of interpolated training rows: a reference that no federation
can give, since it needs rows in one place. In a private study only what uses blind rows alone is
shown.
"""

from __future__ import annotations

from fedcohort.protocol import Row
from fedcohort.study.judge.pooled.virtual import MOST, TIMES, Virtual
from fedcohort.study.run.engine import Run
from fedcohort.study.virtual.comparing import Comparison, interpolated
from fedcohort.study.virtual.shown import KEYS, shown

__all__ = ["KEYS", "virtual_rows"]

#: Lists of the reference.
OF_REFERENCE = ("virtual_scores", "virtual_privacy")


def virtual_rows(run: Run, judge: Virtual, seed: int, *, private: bool) -> dict[str, list[Row]]:
    """Return the lists of one fit, by key of results.json."""
    said = judge.predicted(run, ())
    found = {
        key: [{**row, "reference": ""} for row in rows]
        for key, rows in shown(said, judge.min_cell, private=private).items()
    }
    if private:
        return found
    names = [name for name in judge.train.columns if name in judge.dictionary]
    rows = interpolated(
        judge.train[names], judge.dictionary, min(TIMES * len(judge.train), MOST), seed
    )
    other = Comparison.of(
        rows.reindex(columns=[*judge.dictionary.variables]), judge.train, judge.test,
        judge.dictionary, said.outcome, seed,
    )  # fmt: skip
    lists = shown(other, judge.min_cell, learnt_from="SMOTE rows")
    for key in OF_REFERENCE:
        found[key] += [{**row, "reference": "SMOTE"} for row in lists[key]]
    return found
