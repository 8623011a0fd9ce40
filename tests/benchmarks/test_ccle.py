"""The benchmark of CCLE keeps units on one side, chooses columns blindly, and ranks little."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.numerics import refined
from fedcohort.protocol import registry

FOLDER = Path(__file__).parents[2] / "benchmarks" / "ccle"
LINES, DRUGS = 40, 24


@pytest.fixture
def module(monkeypatch):
    """Load a script under a name of its own: several benchmarks have a `run.py` and `show.py`."""

    def load(name: str):
        for other in ("run", "arms", "cohort", "book"):
            monkeypatch.delitem(sys.modules, other, raising=False)
        monkeypatch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location(f"ccle_{name}", FOLDER / f"{name}.py")
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, made)
        spec.loader.exec_module(made)
        return made

    return load


def tables(folder: Path) -> Path:
    """Write made-up tables in the form of CCLE's; one line has no omics."""
    rng = np.random.default_rng(0)
    lines = [f"L{i:02}" for i in range(LINES + 1)]
    drugs = [f"D{i:02}" for i in range(DRUGS)]
    rows = pd.DataFrame([(a, b) for a in lines for b in drugs], columns=["depmap_id", "drug"])
    rows["actarea"] = rng.permutation(len(rows)) / 100.0
    rows["has_omics"] = (rows["depmap_id"] != lines[-1]).astype(int)
    rows.to_csv(folder / "ccle_response_11670.csv", index=False)
    for name in ("exp_z", "cn", "mut"):
        table = pd.DataFrame(rng.normal(size=(LINES + 1, 6)), columns=list("abcdef"))
        table["depmap_id"] = lines
        table.to_csv(folder / f"cells_580x706_{name}.csv.gz", index=False)
    described = pd.DataFrame(rng.normal(size=(DRUGS, 5)), columns=list("vwxyz")).assign(drug=drugs)
    described.to_csv(folder / "ccle_drugs_24_rdkit.csv", index=False)
    return folder


@pytest.mark.parametrize("split", ["pair", "line", "drug"])
def test_each_row_has_one_place_and_no_unit_is_on_two_sides(module, tmp_path, split):
    cohort = module("cohort")
    rows = cohort.read(tables(tmp_path))
    made = cohort.drawn(rows, cohort.Columns(), 1, split, 3)
    parts = {
        "train": pd.concat(list(made.train.values())), "test": pd.concat(list(made.test.values())),
        "first": made.first, "validation": made.validation,
    }  # fmt: skip
    places = Counter(y for part in parts.values() for y in part["actarea"])
    assert places == Counter(rows["actarea"])
    assert len(rows) == LINES * DRUGS
    if split != "pair":
        unit = {"line": "depmap_id", "drug": "drug"}[split]
        seen = {name: set(part[unit]) for name, part in parts.items()}
        for aside in ("test", "validation"):
            others = set().union(*(of for name, of in seen.items() if name != aside))
            assert seen[aside]
            assert not seen[aside] & others, aside
    if split == "line":
        at = [set(f["depmap_id"]) for f in made.train.values()]
        assert sum(map(len, at)) == len(set.union(*at)), "a hospital's lines are its own"


def test_columns_are_chosen_from_the_coordinators_rows_alone(module, tmp_path):
    cohort = module("cohort")
    rows = cohort.read(tables(tmp_path))
    columns = cohort.Columns(e=3, c=2, m=1, d=2)
    made = cohort.drawn(rows, columns, 0, "pair", 3)
    assert len(made.features) == 8
    other = rows.copy()
    elsewhere = ~other["actarea"].isin(made.first["actarea"])
    names = [c for c in other if c[:2] in ("e_", "c_", "m_", "d_")]
    other.loc[elsewhere, names] = 1e3 * np.random.default_rng(1).normal(
        size=(elsewhere.sum(), len(names))
    )
    assert cohort.drawn(other, columns, 0, "pair", 3).features == made.features


def test_a_swap_permutes_a_fifth_of_each_sites_training_outcomes_only(module, tmp_path):
    cohort = module("cohort")
    rows = cohort.read(tables(tmp_path))
    plain, swapped = (
        cohort.drawn(rows, cohort.Columns(), 0, "pair", 3, swap=swap) for swap in (0.0, 0.2)
    )
    for site, frame in plain.train.items():
        was, now = frame["actarea"].to_numpy(), swapped.train[site]["actarea"].to_numpy()
        assert_array_equal(np.sort(was), np.sort(now))
        assert 0.15 < np.mean(was != now) <= 0.2
        assert_array_equal(frame["e_a"], swapped.train[site]["e_a"])
        pd.testing.assert_frame_equal(plain.test[site], swapped.test[site])


@pytest.mark.parametrize("k", [2, 8])
def test_with_overlap_each_of_twelve_sites_has_k_drugs(module, tmp_path, k):
    cohort = module("cohort")
    made = cohort.drawn(cohort.read(tables(tmp_path)), cohort.Columns(), 0, "pair", 12, drugs=k)
    for site, frame in made.train.items():
        assert frame["drug"].nunique() == k
        assert set(made.test[site]["drug"]) <= set(frame["drug"])


