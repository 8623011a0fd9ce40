"""Fits over a table larger than memory are those over the same table in memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort import mapped
from fedcohort.data.check import with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import on_disk
from fedcohort.data.read import sources
from fedcohort.data.tables import FeatureTable
from fedcohort.network.node.table import open_table
from fedcohort.network.state.policy import DataSource
from fedcohort.protocol import registry
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.host import Call, Host
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.engine import Problem, Run, fit_once
from fedcohort.study.sites import layout
from fedcohort.training.clusters import partition, seeding
from fedcohort.training.clusters.points import PLAIN

COLUMNS: dict[str, Any] = {
    **{f"x{i}": {"type": "number"} for i in range(5)},
    "sex": {"type": "binary"},
    "grade": {"type": "category", "levels": ["I", "II", "III"]},
}
OUTCOMES = {
    "number": (fc.Continuous("y"), {"y": {"type": "number"}}),
    "class": (fc.Binary("d"), {"d": {"type": "binary"}}),
    "survival": (
        fc.Survival("time", "event"), {"time": {"type": "time"}, "event": {"type": "event"}}
    ),
    "": (None, {}),
}  # fmt: skip
#: Each method with its outcome and settings, and the tolerance of its numbers, relative to the
#: largest of their array: rounding of other blocks, divided by the gap of an optimum (lasso).
FITS = [
    ("ridge", "number", {}, 1e-9),
    ("lasso", "number", {}, 1e-8),
    ("elastic_net", "number", {}, 1e-8),
    ("glm", "number", {}, 1e-9),
    ("logistic", "class", {}, 1e-9),
    ("cox", "survival", {}, 1e-9),
    ("kmeans", "", {"n_clusters": 2, "rounds": 5, "swaps": 0}, 1e-9),
    ("boosting", "class", {"rounds": 3, "max_depth": 2}, 0.0),
]


def drawn(rows: int, seed: int) -> pd.DataFrame:
    """Return patients with missing values and all outcomes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 5))
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(5)})
    frame["sex"] = rng.integers(0, 2, rows)
    frame["grade"] = rng.choice(["I", "II", "III"], rows)
    eta = x[:, 0] - 0.5 * x[:, 1] + 0.4 * (frame.grade == "III")
    frame.loc[rng.random(rows) < 0.03, "x1"] = np.nan
    frame["y"] = eta + rng.standard_normal(rows)
    frame["d"] = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)
    end, stop = rng.exponential(np.exp(-eta)), rng.exponential(2.0, rows)
    frame["who"] = np.arange(rows) + 1000
    frame["time"], frame["event"] = np.minimum(end, stop), (end <= stop).astype(int)
    return frame


