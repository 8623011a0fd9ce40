"""A model file that XGBoost saved predicts a table as XGBoost does, or is refused in one line."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from numpy.testing import assert_allclose

import fedcohort as fc
from command_line import COMMAND
from fedcohort.apps.predictions import predict

OBJECTIVES = {
    "binary:logistic": "probability", "multi:softprob": "class", "reg:squarederror": "value",
    "count:poisson": "value", "survival:cox": "risk", "survival:aft": "risk",
}  # fmt: skip


def trained(objective, folder):
    """Return a booster, the name of its file, and a table, whose columns stand in another order."""
    rng = np.random.default_rng(3)
    x = pd.DataFrame(rng.normal(size=(80, 3)).round(3), columns=["age", "time", "size of node"])
    x = x.mask(rng.random(x.shape) < 0.1)
    label = rng.integers(0, 3 if objective == "multi:softprob" else 2, 80).astype(float)
    more = {"num_class": 3} if objective == "multi:softprob" else {}
    data = xgb.DMatrix(x, label=label)
    if objective.startswith("survival:"):
        label = rng.exponential(100.0, 80)
        data.set_info(label=label, label_lower_bound=label, label_upper_bound=label)
        more = {"aft_loss_distribution": "logistic", "aft_loss_distribution_scale": 0.7}
        more = more if objective == "survival:aft" else {}
    booster = xgb.train({"objective": objective, "max_depth": 3, **more}, data, 5)
    file = folder / "theirs.json"
    booster.save_model(file)
    table = folder / "t.csv"
    x.iloc[:, ::-1].assign(other="text").to_csv(table, index=False)
    return booster.predict(xgb.DMatrix(x)), file, table


@pytest.mark.parametrize(("objective", "column"), OBJECTIVES.items())
def test_a_table_is_predicted_as_by_xgboost(objective, column, tmp_path):
    theirs, file, table = trained(objective, tmp_path)
    found = predict(file, str(table)).table
    if objective == "multi:softprob":
        ours = found[[f"probability of {k}" for k in range(3)]].to_numpy()
        assert found["class"].astype(int).tolist() == theirs.argmax(axis=1).tolist()
    else:
        ours = found[column].to_numpy()
    if objective == "survival:cox":
        ours = np.exp(ours)
    if objective == "survival:aft":
        assert_allclose(found["median survival time"], theirs, rtol=1e-5)  # of a symmetric error
        ours = np.exp(-ours)
    assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_cell_that_is_no_number_and_a_column_that_lacks_are_named(tmp_path):
    _, file, table = trained("binary:logistic", tmp_path)
    frame = pd.read_csv(table).astype(object)
    frame.loc[1, "age"] = "ancient"
    frame.to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(fc.FedcohortError, match=r"column 'age' .* row 2") as told:
        predict(file, str(tmp_path / "text.csv"))
    assert "ancient" not in str(told.value)
    frame.drop(columns="age").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(fc.FedcohortError, match="no column 'age'"):
        predict(file, str(tmp_path / "less.csv"))


def refused(file, table):
    with pytest.raises(fc.FedcohortError) as told:
        predict(file, str(table))
    said = str(told.value)
    assert "\n" not in said
    return said


def test_files_that_are_not_read_are_refused_in_one_line(tmp_path):
    _, file, table = trained("reg:squarederror", tmp_path)
    whole = json.loads(file.read_text())

    def changed(**change):
        other = tmp_path / "other.json"
        other.write_text(json.dumps({**whole, **change}))
        return refused(other, table)

    assert "saved by XGBoost 1.7.6" in changed(version=[1, 7, 6])
    learner = {**whole["learner"], "objective": {"name": "rank:ndcg"}}
    assert "the objective 'rank:ndcg'" in changed(learner=learner)
    assert "no XGBoost model" in changed(learner=None)
    (tmp_path / "theirs.ubj").write_bytes(b"{L\x00\x00")
    assert "not JSON" in refused(tmp_path / "theirs.ubj", table)
    x = pd.DataFrame({"kind": pd.Categorical(list("abcd") * 20)})
    data = xgb.DMatrix(x, label=np.tile([0.0, 3.0, 1.0, 9.0], 20), enable_categorical=True)
    xgb.train({"max_cat_to_onehot": 1}, data, 2).save_model(tmp_path / "levels.json")
    assert "categorical splits" in refused(tmp_path / "levels.json", table)


def test_a_file_in_a_models_folder_is_answered_with_the_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "xgboost.json").write_text("{}")
    assert "Give the folder of a saved model" in refused(tmp_path / "xgboost.json", "t.csv")


def test_the_command_takes_the_file(tmp_path):
    theirs, file, table = trained("binary:logistic", tmp_path)
    ran = subprocess.run(
        [*COMMAND, "predict", str(file), str(table)], capture_output=True, text=True, check=True
    )
    lines = ran.stdout.splitlines()
    assert lines[0] == "row,probability"
    assert_allclose([float(line.split(",")[1]) for line in lines[1:]], theirs, rtol=1e-5)
