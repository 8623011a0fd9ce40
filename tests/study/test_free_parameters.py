"""A model's free parameters are counted as they are, and a study of too few rows says so."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import yaml

import fedcohort as fc
from deployed_cases import frames_of, run_local, tables_of, terms_of
from fedcohort.models.network import Mlp
from fedcohort.report import write
from fedcohort.study.run.warnings import crowded, free_parameters, rows_of_leaf


@pytest.mark.parametrize(("features", "hidden"), [(3, (8, 4)), (11, (5,)), (2, (4, 4, 4))])
def test_a_networks_parameters_are_those_that_torch_counts(features, hidden):
    network = Mlp(inputs=features, hidden=hidden, activation="selu", dropout=0.0).build()
    counted = sum(p.numel() for p in network.parameters())
    found = free_parameters("deepcox", {"hidden": hidden}, features)
    assert found in (counted, counted + 1)  # deepcox has no bias at its end


def test_a_regression_has_one_for_each_column_and_a_curve_none():
    assert free_parameters("cox", {}, 12) == 12
    assert free_parameters("kaplan_meier", {}, 3) == free_parameters("log_rank", {}, 3) == 0


def test_leaves_with_a_least_number_of_rows_are_none_and_soft_leaves_are_two_each():
    assert free_parameters("boosting", {}, 5, 3) == free_parameters("forest", {}, 5, 3) == 0
    soft = {"hidden": (4,), "outputs": 3, "trees": 2, "depth": 2}
    network = Mlp(inputs=5, hidden=(4,), activation="selu", dropout=0.0, outputs=3).build()
    counted = sum(p.numel() for p in network.parameters())
    assert free_parameters("regression_forest", soft, 5) == counted + 2 * (2 * 4)


@pytest.mark.parametrize("method", ["boosting", "forest"])
def test_trees_of_few_rows_are_not_warned_of_as_parameters(method):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fc.fit(method, crowded_cohort(30))
    assert not [w for w in told if "free parameters" in str(w.message)]


@pytest.mark.parametrize(("method", "least"), [("boosting", 1), ("forest", 10), ("cox", 0)])
def test_the_fewest_rows_of_a_leaf_are_ten_or_min_cell_and_fewer_only_with_a_min_cell_of_one(
    method, least
):
    found = [rows_of_leaf(method, {}, min_cell) for min_cell in (1, 5, 12)]
    assert found == ([least, 10, 12] if least else [0, 0, 0])


def test_clusters_have_one_for_each_centroid_and_column():
    assert free_parameters("kmeans", {"n_clusters": 4}, 6) == 24
    assert free_parameters("kmeans", {"n_clusters": "auto", "k_range": (2, 5)}, 6) == 30
    assert free_parameters("kmodes", {"n_clusters": 2}, 6) == 12


def test_sites_with_a_tenth_as_many_rows_are_counted_and_none_is_named():
    assert not crowded(12, [120, 4000])
    assert crowded(12, [119, 121, 30]).startswith("12 free parameters")
    assert "2 of 3 sites" in crowded(12, [119, 121, 30])


@pytest.mark.parametrize(("rows", "says"), [(40, True), (160, False)])
def test_a_study_says_in_its_results_and_report_where_a_model_is_too_large(tmp_path, rows, says):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(3 * rows, 4)), columns=list("abcd")).round(3)
    table["site"] = np.repeat(["p", "q", "r"], rows)
    table["y"] = (table["a"] + rng.normal(size=len(table))).round(3)
    table.to_csv(tmp_path / "t.csv", index=False)
    columns = {c: {"type": "number"} for c in "abcdy"}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"variables": columns}))
    study = {
        "study": "own",
        "task": "regression",
        "data": {
            "source": "t.csv", "dictionary": "d.yaml", "outcome": {"y": "y"},
            "sites": {"column": "site"},
        },
        "arms": [{"method": "ridge", "penalty": 0.1}],
        "evaluate": {"repeats": 1, "draws": 5},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    fc.Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert bool(results["crowded"]) == says
    report = (tmp_path / "out" / "report.html").read_text()
    assert ("free parameters, and fewer than 10 rows" in report) == says


def crowded_cohort(rows):
    rng = np.random.default_rng(0)
    frames = {}
    for site in "pqr":
        x = rng.normal(size=(rows, 4))
        y = x[:, 0] + rng.normal(size=rows)
        frames[site] = pd.DataFrame(x, columns=list("abcd")).assign(y=y)
    return fc.simulate(frames, outcome=fc.Continuous("y"))


def test_in_python_a_fit_of_too_few_rows_is_warned_of_and_one_of_enough_is_not():
    with pytest.warns(UserWarning, match="fewer than 10 rows for each at 3 of 3 sites") as told:
        fc.fit("ridge", crowded_cohort(30), penalty=0.1)
    assert [str(w.message) for w in told] == [
        "ridge: 4 free parameters, and fewer than 10 rows for each at 3 of 3 sites: the model may "
        "hold single rows."
    ]
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.fit("ridge", crowded_cohort(60), penalty=0.1)
        fc.fit("ridge", crowded_cohort(30), penalty=0.1, strategy="isolated")


def test_sites_that_do_not_show_their_rows_are_not_judged():
    assert "1 of 2 sites" in crowded(12, [119, None, 300])
    assert not crowded(12, [None, 300])


@pytest.mark.parametrize(("hidden", "says"), [((8, 4), True), ((), False)])
def test_a_deployed_study_says_it_as_a_simulated_one_does(tmp_path, hidden, says):
    arms = f"[{{method: deepcox, name: net, rounds: 1, hidden: {list(hidden)}}}]"
    terms = terms_of(tmp_path / "terms", "gbsg2", arms, bounds="[]")
    found = run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    assert bool(found["crowded"]) == says
    if says:
        rows = [site["rows"] for site in found["scenarios"][0]["sites"]]
        saved = fc.load(tmp_path / "out" / "models" / "net")
        counted = free_parameters("deepcox", {"hidden": hidden}, len(saved.parts.design.features))
        (note,) = found["crowded"]
        assert (note["arm"], note["note"]) == ("net", crowded(counted, rows))
    assert ("free parameters" in write(tmp_path / "out").read_text()) == says