def dictionary(kind: str) -> Dictionary:
    return Dictionary.from_dict({"variables": COLUMNS | OUTCOMES[kind][1]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Hold two sites' tables as Parquet, with a dictionary for survival."""
    folder = tmp_path_factory.mktemp("tables")
    for site, rows in (("north", 4500), ("south", 2600)):
        drawn(rows, rows).to_parquet(folder / f"{site}.parquet")
    known = {"variables": COLUMNS | OUTCOMES["survival"][1]}
    (folder / "d.yaml").write_text(yaml.safe_dump(known))
    return folder


@pytest.fixture
def large(monkeypatch):
    """Return a function that lets no table fit, or every table, with small blocks."""

    def choose(yes: bool) -> None:
        monkeypatch.setenv(mapped.SETTING, "0" if yes else "1TB")

    monkeypatch.setattr(mapped, "block_rows", lambda _: 1500)
    return choose


def problem(folder: Path, kind: str) -> Problem:
    outcome = OUTCOMES[kind][0]
    known = with_outcome(dictionary(kind), outcome)
    frames = sources.load("{site}.parquet", folder, dictionary=known).frames
    assert isinstance(frames, dict)
    return Problem(frames, known, outcome)


def fitted(folder: Path, name: str, kind: str, settings: dict[str, Any]) -> Run:
    method = registry.find(name)
    return fit_once(problem(folder, kind), method, settings, dict(method.preprocess), 3)


@pytest.mark.parametrize(("name", "kind", "settings", "tol"), FITS, ids=[f[0] for f in FITS])
def test_a_fit_in_blocks_is_that_in_memory(folder, large, name, kind, settings, tol):
    large(False)
    expected = fitted(folder, name, kind, settings).model.arrays()
    large(True)
    found = fitted(folder, name, kind, settings).model.arrays()
    assert found.keys() == expected.keys()
    for key, a in expected.items():
        scale = float(np.nanmax(np.abs(a), initial=0.0)) if a.dtype.kind == "f" else 0.0
        assert_allclose(found[key], a, rtol=0, atol=tol * scale, err_msg=key)


def test_table_1_in_blocks_is_that_in_memory(folder, large):
    large(False)
    settings = {"by": "grade", "correlation": True, "histograms": True}
    expected = fitted(folder, "describe", "class", settings).model
    large(True)
    found = fitted(folder, "describe", "class", settings).model
    assert found.table == expected.table
    assert found.histograms == expected.histograms
    assert_allclose(found.correlation.r, expected.correlation.r, atol=1e-12)


def test_methods_that_are_sums_of_rows_are_listed_and_no_others(monkeypatch):
    listed = ("describe", "elastic_net", *sorted(f[0] for f in FITS if f[0] != "elastic_net"))
    monkeypatch.setattr(registry, "names", lambda: (*listed, "svm", "lda", "multinomial"))
    assert registry.of_large_tables() == (*listed, "lda")


@pytest.mark.parametrize("step", [partition.count_near, partition.sum_near, seeding.sum_points])
def test_a_sum_over_clusters_in_blocks_is_that_in_memory(large, step):
    rng = np.random.default_rng(0)
    x, at = rng.standard_normal((5000, 4)), rng.standard_normal((3, 4))
    out = mapped.Writer(*x.shape)
    out.append(x)
    asked: dict[str, Any] = dict(PLAIN.given)
    if step is seeding.sum_points:
        asked |= {"origin": np.zeros(4)}
    else:
        asked |= {"path": at[None], "moves": np.zeros((0, 3, 3), bool)}
        asked |= {"about": at, "unscaled": False} if step is partition.sum_near else {
            "before": at[None][:0], "moves_before": np.zeros((0, 3, 3), bool),
        }  # fmt: skip
    replies = [
        Host("a", FeatureTable(table), (step,)).answer(Call(0, step, "sum", None, None), asked)
        for table in (out.finished(), x)
    ]
    for key, expected in replies[1].reply.items():  # 5,000 additions of numbers below 10
        found = replies[0].reply[key]
        if key == "fractions":  # counts sites, and is compared with 0 alone
            found, expected = found > 0, expected > 0
        assert_allclose(found, expected, rtol=1e-12, atol=1e-10)


def test_another_method_is_refused_in_one_line(folder, large, monkeypatch):
    monkeypatch.setattr(registry, "names", lambda: ("cox", "kaplan_meier"))
    large(True)
    with pytest.raises(Refused) as error:
        fitted(folder, "kaplan_meier", "survival", {"time_grid": "exact"})
    text = str(error.value)
    assert text.startswith("site 'north': its table is larger than the memory for it, and step ")
    assert "Take one of the methods cox with" in text
    assert text.endswith("with default settings; or give more memory (FEDCOHORT_MEMORY).")
    assert "\n" not in text


def test_memory_of_a_fit_in_blocks_is_less_than_one_copy_of_the_table(tmp_path, large, monkeypatch):
    monkeypatch.setattr(mapped, "block_rows", lambda _: 1500)
    drawn(30_000, 1).to_parquet(tmp_path / "a.parquet")
    copy = 30_000 * 8 * 8  # bytes of x (n, p), with one column for each of two levels
    peaks = []
    for yes in (True, False):
        large(yes)
        tracemalloc.start()
        made = problem(tmp_path, "number")
        method = registry.find("ridge")
        tracemalloc.reset_peak()
        fit_once(made, method, {}, dict(method.preprocess), 3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 1.5 * copy < 3 * copy < peaks[1]


def study(folder: Path) -> dict[str, Any]:
    """Return a study file."""
    return {
        "study": "large", "task": "survival", "seed": 5,
        "data": {
            "source": f"{folder}/{{site}}.parquet", "dictionary": f"{folder}/d.yaml",
            "outcome": {"time": "time", "event": "event"},
        },
        "arms": [{"method": "cox"}], "bounds": [],
        "evaluate": {"repeats": 1, "draws": 3, "metrics": ["c_index"]},
    }  # fmt: skip


NETWORK = """\
study: s
task: survival
arms: [{{method: cox}}]
data:
  source: network
  dictionary: {folder}/d.yaml
  outcome: {{time: time, event: event}}
"""

LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from study.test_large_tables import fitted
fitted(Path({folder!r}), "ridge", "number", {{}})  # what a fit imports counts before the limit
size = lambda: int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
limit = size() + {more}
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
fitted(Path({large!r}), "ridge", "number", {{}})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all memory on Linux alone")
def test_a_process_with_little_memory_fits_a_table_that_does_not_fit(folder, tmp_path):
    drawn(600_000, 1).to_parquet(tmp_path / "a.parquet")
    text = LIMITED.format(
        tests=str(Path(__file__).parents[1]), folder=str(folder), large=str(tmp_path),
        more=100_000_000,
    )  # fmt: skip
    for memory, fits in (("1MB", True), ("1TB", False)):
        env = {"FEDCOHORT_MEMORY": memory, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, "-c", text], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == fits, done.stderr
        # a library that gets no memory may also end the process by a signal
        assert fits or "MemoryError" in done.stderr or done.returncode < 0


def test_a_study_of_tables_on_disk_has_the_results_of_tables_in_memory(folder, large, tmp_path):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(study(folder)))
    metrics = []
    for yes in (True, False):
        large(yes)
        results = fc.Study.from_file(tmp_path / "s.yaml").run(tmp_path / str(yes))
        arms = results.content["arms"]
        assert {a["status"] for a in arms} == {"done"}
        metrics.append([a["metrics"][m] for a in arms for m in sorted(a["metrics"])])
    assert_allclose(metrics[0], metrics[1], rtol=1e-9)


def test_the_sites_of_a_study_have_the_same_rows_on_disk(folder, large, tmp_path):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(study(folder)))
    laid = []
    for yes in (True, False):
        large(yes)
        plan = fc.Study.from_file(tmp_path / "s.yaml").plan
        laid.append(layout.lay_out(plan, layout.load(plan), plan.scenarios[0], 0))
    same = {"check_column_type": False}
    for site, frame in laid[0].problem.frames.items():
        assert on_disk(frame)
        other = laid[1].problem.frames[site]
        pd.testing.assert_frame_equal(frame.astype({"grade": object}), other, **same)
    pd.testing.assert_frame_equal(laid[0].test.astype({"grade": object}), laid[1].test, **same)


def test_a_site_over_a_network_trains_and_judges_on_the_same_rows(folder, large, tmp_path):
    (tmp_path / "s.yaml").write_text(NETWORK.format(folder=folder))
    terms = Terms.of(tmp_path / "s.yaml")
    own = yaml.safe_load((folder / "d.yaml").read_text())
    own["variables"]["who"] = {"type": "category", "identifier": True}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    data = DataSource(f"{folder}/north.parquet", "", "own.yaml", "north", tmp_path)
    tables = []
    for yes in (True, False):
        large(yes)
        tables.append(open_table(terms, "north", data, 20, key=b"key"))
    assert tables[0].marks == tables[1].marks
    assert on_disk(tables[0].halves(0).train)
    for one, other in zip(*(t.halves(0) for t in tables), strict=True):
        pd.testing.assert_frame_equal(one.astype({"grade": object}), other, check_column_type=False)


def test_a_large_table_without_identifiers_is_refused_where_patients_are_remembered(
    folder, large, tmp_path
):
    (tmp_path / "s.yaml").write_text(NETWORK.format(folder=folder))
    terms = Terms.of(tmp_path / "s.yaml")
    data = DataSource("north.parquet", "", None, "north", folder)
    large(True)
    with pytest.raises(Refused, match=r"known by identifiers alone\. Mark one in the site's own"):
        open_table(terms, "north", data, 20, key=b"key")


def test_fewer_draws_of_a_large_table_are_said(folder, large, monkeypatch):
    frame = problem(folder, "survival").frames["north"]
    large(True)
    table = layout.Table(
        problem(folder, "survival").frames["north"], None, dictionary("survival"), None, 1, "", ""
    )
    monkeypatch.setattr(layout, "DRAWN", 4 * len(frame))

    class Plan:
        seed, draws = 1, 200

    with pytest.warns(UserWarning, match="evaluate.draws is 200, and 4 draws of 4,500 rows"):
        assert layout.drawn(Plan(), table).shape == (4, 4500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Plan.draws = 3
        assert layout.drawn(Plan(), table).shape == (3, 4500)
