"""No honest study is refused: every option of preprocessing, every role of a column, and tuning.

What a site refuses of a dishonest one is in `network/test_attacks.py`.
"""

from __future__ import annotations

import itertools

import pytest

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of

SURVIVAL = [
    "{{method: cox, scale: {}, impute: {}}}".format(*pair)
    for pair in itertools.product(
        ("none", "standard", "minmax", "quantile"),
        ("mean", "median", "most_frequent", "indicator", "iterative"),
    )
] + [
    "{method: cox, scale: standard, winsorise: 0.05, pool_levels: 60}",
    "{method: cox, scale: minmax, winsorise: 0.02, impute: iterative}",
    "{method: cox, strata: menostat, baseline: stratified}",
    "{method: cox, weights: pnodes}",
    "{method: cox, offset: tsize}",
    "{method: cox, time_grid: exact}",
    "{method: cox, time_grid: 20}",
    "{method: deepcox, strategy: sequential, rounds: 2, hidden: [4]}",
    "{method: deepcox, strategy: ensemble, rounds: 2, hidden: [4]}",
    "{method: deepcox, strategy: exact, rounds: 2, hidden: [4], time_grid: exact}",
    "{method: kaplan_meier, by: tgrade}",
    "{method: kaplan_meier, time_grid: exact}",
]
OTHERS = [
    ("breast_cancer", "{method: logistic, scale: standard, l2: 0.1}"),
    ("breast_cancer", "{method: svm, scale: minmax, max_rounds: 30}"),
    ("diabetes", "{method: ridge, scale: quantile}"),
    ("diabetes", "{method: lasso, scale: standard}"),
    ("diabetes", "{method: mixed, scale: standard}"),
    ("diabetes", "{method: glm, scale: standard, weights: age}"),
]


def statuses(folder, sample: str, arms: str, **more) -> dict[str, str]:
    """Run a study over sites in this process; return how each arm ended."""
    terms = terms_of(folder, sample, arms, **more)
    run_local(terms, tables_of(terms, frames_of(sample)), folder / "out")
    return {a["arm"]: a["status"] for a in results_of(folder / "out")["arms"]}


def named(arms: list[str]) -> str:
    return "[" + ", ".join(f"{a[:-1]}, name: a{i}}}" for i, a in enumerate(arms)) + "]"


def test_every_option_of_a_survival_study_is_consented_to(tmp_path):
    found = statuses(tmp_path, "gbsg2", named(SURVIVAL), bounds="[]")
    few = found.pop(f"a{next(i for i, arm in enumerate(SURVIVAL) if 'offset' in arm)}")
    assert "fewer than 5 records (min_cell) count for nearly all" in few  # the method's own words
    assert set(found.values()) == {"done"}, found


@pytest.mark.parametrize("sample", ["breast_cancer", "diabetes"])
def test_other_outcomes_are_consented_to(tmp_path, sample):
    task = {"breast_cancer": "classification", "diabetes": "regression"}[sample]
    arms = [arm for name, arm in OTHERS if name == sample]
    found = statuses(tmp_path, sample, named(arms), bounds="[]", task=task)
    assert found == {f"a{i}": "done" for i in range(len(arms))}
