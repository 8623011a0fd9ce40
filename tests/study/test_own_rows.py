"""Rows of the coordinator: nobody's training or test rows, and only for fits that can use them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from lifelines.utils import concordance_index

import fedcohort as fc
from deployed_cases import frames_of, results_of, run_local, tables_of
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import network
from fedcohort.models.objectives import loss_of
from fedcohort.protocol import registry
from fedcohort.report import history
from fedcohort.report.run import read
from fedcohort.report.sections import validation
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.evaluate import judge_of
from fedcohort.study.run.engine import fit_once
from fedcohort.study.run.runner import run_over
from fedcohort.study.sites.layout import lay_out, seed_of
from fedcohort.study.sites.own_rows import OwnFrames
from fedcohort.study.sites.sites import LocalSites
from fedcohort.training.rows import Rows, tensor

STUDY = """\
study: own
task: survival
data: {source: "sample:gbsg2", sites: {split: iid, n: 3}}
coordinator_data: {fraction: 0.1, validation: 0.4}
scenarios: [iid, {name: drifting, split: overlap, group: tgrade, k: 1}]
arms:
  - {method: deepcox, name: stopped, strategy: fedavg, rounds: 8, patience: 2, hidden: []}
  - {method: deepcox, name: halted, rounds: 6, monitor: validation, halt: true, alarm: 1.1}
bounds: [isolated, centralised]
evaluate: {repeats: 1, draws: 2, metrics: [c_index]}
"""


def study_of(folder, change=lambda text: text):
    (folder / "s.yaml").write_text(change(STUDY))
    return fc.Study.from_file(folder / "s.yaml")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_of(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def out(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran") / "out"
    study.run(folder)
    return folder


def every(frames):
    return pd.concat(frames, ignore_index=True)


def test_the_coordinators_rows_are_test_or_training_rows_in_no_repeat_of_any_scenario(study):
    own = study.table.own
    mine = every([own.first, own.validation])
    assert (len(mine), len(own.validation)) == (68, 27)
    assert abs(mine["cens"].mean() - 299 / 686) < 0.02  # in proportion from deaths
    assert abs(own.validation["cens"].mean() - 299 / 686) < 0.04
    for repeat in (0, 1):
        for scenario in study.plan.scenarios:
            laid = lay_out(study.plan, study.table, scenario, repeat)
            rest = every([*laid.problem.frames.values(), laid.test])
            assert len(rest) + len(mine) == 686
            assert not rest.merge(mine, how="inner").shape[0]
    again = study_of(study.plan.base).table.own
    pd.testing.assert_frame_equal(again.first, own.first)
    other = study_of(study.plan.base, lambda t: t + "seed: 1\n").table.own
    assert not other.first.equals(own.first)


def test_natural_sites_give_in_proportion(tmp_path):
    frame = pd.DataFrame(
        {"x": np.arange(300.0), "y": np.arange(300.0) % 7, "h": ["a", "b", "b"] * 100}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.yaml").write_text(
        "study: n\ntask: regression\ndata: {source: t.csv, outcome: {y: y}, sites: {column: h}}\n"
        "coordinator_data: {fraction: 0.1}\narms: [{method: deepcox}]\n"
    )
    with pytest.raises(fc.StudyError, match="deepcox"):  # of survival alone
        fc.Study.from_file(tmp_path / "s.yaml")
    from fedcohort.data.outcome import Continuous
    from fedcohort.study.sites.own_rows import taken

    mask = taken(frame, frame["h"].to_numpy(), Continuous("y"), 0.1, 0)
    assert abs(mask[frame["h"] == "a"].sum() - 10) <= 1
    assert abs(mask[frame["h"] == "b"].sum() - 20) <= 1


def test_the_flow_says_how_many_and_the_screen_does_not_call_them_excluded(out):
    flow = json.loads((out / "results.json").read_text())["cohort"]["flow"]
    stages = {s["stage"]: s["rows"] for s in flow if s["site"] is None}
    first = {k: stages[k] for k in list(stages)[:3]}
    assert first == {"read": 686, "excluded: coordinator's own": 68, "analysed": 618}


def test_pooled_rows_have_those_of_the_first_model_and_a_site_alone_has_none(study):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    pooled = laid.problem.pooled()
    assert len(pooled.frames["pooled"]) == 41 + sum(map(len, laid.problem.frames.values()))
    assert pooled.own is study.table.own  # it starts from the same first model
    site, frame = next(iter(laid.problem.frames.items()))
    assert laid.problem.on({site: frame}).own is None


def cox_loss(risk, time, event):
    """−ℓ/n by Breslow's partial likelihood, written out."""
    total = sum(
        risk[i] - np.log(np.exp(risk[time >= time[i]]).sum()) for i in np.flatnonzero(event)
    )
    return -total / len(time)


