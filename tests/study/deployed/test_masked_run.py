"""Studies by sites that answer masked sums alone: their own folds differ, and nothing else may."""

from __future__ import annotations

import json

import pytest

from deployed_cases import MaskedSites, frames_of, tables_of, terms_of
from fedcohort.study.deployed import run


@pytest.mark.parametrize(
    ("sample", "task", "arms", "folded"),
    [
        ("diabetes", "regression", "[{method: lasso, folds: centre}]", "fold_products"),
        ("gbsg2", "survival", "[{method: cox, penalty: auto}]", "fold_likelihood"),
    ],
)
def test_every_sum_is_masked_where_sites_have_folds_of_their_own(
    tmp_path, sample, task, arms, folded
):
    terms = terms_of(tmp_path, sample, arms, task=task)
    tables = tables_of(terms, frames_of(sample))
    run(terms, MaskedSites(terms, tables, tmp_path), tmp_path / "out", debug=True)
    lines = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    sums = [line for line in map(json.loads, lines) if line.get("verb") == "sum"]
    assert all(line["masked"] for line in sums)
    assert folded in {line["step"] for line in sums}
