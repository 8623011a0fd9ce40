"""Studies end with a model of all rows: what is told of it, and what of the judged fits."""

from __future__ import annotations

import json
from pathlib import Path

import lifelines
import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.apps.predictions import predict
from fedcohort.protocol import DataError, StudyError
from fedcohort.report import page
from fedcohort.report.run import read
from fedcohort.report.sections.headline import caveats
from fedcohort.report.verdict import leading
from fedcohort.study.file import plan as plans
from fedcohort.study.file import yamlfile
from fedcohort.study.run import local_fits
from fedcohort.study.run.pieces import JUDGED

STUDY = """
study: s
task: survival
data:
  source: t.csv
  dictionary: d.yaml
  sites: {column: site}
arms: [{method: cox, time_grid: exact}]
bounds: [isolated, centralised]
evaluate: {repeats: 2, draws: 50}
"""
DICTIONARY = """
age: {type: integer, unit: years, per: 10, usual: [20, 100]}
marker: {type: number, unit: g/l, usual: [0, 20]}
sex: {type: category, levels: [f, m]}
time: {type: time, unit: days, usual: [0, 4000]}
event: event
"""


def table(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    age, marker = rng.integers(40, 80, n), rng.gamma(2, 3, n).round(2)
    risk = 0.03 * (age - 60) + 0.25 * (marker - 6)
    time = np.ceil(rng.exponential(1500 * np.exp(-risk))).clip(1, 3650)
    event = (time < 3650) & (rng.random(n) < 0.8)
    return pd.DataFrame(
        {"site": rng.choice(list("abc"), n), "age": age, "marker": marker,
         "sex": rng.choice(["f", "m"], n), "time": time.astype(int), "event": event.astype(int)}
    )  # fmt: skip


def study(folder: Path, text: str = STUDY, frame: pd.DataFrame | None = None) -> fc.Study:
    folder.mkdir(exist_ok=True)
    (folder / "s.yaml").write_text(text)
    (folder / "d.yaml").write_text(DICTIONARY)
    (table() if frame is None else frame).to_csv(folder / "t.csv", index=False)
    return fc.Study.from_file(folder / "s.yaml")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("final")
    text = STUDY.replace("repeats: 2,", "repeats: 2, horizon: 2 years,")
    study(folder, text).run(folder / "out")
    return folder / "out", json.loads((folder / "out" / "results.json").read_text())


@pytest.fixture(scope="module")
def cox():
    frame = table().drop(columns="site")
    frame["sex"] = (frame.sex == "m").astype(float)
    model = lifelines.CoxPHFitter().fit(frame, "time", "event")
    return model.summary.loc[["age", "marker", "sex"]]


def test_the_final_coefficients_are_those_of_lifelines_on_all_rows(done, cox):
    """The exact grid joins no times, but rounds; lifelines has Efron's ties as we do."""
    finals = {f["arm"]: f for f in done[1]["final"]}
    assert set(finals) == {"cox", "centralised"}
    for final in finals.values():
        assert final["status"] == "done"
        mine = {c["covariate"]: c for c in final["coefficients"]}
        for name, theirs in zip(("age", "marker", "sex=m"), cox.itertuples(), strict=True):
            np.testing.assert_allclose(mine[name]["coefficient"], theirs.coef, rtol=1e-4)
            np.testing.assert_allclose(mine[name]["standard_error"], theirs[3], rtol=1e-3)
    repeats = [c for c in done[1]["coefficients"] if c["arm"] == "cox" and c["covariate"] == "age"]
    assert [c["repeat"] for c in repeats] == [0, 1]
    assert all(c["coefficient"] != finals["cox"]["coefficients"][0]["coefficient"] for c in repeats)


def test_the_kept_model_is_the_final_one_and_the_judged_one_stands_beside_it(done):
    out, found = done
    kept = fc.load(out / "models" / "cox")
    assert (kept.parts.notes["trained_on"], kept.parts.notes["final"]) == ("all rows", True)
    assert kept.model.rows == len(table())
    judged = fc.load(out / "models" / "cox" / JUDGED)
    assert judged.parts.notes["repeat"] == 0
    assert judged.model.rows < len(table())
    final = {c["covariate"]: c["coefficient"] for c in found["final"][0]["coefficients"]}
    assert final == dict(zip(kept.model.features, kept.model.coefficients.tolist(), strict=True))
    card = (out / "models" / "cox" / "card.md").read_text()
    assert f"all {len(table())} rows" in card
    assert "no figure below is of rows that the judged fit has seen" in card
    with pytest.raises(DataError, match=r"models/cox, the model there"):
        fc.load(out)


def test_the_report_has_the_final_effects_for_steps_that_the_dictionary_asks_for(done, cox):
    html = page.render(read(done[0]))
    assert "final fit, to all rows" in html
    assert "Performance is never of these" in html
    age = np.exp(10 * cox.loc["age", "coef"])
    low, high = (np.exp(10 * cox.loc["age", f"coef {e} 95%"]) for e in ("lower", "upper"))
    assert f"age, per 10 years: hazard ratio {age:.2f} ({low:.2f}–{high:.2f})" in html
    assert "marker, per 5 g/l: hazard ratio" in html  # sd 4.4
    assert "The models that are kept, and their coefficients, were fitted to all rows" in html


def test_risks_are_told_for_the_horizon_in_predictions_calibration_and_auc(done, tmp_path):
    out, found = done
    table().head(9).to_csv(tmp_path / "t.csv", index=False)
    said = predict(out / "models" / "cox", str(tmp_path / "t.csv")).table
    kept = fc.load(out / "models" / "cox")
    alive = kept.predict_survival(table().head(9), [730.5])[:, 0]
    np.testing.assert_allclose(said["risk by 2 years"], 1 - alive)
    assert "median survival time (days)" in said
    assert {c["time"] for c in found["calibration"]} == {730.5}
    aucs = [r for r in found["over_time"] if (r["metric"], r["time"]) == ("auc", 730.5)]
    assert {r["arm"] for r in aucs} == {"cox", "centralised"}
    html = page.render(read(out))
    assert "predicted survival at 2 years." in html
    assert "AUC at 2 years, blind patients" in html
    assert "time since start, years" in html and "time since start, days" not in html


def test_two_runs_tell_arms_apart_by_draws_of_the_patients(done):
    rows = [c for c in done[1]["comparisons"] if c["metric"] == "c_index"]
    assert {c["by"] for c in rows} == {"patients"}
    against = {(c["arm"], c["against"]): c for c in rows}
    row = against["cox", "isolated"]
    means = {s["arm"]: s["mean"] for s in done[1]["summary"] if s["metric"] == "c_index"}
    np.testing.assert_allclose(row["difference"], means["cox"] - means["isolated"])
    assert row["low"] < row["difference"] < row["high"]
    html = page.render(read(done[0]))
    assert "too few runs" not in html


def test_tuned_settings_of_the_first_repeat_are_those_of_the_final_fit(tmp_path):
    text = STUDY.replace("time_grid: exact", "scale: standard").replace("bounds:", "#")
    text += "tune: {by: row-kfold, grid: {l2: [0.5, 0.0]}, each_repeat: true}\n"
    study(tmp_path, text).run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    chosen = next(t["chosen"]["l2"] for t in found["tuning"] if t["repeat"] == 0)
    (final,) = found["final"]
    frames = {s: f.drop(columns="site") for s, f in table().groupby("site")}
    fed = fc.simulate(frames, dictionary=tmp_path / "d.yaml")
    fit = fc.fit("cox", fed, scale="standard", l2=chosen)
    np.testing.assert_allclose(
        [c["coefficient"] for c in final["coefficients"]], fit.model.coefficients, rtol=1e-9
    )
    penalised = {c.get("shrunken") for c in final["coefficients"]}
    assert penalised == ({f"l2 {chosen:g}"} if chosen else {None})


def test_an_arm_of_which_every_fit_failed_is_not_said_to_have_the_first_repeats_model(tmp_path):
    arms = "[{method: cox, time_grid: exact}, {method: personal, name: p, rounds: 1}]"
    text = STUDY.replace("[{method: cox, time_grid: exact}]", arms)
    run = study(tmp_path, text).run(tmp_path / "out")
    assert {f["arm"]: f["status"][:6] for f in run.content["final"]}["p"] == "failed"
    page_of = read(tmp_path / "out")
    said = " ".join(caveats(page_of, leading(page_of)))
    assert "fits of “p” failed: setting 'user' is not given" in said
    assert "those of the first repeat" not in said


def test_the_card_of_a_final_model_says_where_no_fit_could_be_judged(tmp_path, monkeypatch):
    def refuse(*_):
        raise DataError("nothing to judge by")

    monkeypatch.setattr(local_fits.LocalFits, "_fit", refuse)
    run = study(tmp_path, STUDY).run(tmp_path / "out")
    assert [f["status"] for f in run.content["final"]] == ["done", "done"]
    card = (tmp_path / "out" / "models" / "cox" / "card.md").read_text()
    assert "240 rows" in card
    assert "was not measured: no fit could be judged" in card


def test_final_false_leaves_the_first_repeats_model(tmp_path):
    study(tmp_path, STUDY + "final: false\n").run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert "final" not in found
    kept = fc.load(tmp_path / "out" / "models" / "cox")
    assert kept.parts.notes["trained_on"] == "75% of the rows"
    assert not (tmp_path / "out" / "models" / "cox" / JUDGED).exists()
    assert "first repeat" in (tmp_path / "out" / "models" / "cox" / "card.md").read_text()


def test_a_private_study_has_a_final_fit_where_it_is_asked_for_and_its_epsilon_counts(tmp_path):
    text = STUDY.replace("method: cox, time_grid: exact", "method: deepcox, rounds: 2")
    text = text.replace("bounds: [isolated, centralised]", "preprocess: {impute: mean}")
    text = text.replace("repeats: 2", "repeats: 1")
    text += "privacy: {dp: {epsilon: 5, delta: 1.0e-3}}\n"
    assert not study(tmp_path, text).plan.final
    study(tmp_path, text + "final: true\n").run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    (final,) = found["final"]
    fits = [a["epsilon"] for a in found["arms"] if a["epsilon"]]
    assert final["epsilon"] == fits[0] > 0
    rows = page.render(read(tmp_path / "out"))
    assert f"All fits with noise together are within ε {2 * fits[0]:.3g}" in rows
    noise = fc.load(tmp_path / "out" / "models" / "deepcox").parts.notes["privacy"]
    assert noise["epsilon"] == 5


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("final: maybe\n", "expected true or false"),
        ("evaluate: {horizon: 0}\n", "expected a time above 0"),
        ("evaluate: {horizon: 2 parsecs}\n", "such as 2 years"),
        ("evaluate: {horizn: 2 years}\n", "horizon"),
        ("fina: true\n", "final"),
    ],
)
def test_what_cannot_be_a_final_fit_or_a_horizon_is_an_error_of_the_file(tmp_path, more, said):
    text = STUDY.replace("evaluate:", "#") if more.startswith("evaluate") else STUDY
    with pytest.raises(StudyError, match=said):
        study(tmp_path, text + more)