def test_the_kept_round_is_the_best_on_the_coordinators_validation_rows(study):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    method, own = registry.find("deepcox"), laid.problem.own
    settings = {"rounds": 30, "patience": 3, "hidden": (), "learning_rate": 0.2}
    run = fit_once(laid.problem, method, settings, dict(method.preprocess), 5)
    held = [row["held_out_loss"] for row in run.history]
    rows: SurvivalTable = run.design(own.validation)
    risk = run.model.predict(rows.x)
    assert cox_loss(risk, rows.time, rows.event) == pytest.approx(min(held), rel=1e-6)
    assert len(held) == int(np.argmin(held)) + 1 + 3 or len(held) == 30
    # Sites are asked for no held-out rows: risk sets are summed for the baseline alone.
    asked = [json.loads(line) for line in run.ledger.lines]
    assert sum(line["step"] == "sum_risks" for line in asked) == 3


def test_r_is_of_each_sites_model_on_the_validation_rows_and_a_halted_fit_has_each_sites_model(
    study,
):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[1], 0)
    method = registry.find("deepcox")
    settings = {"rounds": 6, "hidden": (), "monitor": "validation", "halt": True, "alarm": 1.01}
    run = fit_once(laid.problem, method, settings, dict(method.preprocess), 5)
    last = run.history[-1]
    assert last["halted"] == 1.0 and last["R_models"] > 1.01
    rows: SurvivalTable = run.design(laid.problem.own.validation)
    assert run.model.thetas.shape == (3, rows.x.shape[1])
    losses = [cox_loss(rows.x @ theta, rows.time, rows.event) for theta in run.model.thetas]
    told = [last[f"validation_loss {s}"] for s in sorted(laid.problem.frames)]
    assert losses == pytest.approx(told, rel=1e-6)
    assert len(set(told)) == 3
    counts = np.array([len(frame) for _, frame in sorted(laid.problem.frames.items())])
    assert run.model.weights == pytest.approx(counts / counts.sum())
    # The coordinator saw each site's model in each round.
    asked = [json.loads(line) for line in run.ledger.lines]
    assert sum(line["step"] == "visit" for line in asked) == 6 * 3


def test_a_personal_layer_begins_at_the_alarm_of_the_sites_models(study):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[1], 0)
    method = registry.find("deepcox")
    settings = {
        "rounds": 6, "hidden": (4,), "monitor": "validation", "alarm": 1.01, "personal": "fedper",
        "user": "site-1",
    }  # fmt: skip
    run = fit_once(laid.problem, method, settings, dict(method.preprocess), 5)
    alarm = next(r["round"] for r in run.history if r.get("R_models", 0) > 1.01)
    assert all("R_models" not in r for r in run.history if r["round"] > alarm)
    steps = [json.loads(line)["step"] for line in run.ledger.lines]
    assert steps.count("visit") == (alarm + 1) * 3 and "train_with_own" in steps


def test_an_autoencoder_stops_by_the_coordinators_rows_and_asks_sites_for_none_held_out(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "study: v\ntask: latent\ndata: {source: 'sample:multiview', outcome: {y: group}, sites: "
        "{split: iid, n: 3}}\ncoordinator_data: {fraction: 0.2}\n"
        "arms: [{method: vae, q: 1}]\nbounds: []\n"
    )
    study = fc.Study.from_file(tmp_path / "s.yaml")
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    method = registry.find("vae")
    settings = {"q": 1, "rounds": 12, "patience": 2, "learning_rate": 0.01}
    run = fit_once(laid.problem, method, settings, dict(method.preprocess), 5)
    steps = {json.loads(line)["step"] for line in run.ledger.lines}
    assert "learn" in steps and "held_out_elbo" not in steps
    held = [row["held_out_loss"] for row in run.history]
    rows = run.design(laid.problem.learnt().own.validation)
    plan = method.configure(settings).plan(run.model.views)
    net = network(plan.network, plan.dtype, plan.device)
    net.load(run.model.theta)
    value = Rows(tensor(rows.x, plan), loss_of(plan.loss, rows)).value(net)
    assert value == pytest.approx(min(held), rel=1e-9)


@pytest.mark.parametrize(
    "task", ["task: clustering", "task: latent\npreprocess: {impute: none}"], ids=["dec", "vae"]
)
def test_groups_and_latent_points_of_training_rows_are_those_of_the_sites_alone(tmp_path, task):
    arm = "vae, q: 1" if "latent" in task else "deep_clustering"
    (tmp_path / "s.yaml").write_text(
        f"study: v\n{task}\ndata: {{source: 'sample:multiview', outcome: {{y: group}}, sites: "
        f"{{split: iid, n: 3}}}}\ncoordinator_data: {{fraction: 0.2}}\n"
        f"arms: [{{method: {arm}}}]\nbounds: []\n"
    )
    study = fc.Study.from_file(tmp_path / "s.yaml")
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    there = every([laid.problem.frames[s] for s in sorted(laid.problem.frames)])
    pd.testing.assert_frame_equal(judge_of(laid.problem, laid.test, 0, None).train, there)


