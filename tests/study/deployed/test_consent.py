"""No honest study is refused: every option of preprocessing, every role of a column, and tuning.

What a site refuses of a dishonest one is in `network/test_attacks.py`.
"""

from __future__ import annotations

import itertools

import pytest

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of

SCALES = ("none", "standard", "minmax", "quantile")
IMPUTES = ("mean", "median", "most_frequent", "indicator", "iterative")
PAIRS = {
    "each once": zip(itertools.chain(SCALES, SCALES[1:2]), IMPUTES, strict=True),
    "every pair of scale and impute": itertools.product(SCALES, IMPUTES),
}
PREPARED = {
    name: ["{{method: cox, scale: {}, impute: {}}}".format(*pair) for pair in pairs]
    for name, pairs in PAIRS.items()
}
SURVIVAL = [
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
    "{method: nelson_aalen, by: menostat}",
    "{method: cox, penalty: auto, path: 3, n_folds: 3, ties: breslow}",
    "{method: deepcox, strategy: exact, rounds: 2, hidden: [4], dropout: 0.1, patience: 2}",
    "{method: deepcox, strategy: fedavg, rounds: 2, hidden: [4], patience: 1}",
    "{method: deepcox, strategy: fedprox, rounds: 2, hidden: [4], aggregation: median}",
    "{method: regression_forest, strategy: exact, rounds: 1, hidden: [4], leaf_iterations: 1}",
    "{method: regression_forest, rounds: 2, hidden: [4], patience: 1, time_grid: 6}",
    "{method: boosting, rounds: 2, max_depth: 2, patience: 1}",
    "{method: boosting, rounds: 2, max_depth: 2, objective: weibull, subsample: 0.5}",
    "{method: forest, trees: 2, depth: 3}",
    "{method: bayes_cox}",
    "{method: bayes_cox, baseline: stratified, strata: menostat, ph_check: none}",
    "{method: bayes_cox, by_site: all, site_effects: true, predictive_draws: 5}",
    "{method: bayes_cox, predictive_draws: 5}",
    "{method: bayes_net, scale: standard, rounds: 2, hidden: [4], internal_epochs: 1}",
    "{method: bayes_net, strategy: sequential, rounds: 2, hidden: [4], internal_epochs: 1}",
    "{method: bayes_net, head: cox, rounds: 2, hidden: [4], samples: 8, internal_epochs: 1}",
    "{method: bayes_net, strategy: virtual, rounds: 2, hidden: [4], internal_epochs: 1}",
]
OTHERS = [
    ("breast_cancer", "{method: logistic, scale: standard, l2: 0.1}"),
    ("breast_cancer", "{method: svm, scale: minmax, max_rounds: 30}"),
    ("diabetes", "{method: ridge, scale: quantile}"),
    ("diabetes", "{method: lasso, scale: standard}"),
    ("breast_cancer", "{method: logistic, scale: standard, solver: admm, l2: 0.1}"),
    ("breast_cancer", "{method: glm, scale: standard, l2: 0.1}"),
    ("diabetes", "{method: lasso, folds: rows, n_folds: 4}"),
    ("diabetes", "{method: elastic_net, rule: bic}"),
    ("diabetes", "{method: ridge, solver: admm, penalty: 0.1, weighting: sites}"),
    ("diabetes", "{method: lasso, solver: admm, penalty: 0.1, local: subgradient}"),
    ("diabetes", "{method: meta_analysis, pool: multivariate}"),
    ("diabetes", "{method: mixed, scale: standard, site_effects: true}"),
    ("diabetes", "{method: mixed, scale: standard}"),
    ("diabetes", "{method: glm, scale: standard, weights: age}"),
    ("breast_cancer", "{method: classifier, rounds: 2, hidden: [3], patience: 1}"),
    ("breast_cancer", "{method: classifier, strategy: exact, rounds: 2, dropout: 0.1}"),
    ("breast_cancer", "{method: classifier, strategy: sequential, rounds: 2, hidden: [3]}"),
    ("diabetes", "{method: regressor, scale: standard, rounds: 2, hidden: [3]}"),
    ("diabetes", "{method: regressor, strategy: exact, scale: standard, rounds: 2}"),
    ("diabetes", "{method: regressor, rounds: 2, hidden: [3], aggregation: median}"),
    ("diabetes", "{method: regression_forest, rounds: 2, hidden: [3]}"),
    ("diabetes", "{method: boosting, rounds: 2, max_depth: 2}"),
    ("diabetes", "{method: forest, trees: 2, depth: 3}"),
    ("diabetes", "{method: forest, trees: 2, strategy: union}"),
    ("diabetes", "{method: bayes_linear}"),
    ("diabetes", "{method: bayes_linear, by_site: all}"),
    ("breast_cancer", "{method: bayes_logistic, skewness: true}"),
    (
        "breast_cancer",
        "{method: bayes_logistic, by_site: intercept, site_effects: true, predictive_draws: 10}",
    ),
    (
        "breast_cancer",
        "{method: bayes_net, scale: standard, rounds: 2, hidden: [4], internal_epochs: 1}",
    ),
    (
        "diabetes",
        "{method: bayes_net, strategy: ensemble, rounds: 2, hidden: [4], internal_epochs: 1}",
    ),
    (
        "diabetes",
        "{method: bayes_net, strategy: fedavg, rounds: 2, hidden: [4], prior: mixture, "
        "internal_epochs: 1}",
    ),
    ("diabetes", "{method: bayes_net, strategy: sep, rounds: 2, hidden: [4], internal_epochs: 1}"),
    (
        "breast_cancer",
        "{method: bayes_net, strategy: virtual, private_weights: biases, rounds: 2, "
        "internal_epochs: 1}",
    ),
]


