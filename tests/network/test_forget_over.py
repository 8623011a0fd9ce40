"""A hospital leaves a network's models: real kits, channels, nodes and coordinator.

Compared with: `fedcohort forget` in one process, over the same tables; and, of the conjugate model,
a fit of the other hospitals' rows.
"""

from __future__ import annotations

import contextlib
import json
import shutil

import pandas as pd
import pytest
import yaml
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.apps import deploying, forgetting, steward
from fedcohort.audit import forgetting as local_forgetting
from fedcohort.audit import forgotten
from fedcohort.network.coordinator import forgetting as at_coordinator
from fedcohort.network.coordinator import lead
from fedcohort.network.state import kept
from fedcohort.protocol.errors import DataError, InputError
from fedcohort.study.study import Study
from network.hall import Hall
from network.parties import Parties, shares

FIVE = ("east", "middle", "north", "south", "west")
STUDY = {
    "study": "leaves",
    "task": "regression",
    "keep": True,
    "data": {
        "source": "patients.csv", "dictionary": "dictionary.yaml",
        "outcome": {"y": "tsize", "type": "continuous"},
    },
    "arms": [
        {"method": "bayes_linear"},
        {"method": "bayes_net", "hidden": [3], "rounds": 10, "internal_epochs": 1},
        {"method": "bayes_net", "name": "averaged", "strategy": "fedavg", "hidden": [3],
         "rounds": 1},
    ],
    "bounds": [],
    "final": True,
    "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2, "metrics": ["rmse"]},
}  # fmt: skip
NET = "bayes_net"
WHY = "patients object"


def fetched(hall, office, folder, **changes):
    """Run a study in a hall, and fetch it as a lead does; return its folder and hash."""
    first = lead.submit(office, hall.offer(**STUDY | changes), wait=None, timeout=9.0, resume=False)
    hall.until(office, first, "done", seconds=240)
    lead.open_folder(folder, first.run, hall.kit("lead"), resume=False)
    lead.fetch(office, first.run, folder)
    return folder, first.run


def withdraws(hall, site, run, folder):
    """Let a site withdraw, as its people do; return the file for the lead."""
    out = folder / f"withdrawal-{site}-{run[:12]}.json"
    node = hall.network.kit(site), hall.folder / site / "node.toml"
    list(steward.withdraw(*node, run[:12], None, WHY, out))
    return out


def forget(hall, office, run, site, out=None, **more):
    """Type the lead's command."""

    @contextlib.contextmanager
    def reached(kit):
        yield office

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deploying, "reached", reached)
        options = {"network": hall.network.kit("lead"), "runtime": "flare"} | more
        return forgetting.forget_over(run, site, out, **options)


def content(folder):
    return json.loads((folder / forgotten.FILE).read_text())


def of(folder, model):
    return next(row for row in content(folder)["models"] if row["model"] == model)


def alike(one, other, model):
    """Check that two folders have the same arrays of a model."""
    found = [fc.load(folder / "models" / model).model.arrays() for folder in (one, other)]
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        assert_array_equal(array, found[1][name], err_msg=f"{model} {name}")


@pytest.fixture(scope="module")
def hall(tmp_path_factory):
    """Return a hall of five in which north left, then west; the lead's three folders."""
    folder = tmp_path_factory.mktemp("leaves")
    with Hall(folder / "hall", names=FIVE) as hall:
        hall.start()
        office = hall.office()
        run, first = fetched(hall, office, folder / "run")
        withdraws(hall, "north", first, folder)
        four = forget(hall, office, run, "north")
        withdraws(hall, "west", first, folder)
        three = forget(hall, office, four, "west", rounds=3, compare=False)
        yield hall, office, run, four, three


@pytest.fixture(scope="module")
def here(hall, tmp_path_factory):
    """Return the folders of the same in one process."""
    folder = tmp_path_factory.mktemp("here")
    for name, table in shares(FIVE).items():
        (folder / name).mkdir()
        table.to_csv(folder / name / "patients.csv", index=False)
    shutil.copy(hall[0].folder / "dictionary.yaml", folder)
    study = {**STUDY, "seed": 3, "data": {**STUDY["data"], "source": "{site}/patients.csv"}}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    loaded = Study.from_file(folder / "study.yaml")
    loaded.run(folder / "run", command="fedcohort run study.yaml")
    out = folder / "run"
    for site, more in (("north", {}), ("west", {"rounds": 3, "compare": False})):
        source = forgotten.opened(out, folder)
        made = local_forgetting.forget(source, site, **more)
        out = folder / f"without-{site}"
        forgotten.write(source, site, made, out)
    return folder / "run", folder / "without-north", out


MODELS = [f"{arm}{part}" for arm in ("bayes_linear", NET, "averaged") for part in
          ("", "/first-repeat")]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_the_models_are_those_of_one_process_bit_for_bit(hall, here, model):
    for one, other in zip(hall[2:], here, strict=True):
        alike(one, other, model)