@pytest.mark.parametrize(
    ("task", "key", "said"),
    [
        ("clustering", "final: true", "keeps the first repeat's model"),
        ("regression", "evaluate: {horizon: 2 years}", "a horizon is for survival"),
    ],
)
def test_other_tasks_say_why_they_have_none(tmp_path, task, key, said):
    method = {"clustering": "kmeans", "regression": "ridge"}[task]
    (tmp_path / "s.yaml").write_text(
        f"study: s\ntask: {task}\ndata: {{source: t.csv, outcome: {{y: age}}, sites: "
        f"{{column: site}}}}\narms: [{{method: {method}}}]\n{key}\n"
    )
    with pytest.raises(StudyError, match=said):
        plans.check(yamlfile.read(tmp_path / "s.yaml"), tmp_path)


@pytest.mark.parametrize(
    ("horizon", "said"), [("30 years", "nobody was followed beyond it"), ("4000", "beyond it")]
)
def test_a_horizon_that_nobody_was_followed_to_is_refused(tmp_path, horizon, said):
    text = STUDY.replace("repeats: 2,", f"repeats: 2, horizon: {horizon},")
    with pytest.raises(DataError, match=said):
        study(tmp_path, text).run(tmp_path / "out")


def test_a_horizon_that_fewer_than_min_cell_were_followed_beyond_is_refused(tmp_path):
    """It was accepted, and `predict` had an empty column: a curve ends where five are left."""
    frame = table()
    frame["time"] = frame.time.clip(upper=3000)
    frame.loc[:4, "time"] = [3001, 3002, 3003, 3004, 3005]
    for horizon, fine in ((3001, False), (2600, True)):
        folder = tmp_path / str(horizon)
        text = STUDY.replace("repeats: 2,", f"repeats: 1, horizon: {horizon},")
        if not fine:
            with pytest.raises(DataError, match=r"fewer than 5 rows .* followed beyond it"):
                study(folder, text, frame).run(folder / "out")
            continue
        study(folder, text, frame).run(folder / "out")
        told = json.loads((folder / "out" / "results.json").read_text())
        assert told["final"][0]["unknown_at_horizon"] == []