def statuses(folder, sample: str, arms: str, **more) -> dict[str, str]:
    """Run a study over sites in this process; return how each arm ended."""
    terms = terms_of(folder, sample, arms, **more)
    run_local(terms, tables_of(terms, frames_of(sample)), folder / "out")
    return {a["arm"]: a["status"] for a in results_of(folder / "out")["arms"]}


def named(arms: list[str]) -> str:
    return "[" + ", ".join(f"{a[:-1]}, name: a{i}}}" for i, a in enumerate(arms)) + "]"


@pytest.mark.parametrize("prepared", PREPARED.values(), ids=PREPARED)
def test_every_option_of_a_survival_study_is_consented_to(tmp_path, prepared):
    arms = [*prepared, *SURVIVAL]
    found = statuses(tmp_path, "gbsg2", named(arms), bounds="[]")
    few = found.pop(f"a{next(i for i, arm in enumerate(arms) if 'offset' in arm)}")
    assert "fewer than 5 records (min_cell) count for nearly all" in few  # the method's own words
    assert set(found.values()) == {"done"}, found


@pytest.mark.parametrize("sample", ["breast_cancer", "diabetes"])
def test_other_outcomes_are_consented_to(tmp_path, sample):
    task = {"breast_cancer": "classification", "diabetes": "regression"}[sample]
    arms = [arm for name, arm in OTHERS if name == sample]
    found = statuses(tmp_path, sample, named(arms), bounds="[]", task=task)
    assert found == {f"a{i}": "done" for i in range(len(arms))}


@pytest.mark.parametrize("method", ["meta_analysis", "mixed"])
def test_where_classes_are_told_apart_the_method_says_so_and_no_site_refuses(tmp_path, method):
    arm = f"{{method: {method}, scale: standard}}"
    (said,) = statuses(
        tmp_path, "breast_cancer", named([arm]), bounds="[]", task="classification"
    ).values()
    assert "tell the outcomes apart" in said or "predicts the outcome without error" in said


TUNED = [
    ("diabetes", "{method: lasso, folds: rows}", "{by: row-kfold, grid: {n_folds: [3, 6]}}"),
    ("diabetes", "{method: glm}", "{by: centre-kfold, grid: {l2: [0.1, 1.0]}}"),
    ("gbsg2", "{method: cox, penalty: auto, path: 3}", "{by: row-kfold, grid: {n_folds: [2, 3]}}"),
    ("gbsg2", "{method: cox}", "{by: row-kfold, grid: {strata: ['', menostat]}}"),
    (
        "gbsg2",
        "{method: deepcox, strategy: exact}",
        "{by: row-kfold, grid: {rounds: [1, 3], hidden: [[3], [4]], l2: [0.0, 0.1]}}",
    ),
    (
        "gbsg2",
        "{method: deepcox, strategy: fedavg, rounds: 2, hidden: [3]}",
        "{by: row-kfold, trials: 2, space: {l2: [0.001, 1.0, log], internal_epochs: [1, 4]}}",
    ),
]


@pytest.mark.parametrize("case", TUNED, ids=lambda case: " ".join(case))
def test_settings_that_are_tried_are_consented_to(tmp_path, case):
    sample, arm, tune = case
    task = {"diabetes": "regression", "gbsg2": "survival"}[sample]
    assert statuses(tmp_path, sample, named([arm]), bounds="[]", task=task, tune=tune) == {
        "a0": "done"
    }
