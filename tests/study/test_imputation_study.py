"""The task `imputation`: what is hidden, errors of perfect and constant models, results."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from numpy.testing import assert_allclose

import fedcohort as fc
from algorithms.imputing_cases import VARIABLES, mixed
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import Design
from fedcohort.protocol import NotSupported
from fedcohort.study.judge.pooled.imputed import MEASURES, SHARE, Imputed
from fedcohort.study.run.engine import Problem, Run
from in_process import command

VIEWS = {"a": "lab", "b": "lab", "n": "clinic", "flag": "clinic", "stage": "clinic"}
METRICS = tuple(MEASURES)


def judge_of(n: int = 300, seed: int = 0) -> tuple[Imputed, Design, np.ndarray]:
    """Return a judge of complete blind rows, the design of a model, and their features."""
    full, _ = mixed(n, 1)
    spec = {c: {**v, "view": VIEWS[c]} for c, v in VARIABLES.items()}
    dictionary = Dictionary.from_dict({"variables": spec})
    fed = fc.simulate({"s": full}, dictionary=dictionary)
    design = fc.fit("joint_normal", fed, draws=0).parts.design
    judge = Imputed.of(Problem({"s": full}, dictionary, None, task="imputation"), full, seed)
    return judge, design, design.matrix(full)


class Knowing:
    """A model that knows the truth, up to noise with a known standard deviation."""

    def __init__(self, truth: np.ndarray, noise: float = 0.0):
        self.truth, self.noise = truth, noise

    def impute(self, x: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(x), self.truth, x)

    def impute_drawn(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if not self.noise:
            raise NotSupported("impute_drawn")
        return self.impute(x) + np.isnan(x) * self.noise * rng.standard_normal(x.shape)


def run_of(model: object, design: Design) -> Run:
    return SimpleNamespace(model=model, design=design)  # pyright: ignore[reportReturnType]


def test_a_model_that_knows_the_truth_has_no_error_and_a_constant_one_that_of_the_spread():
    judge, design, x = judge_of()
    found = judge.metrics(judge.predicted(run_of(Knowing(x), design), METRICS), METRICS)
    for metric in ("masked_rmse", "masked_mae", "masked_wrong", "masked_rmse_by_value",
                   "masked_rmse_by_view", "masked_wrong_by_view"):  # fmt: skip
        assert_allclose(found[metric], 0.0, atol=1e-9)
    assert found["masked_coverage"] is None
    least = judge.unlearnt(np.ones((1, len(judge.test))), METRICS)
    # the mean's error over 30 % of 300 rows of three columns: 1, with a standard error of 0.06
    assert abs(float(least["masked_rmse"][0]) - 1.0) < 0.2
    # all entries of a view are hidden: exactly 1
    assert_allclose(float(least["masked_rmse_by_view"][0]), 1.0)


def test_intervals_of_draws_with_the_right_spread_cover_95_of_100_and_narrow_ones_fewer():
    judge, design, x = judge_of(900)
    number = [0]  # the column that is neither rounded nor cut
    rng = np.random.default_rng(0)
    off = x.copy()
    off[:, number] += 0.5 * rng.standard_normal((len(x), 1))
    for noise, low, high in ((0.5, 0.91, 0.985), (0.1, 0.05, 0.5)):
        said = judge.predicted(run_of(Knowing(off, noise), design), ("masked_coverage",))
        inside = said["random"].inside[:, 0]
        # 270 entries: 0.95 with a standard error of 0.013
        assert low < np.nanmean(inside) < high


@pytest.mark.parametrize("seed", [0, 1])
def test_entries_are_hidden_by_rank_at_random_and_by_view(seed):
    judge, _, _ = judge_of(600, seed)
    columns = judge.columns()
    (random,), (value,) = judge.hidden("random", columns), judge.hidden("value", columns)
    assert abs(random.mean() - SHARE) < 0.03  # 3,000 entries: standard error 0.008
    a = columns[0].values
    assert abs(value[:, 0].mean() - SHARE) < 0.08
    assert a[value[:, 0]].mean() > a[~value[:, 0]].mean() + 0.3
    views = judge.hidden("view", columns)
    assert len(views) == 2 and all(m.any(axis=0).sum() in (2, 3) for m in views)


def test_rows_of_one_hospital_have_the_errors_that_they_have_among_all():
    judge, design, x = judge_of()
    rows = np.arange(300) % 3 == 0
    noisy = x + 0.3
    whole = judge.predicted(run_of(Knowing(noisy), design), ("masked_rmse",))["random"].off
    part = judge.on(rows).predicted(run_of(Knowing(noisy[rows]), design), ("masked_rmse",))
    assert_allclose(part["random"].off, whole[rows])


def test_a_column_that_a_model_lacks_counts_as_its_best_constant():
    judge, design, x = judge_of()
    fewer = Design(columns=design.columns[1:], dropped={"a": "constant"}, impute="none")
    said = judge.predicted(run_of(Knowing(x[:, 1:]), fewer), ("masked_rmse",))["random"].off
    a, hole = judge.test["a"].to_numpy(), ~np.isnan(said[:, 0])
    assert_allclose(said[hole, 0], np.abs(a - a.mean())[hole] / a.std())
    assert_allclose(np.nanmax(said[:, 1:3]), 0.0, atol=1e-9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a finished study."""
    folder = tmp_path_factory.mktemp("fill")
    _, holes = mixed(160, 2, share=0.1)
    holes["site"] = [f"h{i % 2}" for i in range(160)]
    holes.to_csv(folder / "t.csv", index=False)
    spec = {c: {**v, "view": VIEWS[c]} for c, v in VARIABLES.items()}
    spec["site"] = {"type": "category", "levels": ["h0", "h1"], "feature": False}
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": spec}))
    study = {
        "study": "fill", "task": "imputation",
        "data": {"source": "t.csv", "dictionary": "d.yaml", "sites": {"column": "site"}},
        "arms": [{"method": "joint_normal", "draws": 2}],
        "bounds": ["centralised"], "evaluate": {"test_fraction": 0.4, "repeats": 1},
    }  # fmt: skip
    (folder / "s.yaml").write_text(yaml.safe_dump(study))
    code, _, error = command("run", folder / "s.yaml", "--out", folder / "out", "--workers", 1)
    assert code == 0, error
    return folder