def clusters_of(n, seed):
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, 2, n)[:, None] * 2.0
    return pd.DataFrame(middle + rng.normal(size=(n, 4)), columns=list("abcd"))


def test_deep_clustering_starts_from_and_stops_by_the_coordinators_rows():
    fed = fc.simulate({s: clusters_of(60, i) for i, s in enumerate("xyz")})
    own = (clusters_of(40, 8), clusters_of(50, 9))
    given = {"n_clusters": 2, "architecture": (4, 2), "rounds": 30, "patience": 3,
             "learning_rate": 0.01, "cluster_rounds": 0, "dtype": "float64"}  # fmt: skip
    fit, without = (
        fc.fit("deep_clustering", fed, coordinator_data=o, **given) for o in (own, None)
    )
    assert "held_out_loss" in set(without.ledger["step"]) - set(fit.ledger["step"])
    assert fit.history["loss"].iloc[0] < 0.7 * without.history["loss"].iloc[0]
    held = fit.history["held_out_loss"].dropna()
    method = registry.find("deep_clustering")
    plan = method.configure(given).plan(4)
    net = network(plan.network, plan.dtype, plan.device)
    net.load(fit.model.theta[: net.theta.numel()])
    rows = fit.parts.design(own[1])
    value = Rows(tensor(rows.x, plan), loss_of(plan.loss, rows)).value(net)
    assert value == pytest.approx(held.min(), rel=1e-9)


def test_fit_takes_the_coordinators_rows_as_a_pair_of_tables(study):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    own, method = laid.problem.own, registry.find("deepcox")
    settings = {"rounds": 4, "hidden": (3,), "patience": 2}
    run = fit_once(laid.problem, method, settings, dict(method.preprocess), 5)
    fed = fc.simulate(
        laid.problem.frames, outcome=fc.Survival("time", "cens"),
        dictionary=laid.problem.dictionary,
    )  # fmt: skip
    pair = (own.first, own.validation)
    fit = fc.fit("deepcox", fed, seed=5, coordinator_data=pair, **settings)
    assert fit.model.thetas.tobytes() == run.model.thetas.tobytes()
    refused = [
        ({"coordinator_data": own.first}, "is no pair of tables"),
        ({"coordinator_data": (None, None)}, "is no pair of tables"),
        ({"coordinator_data": (own.first[["age"]], None)}, "coordinator_data, first model: there"),
        ({"coordinator_data": (own.first.assign(cens=0), None)}, "no event in column .cens. among"),
        ({"coordinator_data": pair, "dp": {"epsilon": 3, "delta": 1e-5}}, "this fit is private"),
    ]
    for given, said in refused:
        with pytest.raises(fc.FedcohortError, match=said):
            fc.fit("deepcox", fed, **given)
    with pytest.raises(fc.SettingError, match="'cox' cannot use rows of the coordinator"):
        fc.fit("cox", fed, coordinator_data=pair)
    with pytest.raises(fc.SettingError, match="'layerwise' begins with single layers"):
        fc.fit("deep_clustering", fed, coordinator_data=pair, pretrain="layerwise")


def test_a_model_of_the_coordinators_first_rows_alone_is_judged_on_the_same_test_rows(study, out):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    first = study.table.own.first
    told = json.loads((out / "results.json").read_text())["first_model"]
    assert [(r["metric"], r["repeat"]) for r in told] == [("c_index", 0)]
    method = registry.find("deepcox")
    given = {**study.plan.arms[1].settings, **method.settings.alone}
    problem = replace(
        laid.problem, frames={"x": first}, own=OwnFrames(None, study.table.own.validation)
    )
    run = fit_once(problem, method, given, dict(method.preprocess), seed_of(study.plan, 0))
    risk = run.model.predict(run.design.matrix(laid.test))
    found = concordance_index(laid.test["time"], -risk, laid.test["cens"])
    assert told[0]["value"] == pytest.approx(found, abs=1e-9)