@pytest.mark.parametrize("step", [3, 4])
def test_what_was_done_is_told_as_in_one_process(hall, here, step):
    one, other = content(hall[step]), content(here[step - 2])
    for mine, its in zip(one["models"], other["models"], strict=True):
        same = ("arm", "method", "model", "sites", "how", "why", "rounds", "rounds_of_new_fit")
        assert {k: mine[k] for k in same} == {k: its[k] for k in same}
        if its["divergence"] and mine["how"] == "forgotten":
            assert_allclose(
                list(mine["divergence"].values()), list(its["divergence"].values()), atol=1e-12
            )
        assert mine["difference"] is None, "rows stay at the hospitals"
    for key in ("study", "forgotten", "site"):
        assert one[key] == other[key]


def test_the_conjugate_model_is_a_fit_of_the_others_rows(hall):
    model = fc.load(hall[4] / "models" / "bayes_linear").model
    rows = pd.concat(
        [t.assign(hospital=n) for n, t in shares(FIVE).items() if n not in ("north", "west")]
    )
    kinds = fc.load(hall[4] / "models" / "bayes_linear").parts.dictionary.to_dict()
    fed = fc.simulate(
        rows, sites="hospital", outcome=fc.Continuous("tsize"), dictionary=kinds
    )  # fmt: skip
    fit = fc.fit("bayes_linear", fed).model
    assert_allclose(model.coefficients, fit.coefficients, rtol=1e-8, atol=1e-10)
    assert_allclose(model.covariance, fit.covariance, rtol=1e-8, atol=1e-10)
    assert model.rows == len(rows)


def test_who_withdrew_when_and_why_is_told(hall):
    _, _, _, four, three = hall
    found = content(three)
    assert found["forgotten"] == ["north", "west"]
    told = [(w["site"], w["reason"], w["by"]) for w in found["network"]["withdrawals"]]
    assert told == [("north", WHY, "north"), ("west", WHY, "west")]
    assert found["network"]["sites"] == ["east", "middle", "south"]
    assert content(four)["network"]["of"] == content(four)["run"]
    assert "withdrew" in (three / "forget.md").read_text()
    ledger = [json.loads(x) for x in (three / "ledger.jsonl").read_text().splitlines()]
    assert {x["site"] for x in ledger} == {"east", "middle", "south"}
    assert {x["step"] for x in ledger} >= {"multiply_factors", "refine"}


def test_no_factor_is_outside_its_hospital(hall):
    hall, _, run, four, three = hall
    told = [p for root in (hall.home, run, four, three) for p in root.rglob("*") if p.is_file()]
    read = [p.read_bytes() for p in told]
    for site in ("east", "middle", "south"):
        node = hall.nodes[site]
        assert len({p.study for p in kept.parts(node.state)}) == 3
        for part in kept.parts(node.state):
            path = node.state / kept.FOLDER / part.study / f"{part.name}{kept.ENDING}"
            arrays, _ = kept.decode(path.read_bytes())
            for array in arrays.values():
                assert not [b for b in read if array.tobytes() in b]
    for site in ("north", "west"):
        assert list(kept.parts(hall.nodes[site].state)) == []