def test_a_horizon_that_only_the_grid_does_not_reach_is_told_by_the_report(tmp_path):
    """Five are followed beyond it, and the last interval of the default grid begins before it."""
    frame = table()
    frame["time"] = frame.time.clip(upper=2000)
    frame.loc[:4, "time"] = [3100, 3200, 3300, 3400, 3500]
    text = STUDY.replace("repeats: 2,", "repeats: 1, horizon: 3099,").replace("exact", "protected")
    study(tmp_path, text, frame).run(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    (row,) = told["final"][0]["unknown_at_horizon"]
    model = fc.load(tmp_path / "out" / "models" / "cox").model
    assert row == {"known_until": pytest.approx(model.known_until(np.zeros((1, 3)))[0]),
                   "stratum": None}  # fmt: skip
    assert row["known_until"] < 3099
    said = " ".join(caveats(read(tmp_path / "out"), None))
    assert "its risk by 3099 stays empty" in said


def test_a_horizon_with_a_unit_needs_one_of_the_time(tmp_path):
    text = STUDY.replace("repeats: 2,", "repeats: 2, horizon: 18 months,")
    (tmp_path / "s.yaml").write_text(text)
    (tmp_path / "d.yaml").write_text(DICTIONARY.replace("type: time, unit: days", "type: time"))
    table().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="no unit for the time 'time'"):
        fc.Study.from_file(tmp_path / "s.yaml").run(tmp_path / "out")