def test_a_study_has_every_metric_errors_by_column_and_a_model_that_fills(finished):
    results = json.loads((finished / "out" / "results.json").read_text())
    (arm,) = [r for r in results["arms"] if r["arm"] == "joint_normal" and r["site"] is None]
    assert set(arm["metrics"]) >= set(METRICS)
    assert 0 < arm["metrics"]["masked_rmse"] < 1.1
    rows = [r for r in results["imputation_errors"] if r["arm"] == "joint_normal"]
    assert {r["hidden"] for r in rows} == {"random", "value", "view"}
    assert {r["column"] for r in rows} == set(VARIABLES)
    for r in rows:
        assert r["measure"] == ("wrong" if r["column"] in ("flag", "stage") else "rmse")
    page = (finished / "out" / "report.html").read_text()
    assert "How far off is an imputed value?" in page and "best constant" in page
    card = (finished / "out" / "models" / "joint_normal" / "card.md").read_text()
    assert "fedcohort impute models/joint_normal" in card
    code, text, _ = command("impute", finished / "out", finished / "t.csv")
    assert code == 0 and ",," not in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"tune": {"by": "row-kfold", "grid": {"draws": [2, 3]}}},
            "no score to choose settings by",
        ),
        ({"arms": [{"method": "kmeans"}]}, "'kmeans' serves"),
    ],
)
def test_what_a_study_of_imputation_cannot_ask_is_refused_with_its_line(finished, change, told):
    study = yaml.safe_load((finished / "s.yaml").read_text()) | change
    (finished / "other.yaml").write_text(yaml.safe_dump(study))
    code, _, error = command("run", finished / "other.yaml", "--out", finished / "other")
    assert code == 2 and told in error and len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("arm", [False, True])
def test_a_preprocessing_that_fills_before_the_arms_is_refused_with_its_line(tmp_path, arm):
    """Arms would see no missing value, and each column would be filled by its median."""
    own = {"impute": "median"}
    study = {
        "study": "s", "task": "imputation",
        "data": {"source": "sample:diabetes", "sites": {"split": "iid", "n": 3}},
        "arms": [{"method": "joint_normal", **(own if arm else {})}],
        **({} if arm else {"preprocess": own}),
    }  # fmt: skip
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(study))
    with pytest.raises(fc.FedcohortError, match="'median' fills the missing values before arm"):
        fc.Study.from_file(path)