OWN = "coordinator_data: {fraction: 0.1, validation: 0.4}\n"
NEEDS = "needs validation rows of the coordinator"
STRATEGY = "strategy: fedavg, rounds: 8, patience: 2"
REFUSED = [
    (STRATEGY + ", hidden: []", "l2: 0.1", "deepcox", "cox", "'cox' cannot use rows of the coord"),
    (STRATEGY, "strategy: ensemble", "", "", "strategy 'ensemble' has no common model"),
    (OWN, "", "", "", NEEDS),
    ("validation: 0.4", "validation: 0", "", "", NEEDS),
    ("fraction: 0.1,", "fraction: 0.1, source: a.csv,", "", "", "either 'fraction', or 'source'"),
    ("fraction: 0.1,", "", "", "", "either 'fraction', or 'source'"),
    ("fraction: 0.1,", "fracton: 0.1,", "", "", "'fraction'"),
    (OWN, OWN.replace("0.1", "0.003") + "privacy: {min_cell: 1}\n", "", "", "too few events"),
    ("fraction: 0.1", "fraction: 0.003", "", "", r"no fewer than 5 patients \(privacy.min_cell"),
    ("arms:", "privacy: {secure_aggregation: true}\narms:", "", "", "monitor: validation"),
    ("monitor: validation, ", "", "", "", "needs monitor: validation"),
]


@pytest.mark.parametrize(("old", "new", "method", "other", "said"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path, old, new, method, other, said
):
    assert old in STUDY
    with pytest.raises(fc.FedcohortError, match=said):
        study_of(tmp_path, lambda t: t.replace(old, new).replace(method, other, 1))
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]


NET = """\
study: own
task: survival
data: {source: "sample:gbsg2"}
coordinator_data: {source: own.csv, validation: 0.5}
arms: [{method: deepcox, rounds: 4, hidden: [3], monitor: validation, halt: true, alarm: 1.05}]
bounds: [isolated]
evaluate: {repeats: 1, metrics: [c_index]}
final: false
"""


def test_over_a_network_the_coordinators_file_gives_the_models_of_one_process(tmp_path):
    frames = frames_of("gbsg2")
    own = every([frame.iloc[:20] for frame in frames.values()])
    frames = {name: frame.iloc[20:].reset_index(drop=True) for name, frame in frames.items()}
    (tmp_path / "data").mkdir()
    own.to_csv(tmp_path / "data" / "own.csv", index=False)
    (tmp_path / "s.yaml").write_text(NET)
    terms = Terms.of(tmp_path / "s.yaml")
    with pytest.raises(fc.DataError, match=r"asks for its file 'own\.csv'"):
        run_local(terms, tables_of(terms, frames), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    out = tmp_path / "net"
    sites = LocalSites(terms, tables_of(terms, frames), states=tmp_path / "states")
    run_over(terms, sites, out, debug=True, data=tmp_path / "data")
    assert results_of(out)["coordinator_data"] == {"first": 30, "validation": 30}
    here = tmp_path / "data" / "here"
    twin = Path(tmp_path / "data" / "s.yaml")
    source = '"sites/{site}.csv", dictionary: d.yaml, outcome: {time: time, event: cens}'
    twin.write_text(NET.replace('"sample:gbsg2"', source))
    (tmp_path / "data" / "d.yaml").write_text(
        yaml.safe_dump(terms.dictionary_content, sort_keys=False)
    )
    fc.Study.from_file(twin, data=frames).run(here)
    model = "models/deepcox/model.safetensors"
    assert (out / model).read_bytes() == (here / model).read_bytes()
    assert (here / "ledger.jsonl").read_text().count('"visit"') == 12


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("{fraction: 0.1}", "no rows are taken out"),
        ("{source: ../own.csv}", "plain name of a file"),
    ],
)
def test_over_a_network_the_file_is_a_name_and_no_rows_are_taken_from_sites(tmp_path, own, said):
    text = NET.replace("{source: own.csv, validation: 0.5}", own)
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(fc.StudyError, match=said):
        Terms.of(tmp_path / "s.yaml")


def test_the_report_shows_losses_by_hospital_alarms_and_halts(out, tmp_path):
    run = read(out)
    root = ET.fromstring(validation.section(run).body)
    text = " ".join(" ".join(root.itertext()).split())
    assert "41 patients for a first model and 27 patients for validation" in str(
        validation.section(run).intro
    )
    rows = [r for r in history.lines(out / "history.csv") if r.arm == "halted"]
    halted: dict[tuple[str, str], float] = {}
    for r in (r for r in rows if r.name == "halted"):
        key = (r.scenario, r.repeat)
        halted[key] = halted.get(key, 0.0) + r.value
    mean = np.mean([v for (scenario, _), v in halted.items() if scenario == "drifting"])
    assert f"{mean:.1f}" in text and "site-3" in text
    figures = [f.get("id") for f in root.iter("figure")]
    assert figures == ["figure-validation-halted-iid", "figure-validation-halted-drifting"]
    content = json.loads((out / "results.json").read_text())
    del content["coordinator_data"]
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert validation.section(read(tmp_path)) is None