def test_means_of_drug_and_line_predict_an_additive_outcome(module, tmp_path):
    cohort = module("cohort")
    rows = cohort.read(tables(tmp_path))
    drug = rows["drug"].str[1:].astype(float)
    made = cohort.drawn(rows.assign(actarea=drug), cohort.Columns(), 0, "pair", 3)
    test = pd.concat(list(made.test.values()))
    for lines in (False, True):
        found = cohort.additive(made, lines=lines)
        assert_allclose(found, test["actarea"], atol=1e-12)


def test_a_shuffled_map_is_random_and_the_method_gets_its_own_back(module):
    run = module("run")
    x = np.random.default_rng(0).normal(size=(50, 9))
    d = refined.distances(np.corrcoef(x, rowvar=False))
    own = refined.refine(d, 3).pixels
    with run.shuffled_maps(0):
        other = refined.refine(d, 3).pixels
    assert sorted(other) == sorted(own)
    assert not np.array_equal(other, own)
    assert_array_equal(refined.refine(d, 3).pixels, own)


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_tables_rank_nothing_from_few_seeds(module, tmp_path, monkeypatch, capsys, seeds):
    show = module("show")
    case = {"size": "small", "rounds": 20, "split": "pair", "sites": 3, "drugs": 0, "swap": 0.0}
    counts = dict.fromkeys(("columns", "first", "validation", "train", "test"), 10)
    scores = {"nrmse": 0.4, "pcc": 0.9, "own_nrmse": 0.5, "own_pcc": 0.8, "cpu": 7.0}
    lines = [
        {"of": {**case, "seed": seed, "arm": "ann", "scope": scope}, **scores, **counts}
        | ({"nrmse": 0.5} if scope == "isolated" else {})
        for seed in range(seeds)
        for scope in ("federated", "isolated")
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(sys, "argv", ["show.py", "--out", str(tmp_path)])
    assert show.main() == 0
    shown = capsys.readouterr().out
    assert ("nothing is ranked" in shown) == (seeds < 3)
    row = next(line for line in shown.splitlines() if line.startswith("| ANN"))
    assert "| 20.0 % | 0.40 / 0.916 | 13.6 % |" in row, "gain 1 − 0.4/0.5, then the paper's"


def test_each_network_of_each_size_takes_the_device_of_the_command_line(module):
    run = module("run")
    for size in run.SIZES.values():
        for arm, scope in itertools.product(size.arms, run.SCOPES):
            if arm in run.FEDERATED and scope != "federated":
                continue
            settings = run.settings_of(size, arm, scope, None, "cuda")
            settings.pop("strategy", None)  # of clients alone and of pooled rows, no method's
            configured = registry.find(settings.pop("method")).configure(settings)
            assert getattr(configured, "device", "trees") == (
                "trees" if arm == "boosting" else "cuda"
            )


def test_after_a_halt_each_site_is_judged_with_its_own_model(module):
    """Sites of opposite effects; the fit itself predicts the mean of their models by rows."""
    run = module("run")
    rng = np.random.default_rng(0)

    def table(n: int, effect: float) -> pd.DataFrame:
        x = rng.normal(size=n)
        return pd.DataFrame({"x": x, "z": rng.normal(size=n), "y": effect * x})

    frames = {"a": table(200, 2.0), "b": table(400, -2.0)}
    fit = fc.fit(
        "regressor", fc.simulate(frames, outcome=fc.Continuous("y")), hidden=(4,), rounds=12,
        monitor="validation", halt=True, learning_rate=0.1, coordinator_data=(None, table(30, 2.0)),
    )  # fmt: skip
    assert fit.history["halted"].iloc[-1]
    seen = table(50, 0.0)
    a, b = (run.with_model(fit, k).predict(seen) for k in range(2))
    assert np.corrcoef(a, seen["x"])[0, 1] > 0.5
    assert np.corrcoef(b, seen["x"])[0, 1] < -0.5
    assert_allclose(fit.predict(seen), a / 3 + 2 * b / 3, atol=1e-12)


def test_a_cell_of_fewer_seeds_says_so_and_a_gain_is_of_seeds_that_have_both(module):
    show = module("show")
    rows = pd.DataFrame({"seed": [0, 1, 2], "nrmse": [0.3, 0.5, 9.0]})
    by = {"federated": rows, "isolated": pd.DataFrame({"seed": [1, 0], "nrmse": [0.5, 0.5]})}
    assert show.gained(by) == pytest.approx(20.0), "1 − 0.4/0.5"
    assert show.spread(rows["nrmse"], 3) == "3.267 (0.300–9.000)"
    assert show.spread(rows["nrmse"][:2], 3) == "0.400 (2 of 3 seeds, 0.300–0.500)"
    assert show.spread(rows["nrmse"][:1], 1) == "0.300"
    assert show.spread(rows["nrmse"][:0], 3) == "–"
