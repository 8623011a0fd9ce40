"""A study of latent coordinates, from file to report; its outcome judges, and no fit sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.apps.predictions import predict
from fedcohort.data.outcome import Binary, Continuous, Survival
from fedcohort.data.read import sources
from fedcohort.protocol import StudyError
from fedcohort.report import metric_texts
from fedcohort.study.judge.shown.latent_rows import KEYS
from fedcohort.study.kinds import LATENT

STUDY = """\
study: views
task: latent
data:
  source: sample:multiview
  outcome: {outcome}
  sites: {{split: views, n: 3}}
arms:
  - {{method: multiview_ppca, q: 2, rounds: 2, draws: 10}}
  - {{method: vae, q: 2, rounds: 1, internal_epochs: 3}}
  - {{method: mcvae, q: 2, rounds: 1, internal_epochs: 3}}
bounds: [isolated, centralised]
evaluate: {{repeats: 1, draws: 5}}
"""
GROUP = "{y: group}"
ARMS = ["isolated", "multiview_ppca", "vae", "mcvae", "centralised"]
INTERNAL = tuple(LATENT.metrics)[:3]
USUAL = [m for m, needs in LATENT.metrics.items() if not needs.asked]


def study(folder: Path, outcome: str = GROUP, more: str = "") -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(outcome=outcome) + more)
    return path


def sample() -> pd.DataFrame:
    return sources.load("sample:multiview", Path()).frames.copy()


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> fc.Results:
    folder = tmp_path_factory.mktemp("views")
    return fc.Study.from_file(study(folder)).run(folder / "out", debug=True)


def test_every_arm_and_bound_has_every_metric_and_its_draws(done):
    assert not done.failures
    found = done.summary.set_index(["metric", "arm"])
    assert set(found.index) == {(m, a) for m in USUAL for a in ARMS}
    assert found[["mean", "low", "high"]].notna().all(axis=None)
    assert (found["low"] <= found["high"]).all()
    assert list(dict.fromkeys(done.summary["metric"])) == USUAL


def test_hospitals_that_lack_views_tell_less_alone_than_together(done):
    found = done.summary.set_index(["metric", "arm"])["mean"]
    for metric in INTERNAL:
        assert found[metric, "multiview_ppca"] < found[metric, "isolated"]
    rows = done.metrics.query("arm == 'isolated'")
    assert set(rows["site"].dropna()) == {"site-1", "site-2", "site-3"}


def test_lists_of_latent_coordinates_are_in_results_json(done):
    arms = {key: {row["arm"] for row in done.content[key]} for key in KEYS}
    models = {"multiview_ppca", "centralised"}
    assert arms == {
        "latent_views": models, "latent_numbers": models, "latent_sites": set(),
        **dict.fromkeys(("latent_errors", "latent_filled", "latent_map"), {*ARMS} - {"isolated"}),
    }  # fmt: skip
    history = pd.read_csv(done.folder / "history.csv")
    names = set(history.loc[history["arm"] == "multiview_ppca", "name"])
    assert {f"{n}_{k}" for n in ("sd_mu", "sd_w", "sigma") for k in (1, 2, 3)} <= names


def test_no_value_of_a_row_is_in_the_results(done):
    told = json.dumps(done.content)
    for value in sample().filter(like="v1").iloc[:50].to_numpy().ravel():
        assert str(value) not in told


def test_the_report_and_the_card_say_what_judges(done):
    page = done.report().read_text()
    assert len(page) > 10_000
    assert "TRIPOD+AI checklist" not in page
    assert "What judges the latent coordinates" in page
    card = (done.folder / "models" / "vae" / "card.md").read_text()
    assert "group (judges the latent coordinates; no fit has seen it)" in card
    assert "point of the latent space" in card
    assert all(
        metric_texts.metric(m).plain for m in (*tuple(LATENT.metrics), "reconstruction_mae_own")
    )


def test_a_saved_model_gives_latent_points_of_a_table_without_a_view(done, tmp_path):
    model = done.folder / "models" / "multiview_ppca"
    frame = sample().drop(columns=["group"]).filter(regex="v[13]_")
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = predict(model, str(tmp_path / "t.csv")).table
    assert list(told) == ["row", "latent 1", "latent 2"]
    assert_allclose(told[["latent 1", "latent 2"]], fc.load(model).transform(frame), rtol=1e-5)


def test_the_sites_own_models_are_in_the_table_of_metrics(done):
    text = (done.folder / "metrics.csv").read_text()
    assert text.startswith("arm,scenario,repeat,site,metric,value\nisolated,views,0,site-1,")


# the outcome ------------------------------------------------------------------------------


def test_fits_and_their_own_metrics_are_the_same_whatever_the_outcome_is(done, tmp_path):
    frame = sample()
    frame["group"] = frame["group"].to_numpy()[np.random.default_rng(3).permutation(len(frame))]
    dictionary = sources.load("sample:multiview", Path()).dictionary
    (tmp_path / "d.yaml").write_text(dictionary.to_json())
    path = study(tmp_path)
    path.write_text(path.read_text().replace("  outcome", "  dictionary: d.yaml\n  outcome"))
    other = fc.Study.from_file(path, data=frame).run(tmp_path / "out", debug=True)
    inner = [f.metrics[f.metrics["metric"].isin(INTERNAL)] for f in (done, other)]
    assert inner[0].equals(inner[1])
    assert done.content["latent_views"] == other.content["latent_views"]
    told = [f.summary.query("metric == 'latent_accuracy'")["mean"] for f in (done, other)]
    assert (told[1] < told[0]).all()


@pytest.mark.parametrize("outcome", [Binary("v1_03"), Survival("v1_01", "v1_02"), Continuous("b")])
def test_fit_learns_with_an_outcome_as_without_its_columns(outcome):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 5)), columns=["v1_01", "v1_02", "v1_03", "a", "b"])
    frame["v1_01"] = rng.exponential(size=90) + 0.1
    frame["v1_02"], frame["v1_03"] = rng.integers(0, 2, (2, 90))
    settings = {"q": 1, "draws": 0, "rounds": 2}
    found = []
    for part, aside in ((frame, outcome), (frame.drop(columns=list(outcome.columns)), None)):
        fed = fc.simulate({"a": part[:45], "b": part[45:]}, outcome=aside)
        found.append(fc.fit("multiview_ppca", fed, **settings))
    assert found[0].model.features == found[1].model.features
    assert_allclose(found[0].model.prior.w, found[1].model.prior.w)


def test_a_survival_outcome_is_left_aside_and_nothing_is_judged_by_it(tmp_path):
    text = STUDY.format(outcome="{time: time, event: cens}").replace("multiview\n", "gbsg2\n")
    text = text.replace("split: views", "split: iid")
    (tmp_path / "study.yaml").write_text(text)
    made = fc.Study.from_file(tmp_path / "study.yaml")
    assert made.plan.metrics == INTERNAL
    names = {v.name for v in made.table.dictionary.features(made.table.outcome)}
    assert not {"time", "cens"} & names
    (tmp_path / "study.yaml").write_text(text.replace("{time: time, event: cens}", "null"))
    unnamed = fc.Study.from_file(tmp_path / "study.yaml")
    assert {v.name for v in unnamed.table.dictionary.features(None)} == names


# what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "more", "said"),
    [
        (GROUP, "tune: {score: silhouette, grid: {q: [2, 3]}}\n", "'silhouette' is not possible"),
        ("{y: v1_01, type: count}", "", "'count' is not possible"),
        ("null", "  metrics: [latent_auc]\n", "latent_auc"),
        (GROUP, "  metrics: [auc]\n", "'auc' is not possible in a study of latent"),
    ],
    ids=["tuning", "a number", "no outcome", "another task's metric"],
)
def test_what_latent_coordinates_cannot_do_is_said_in_one_line(tmp_path, outcome, more, said):
    path = study(tmp_path, outcome, more)
    if more.startswith("  "):
        text = path.read_text().replace("draws: 5}\n" + more, "draws: 5,\n" + more[:-1] + "}\n")
        path.write_text(text)
    with pytest.raises(StudyError) as told:
        fc.Study.from_file(path)
    assert "\n" not in str(told.value)
    assert said in str(told.value)


def test_a_method_that_does_not_rebuild_rows_is_no_arm(tmp_path):
    path = study(tmp_path)
    path.write_text(path.read_text().replace("method: vae", "method: kmeans"))
    with pytest.raises(StudyError, match="serves clustering, not latent"):
        fc.Study.from_file(path)


def test_a_private_study_judges_by_no_classes(tmp_path):
    text = STUDY.format(outcome=GROUP).replace("views, n: 3", "iid, n: 3")
    text = text[: text.index("  - {method: vae")] + text[text.index("bounds") :]
    text = text.replace("draws: 10}", "noise: column}")
    path = tmp_path / "study.yaml"
    path.write_text(text + "privacy: {dp: {epsilon: 10, delta: 1.0e-3}}\n")
    assert fc.Study.from_file(path).plan.metrics == INTERNAL