@pytest.mark.parametrize(
    ("place", "site", "said"),
    [
        (4, "west", "site 'west' was forgotten before"),
        (4, "nowhere", "took no part in this run; its sites are: east, middle, south"),
        (4, "south", "it has not withdrawn"),
    ],
)
def test_a_site_that_cannot_be_forgotten_is_one_line(hall, place, site, said, tmp_path):
    with pytest.raises((DataError, InputError), match=said) as error:
        forget(hall[0], hall[1], hall[place], site, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_too_few_that_stay_are_refused_before_anybody_is_asked(hall, tmp_path):
    """Last in this file: south's withdrawal stays."""
    hall, office, _, _, three = hall
    file = withdraws(hall, "south", content(three)["network"]["hash"], tmp_path)
    hall.end("south")
    calls = hall.calls
    with pytest.raises(InputError, match=r"south is not connected.* --withdrawal FILE"):
        forget(hall, office, three, "south", tmp_path / "out")
    with pytest.raises(DataError, match="2 of the sites stay, and sums are masked among 3"):
        forget(hall, office, three, "south", tmp_path / "out", withdrawals=[file])
    assert hall.calls == calls
    hall.begin("south")


# other networks ---------------------------------------------------------------------------

SMALL = {"arms": [STUDY["arms"][1] | {"rounds": 3}], "final": False}


@pytest.fixture
def small(tmp_path):
    """Return a hall of five after a small study, its office, folder and hash."""
    with Hall(tmp_path / "hall", names=FIVE) as hall:
        hall.start()
        office = hall.office()
        yield hall, office, *fetched(hall, office, tmp_path / "run", **SMALL)


def test_nodes_do_not_let_a_coordinator_leave_out_one_that_stays(small, tmp_path, monkeypatch):
    """It asks three of the four that stay: with the product over four, their quotient is one."""
    hall, office, run, first = small
    withdraws(hall, "north", first, tmp_path)
    honest = at_coordinator.left
    monkeypatch.setattr(at_coordinator, "left", lambda *given: honest(*given)[1:])
    row = of(forget(hall, office, run, "north", compare=False), NET)
    assert row["how"] == "fitted anew"
    assert "multiply_factors is asked over middle, south and west, and what is kept" in row["why"]
    for site in ("middle", "south", "west"):
        lines = (hall.nodes[site].state / "ledger.jsonl").read_text()
        assert '"multiply_factors"' not in lines, "no sum of factors left"


def test_a_node_that_lost_its_part_makes_it_a_new_fit(small, tmp_path):
    hall, office, run, first = small
    list(steward.keeps(hall.network.kit("south"), first[:12], delete=True))
    withdraws(hall, "north", first, tmp_path)
    out = forget(hall, office, run, "north")
    row = of(out, NET)
    assert row["how"] == "fitted anew"
    assert "site 'south' keeps nothing of this fit" in row["why"]
    assert row["rounds"] == 3


def test_a_coordinator_that_ends_on_the_way_gives_the_same_models(small, tmp_path):
    hall, office, run, first = small
    file = withdraws(hall, "north", first, tmp_path)
    whole = forget(hall, office, run, "north", tmp_path / "whole")
    again = tmp_path / "again"
    struck = [0]

    def strike(site):
        struck[0] += 1
        if struck[0] == 60:
            hall.kill()
            hall.open()

    hall.before = strike
    forget(hall, hall.office(), run, "north", again, withdrawals=[file], rounds=1)
    assert struck[0] > 60
    alike(whole, again, NET)


def test_a_study_that_did_not_ask_to_keep_is_forgotten_by_a_new_fit(tmp_path):
    with Hall(tmp_path / "hall", names=FIVE, approval={"south": "steward"}) as hall:
        hall.start()
        office = hall.office()
        node = hall.network.kit("south"), hall.folder / "south" / "node.toml"
        kit = hall.network.kit("steward-south")
        hall.before = lambda site: _approves(hall, node, kit)
        run, first = fetched(hall, office, tmp_path / "run", **SMALL, keep=False)
        assert [*kept.parts(hall.nodes["east"].state)] == []
        withdraws(hall, "north", first, tmp_path)
        row = of(forget(hall, office, run, "north"), NET)
        assert (row["how"], row["why"]) == (
            "fitted anew", "the study did not ask hospitals to keep their parts (keep: true)",
        )  # fmt: skip
        made = [e for e in hall.nodes["south"].store.entries() if e.decision]
        assert {(e.state, e.decision.by) for e in made} == {("approved", "steward-south")}
        assert len(made) == 2, "the steward decided on both studies"


def _approves(hall, node, kit):
    """Let a steward approve what waits."""
    for entry in hall.nodes["south"].store.entries():
        if entry.waits:
            steward.approve(*node, entry.study, kit)


def test_logistic_regression_is_that_of_a_new_fit(tmp_path):
    changes = {
        "task": "classification", "arms": [{"method": "bayes_logistic"}], "final": False,
        "data": {**STUDY["data"], "outcome": {"y": "horTh"}},
        "evaluate": {**STUDY["evaluate"], "metrics": ["auc"]},
    }  # fmt: skip
    with Hall(tmp_path / "hall", names=FIVE) as hall:
        hall.start()
        office = hall.office()
        run, first = fetched(hall, office, tmp_path / "run", **changes)
        withdraws(hall, "north", first, tmp_path)
        row = of(forget(hall, office, run, "north"), "bayes_logistic")
        assert row["how"] == "forgotten"
        assert row["divergence"]["after"] < 1e-8 < row["divergence"]["before"]
        ledger = (hall.nodes["south"].state / "ledger.jsonl").read_text()
        assert '"session":"forget-r0000-a00"' in ledger


@pytest.mark.parametrize("engine", ["flare", "flower"])
def test_a_hospital_leaves_a_network_of_real_processes(tmp_path, engine):
    four = FIVE[:4]
    with Parties(tmp_path / "n", four, engine=engine) as net:
        shutil.copy(net.folder / "sites" / "north" / "dictionary.yaml", net.folder)
        net.write("study.yaml", {**STUDY, **SMALL, "seed": 3})
        net.start()
        net.run("study.yaml", "out", seconds=200)
        run = json.loads((net.folder / "out" / "results.json").read_text())["network"]["hash"]
        kits = "--node", net.kit("north"), "--kit", net.folder / "net" / "people" / "steward-north"
        assert "fit-a00" in net.do("node", "kept", *kits[:2])
        said = net.do("node", "withdraw", run[:12], *kits, "--reason", WHY)
        assert f"withdrawal-{run[:12]}-north.json" in said
        over = "--runtime", engine, "--network", net.kit("lead")
        said = net.do("forget", "out", "--site", "north", *over, seconds=200)
        assert f": {WHY}" in said
        assert "Made from what east, middle and south keep of the fit" in said
        found = of(net.folder / "out-without-north", NET)
        assert (found["how"], found["sites"]) == ("forgotten", ["east", "middle", "south"])
        assert "Nothing is kept" in net.do("node", "kept", *kits[:2])
        assert WHY in net.do("node", "history", *kits[:2])
    assert [party.text for party in net.everyone if "Traceback" in party.text] == []
    assert net.survivors == []
