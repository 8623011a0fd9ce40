"""`fedcohort forget`: a run's models without one hospital, in a new folder."""

from __future__ import annotations

import contextlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
import in_process
from fedcohort.audit import forgetting, forgotten
from fedcohort.audit.scores import scores
from fedcohort.protocol import DataError
from fedcohort.study.results import forgetting as keeping
from fedcohort.study.study import Study

STUDY = """\
study: forgets
task: regression
seed: 3
data:
  source: t.csv
  outcome: {y: y, type: continuous}
  sites: {column: hospital}
arms:
  - {method: bayes_linear}
  - {method: bayes_net, hidden: [4], rounds: 10, internal_epochs: 1}
  - {method: bayes_net, name: averaged, strategy: fedavg, hidden: [4], rounds: 2}
bounds: []
evaluate: {test_fraction: 0.4, repeats: 1, draws: 2, metrics: [rmse]}
"""
NAMES = ["x0", "x1"]


def patients(n=260, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(50, 10, (n, 2)), columns=NAMES)
    frame["y"] = frame["x0"] - 2 * frame["x1"] + rng.normal(size=n) * 5 + 300
    return frame.assign(hospital=np.array(["a", "b", "c", "d"])[np.arange(n) % 4])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forget")
    patients().to_csv(folder / "t.csv", index=False)
    (folder / "s.yaml").write_text(STUDY)
    Study.from_file(folder / "s.yaml").run(folder / "run", command="fedcohort run s.yaml")
    with contextlib.chdir(folder):
        done = in_process.command("forget", "run", "--site", "b")
    assert done[0] == 0, done
    (folder / "said.txt").write_text(done[1])
    return folder


def cli(place, *arguments):
    with contextlib.chdir(place):
        return in_process.command("forget", *arguments)


def of(folder, model):
    content = json.loads((folder / "forget.json").read_text())
    return next(row for row in content["models"] if row["model"] == model)


def test_the_final_conjugate_model_is_a_fit_of_the_other_hospitals_rows(place):
    model = fc.load(place / "run-without-b" / "models" / "bayes_linear").model
    rows = patients()
    rows = rows[rows["hospital"] != "b"]
    fit = fc.fit("bayes_linear", fc.simulate(rows, sites="hospital", outcome=fc.Continuous("y")))
    assert_allclose(model.coefficients, fit.model.coefficients, rtol=1e-8)
    assert_allclose(model.covariance, fit.model.covariance, rtol=1e-8)
    assert model.rows == len(rows)
    row = of(place / "run-without-b", "bayes_linear")
    assert (row["how"], row["rounds"], row["divergence"]["after"] < 1e-8) == ("forgotten", 1, True)
    assert row["difference"]["after"]["largest"] < 1e-8 < row["difference"]["before"]["mean"]


def test_a_net_is_forgotten_in_a_fifth_of_its_rounds_and_predicts(place):
    folder = place / "run-without-b"
    row = of(folder, "bayes_net")
    assert (row["rounds"], row["rounds_of_new_fit"], row["why"]) == (2, 10, "")
    assert row["divergence"]["after"] > 0
    patients().to_csv(place / "new.csv", index=False)
    with contextlib.chdir(place):
        model = "run-without-b/models/bayes_net"
        code, out, said = in_process.command("predict", model, "new.csv")
    assert code == 0, said
    assert out.count("\n") == 261


def test_an_arm_that_keeps_nothing_is_fitted_anew_and_says_why(place):
    row = of(place / "run-without-b", "averaged")
    assert row["how"] == "fitted anew"
    assert "strategy 'fedavg'" in row["why"]
    assert row["difference"] is None
    assert "strategy 'fedavg' of bayes_net keeps no factors" in (place / "said.txt").read_text()


def test_the_attack_and_differences_are_of_the_rows_they_name(place):
    """Each is computed again here, from the files of both folders."""
    source, out = forgotten.opened(place / "run", place), place / "run-without-b"
    name = "bayes_net/first-repeat"
    row = of(out, name)
    laid = source.run.laid
    own = laid.own_site.astype(str)
    old, new = (fc.load(f / "models" / name).parts for f in (place / "run", out))
    for key, parts in (("before", old), ("after", new)):
        # in one table, because the draws of a network's outputs follow the rows' order
        both = pd.concat([laid.problem.frames["b"], laid.test[own == "b"]], ignore_index=True)
        found = scores(parts.model, parts.design, both)
        inside, others = np.split(found, [len(laid.problem.frames["b"])])
        above = (inside[:, None] > others).mean() + 0.5 * (inside[:, None] == others).mean()
        assert row["membership"][key]["value"] == round(above, 4)
    assert row["difference"]["rows"] == (own != "b").sum()
    again = forgetting.forget(source, "b", arm="bayes_net")[0]
    fresh = forgetting.fit_once(
        laid.problem.on({k: f for k, f in laid.problem.frames.items() if k != "b"}),
        source.run.method(again.arm), again.arm.configured(), again.arm.preprocess, source.run.seed,
    )  # fmt: skip
    rows = laid.test[own != "b"]
    said = [m.predict(d.matrix(rows)) for m, d in ((new.model, new.design),
                                                    (fresh.model, fresh.design))]  # fmt: skip
    off = np.abs(said[0] - said[1]) / np.std(rows["y"])
    assert_allclose(row["difference"]["after"]["mean"], off.mean(), rtol=1e-9)
    assert_allclose(row["difference"]["after"]["largest"], off.max(), rtol=1e-9)


def test_card_page_and_notes_name_the_hospital_and_no_old_coefficient(place):
    folder = place / "run-without-b"
    card = (folder / "models" / "bayes_linear" / "card.md").read_text()
    assert "without b" in card.splitlines()[0]
    assert "the rows of a, c and d, all" in card
    old = fc.load(place / "run" / "models" / "bayes_linear").model.coefficients[0]
    for path in folder.rglob("*.*"):
        if path.is_file() and path.suffix in (".md", ".json"):
            assert f"{old:.6g}" not in path.read_text()
    notes = json.loads((folder / "models" / "bayes_linear" / "model.json").read_text())["notes"]
    assert notes["without"] == ["b"]
    page = (folder / "forget.md").read_text()
    assert "Whoever has the old and the new model" in page
    assert "subtract" in (place / "said.txt").read_text()


def test_what_left_the_others_is_in_the_ledger_and_nothing_of_the_hospital(place):
    lines = (place / "run-without-b" / "ledger.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert {line["phase"] for line in found} == {"forget"}
    assert {line["site"] for line in found} == {"a", "c", "d"}
    assert any(line["step"] == "multiply_factors" for line in found)
    kept = place / "run-without-b" / "kept" / "bayes_net"
    names = {bytes.fromhex(p.stem).decode() for p in kept.glob("*.state")}
    assert names == {"a", "c", "d"}


def test_a_second_hospital_is_forgotten_from_the_new_folder(place):
    code, _, said = cli(place, "run-without-b", "--site", "d", "--arm", "bayes_linear")
    assert code == 0, said
    folder = place / "run-without-b-without-d"
    content = json.loads((folder / "forget.json").read_text())
    assert content["forgotten"] == ["b", "d"]
    assert (folder / content["run"]).resolve() == (place / "run").resolve()
    rows = patients()
    rows = rows[rows["hospital"].isin(["a", "c"])]
    fit = fc.fit("bayes_linear", fc.simulate(rows, sites="hospital", outcome=fc.Continuous("y")))
    model = fc.load(folder / "models" / "bayes_linear").model
    assert_allclose(model.coefficients, fit.model.coefficients, rtol=1e-8)
    for site, why in (("d", "was forgotten before"), ("b", "was forgotten before")):
        code, _, said = cli(place, folder.name, "--site", site)
        assert (code, why in said, said.count("\n")) == (2, True, 1)


def test_without_a_new_fit_nothing_is_compared(place):
    options = ("--site", "a", "--arm", "bayes_net", "--no-compare", "--rounds", "3", "--out", "n")
    code, _, said = cli(place, "run", *options)
    assert code == 0, said
    row = of(place / "n", "bayes_net")
    assert (row["rounds"], row["rounds_of_new_fit"], row["difference"]) == (3, None, None)
    shown = of(place / "n", "bayes_net/first-repeat")["membership"]
    assert set(shown) == {"rows", "others", "before", "after"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--site", "e"), "site 'e' took no part in this run; its sites are: a, b, c, d."),
        (("run", "--site", "b"), "--out run-without-b: it exists and is not empty"),
        (("run", "--site", "a", "--arm", "cox"), "no arm called 'cox'; there are: bayes_linear"),
        (("nowhere", "--site", "a"), "nowhere"),
        (("run", "--site", "a", "--rounds", "0"), "--rounds"),
    ],
)
def test_wrong_input_is_one_line(place, arguments, said):
    code, out, err = cli(place, *arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--network", "kit"], "--network goes with --runtime flare or flower"),
        (["--withdrawal", "w.json"], "are for a network; add --network KIT"),
        (["--resume"], "are for a network; add --network KIT"),
        (["--runtime", "flower-sim"], "are for a network; add --network KIT"),
    ],
)
def test_options_of_a_network_need_one(place, options, said):
    code, _, found = cli(place, "run", "--site", "a", *options)
    assert (code, found.count("\n"), said in found) == (2, 1, True)


def test_a_deployed_run_is_forgotten_over_its_network(place, tmp_path):
    (tmp_path / "run").mkdir()
    told = {"network": {"hash": "ab" * 32, "sites": ["a"]}}
    (tmp_path / "run" / "results.json").write_text(json.dumps(told))
    code, _, found = cli(place, str(tmp_path / "run"), "--site", "a")
    assert (code, found.count("\n")) == (2, 1)
    assert "Forget over its network: --runtime flare --network KIT" in found


def test_the_last_hospital_leaves_no_model(place):
    source = forgotten.opened(place / "run", place)
    last = forgetting.Source(source.folder, source.run, ("a", "b", "c"))
    with pytest.raises(DataError, match="site 'd' is the last one, and without it there is no"):
        forgetting.forget(last, "d")


def test_a_run_that_kept_nothing_is_fitted_anew(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / keeping.KEPT)
    source = forgotten.opened(tmp_path / "run", place)
    made = forgetting.forget(source, "c", arm="bayes_net", compare=False)[0]
    assert made.row["how"] == "fitted anew"
    assert "nothing is kept of a, b, d" in made.row["why"]


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "forget.json").write_text("{}")
    with pytest.raises(DataError, match="this file is damaged"):
        forgotten.opened(tmp_path)
