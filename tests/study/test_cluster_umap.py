"""The map of simulated patients: of the saved model and the seed alone, never of a row."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.neighbors import NearestNeighbors

import fedcohort as fc
from cluster_studies import study as over_sites
from deployed_cases import frames_of, results_of, run_local, tables_of
from fedcohort.protocol import Fitted, NotSupported, StudyError
from fedcohort.study.judge.shown.cluster_umap import (
    DRAWN,
    EACH,
    MOST,
    first_of_each,
    shown_rows,
    umap_rows,
)
from fedcohort.study.results import saved
from fedcohort.study.sites.layout import seed_of

DEEP = "{method: deep_clustering, architecture: [8, 3], n_clusters: 3, rounds: 4, cluster_rounds: 2"
STUDY = f"""\
study: mapped
task: clustering
seed: 5
data:
  source: sample:gbsg2
  sites: {{split: iid, n: 3}}
arms: [{DEEP}}}, {{method: kmeans, n_clusters: 3}}]
evaluate: {{repeats: 1, draws: 2, umap: true}}
"""


def study(folder: Path, text: str = STUDY) -> fc.Study:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(text)
    return fc.Study.from_file(folder / "study.yaml")


def rows_of(content):
    keys = ("cluster", "x", "y")
    return [{k: r[k] for k in keys} for r in content["cluster_umap"]]


class Blobs(Fitted):
    """Normal patients about corners, the frequent ones first; it notes every row that it is shown.

    Its latent space has a constant beside x.
    """

    def __init__(self, corners, shares=None, spread=0.05):
        self.corners = np.asarray(corners, float)
        self.shares = np.full(len(corners), 1 / len(corners)) if shares is None else shares
        self.spread = spread
        self.drawn, self.seen = [], []

    def arrays(self):
        return {}

    def meta(self):
        return {}

    @classmethod
    def restore(cls, arrays, meta):
        raise NotImplementedError

    def predict(self, x):
        self.seen.append(x)
        far = ((x[:, None] - self.corners) ** 2).sum(axis=2)
        return far.argmin(axis=1)

    def transform(self, x):
        self.seen.append(x)
        return np.column_stack([x, np.ones(len(x))])

    def sample(self, n, rng):
        which = rng.choice(len(self.corners), n, p=self.shares)
        x = self.corners[which] + rng.normal(0, self.spread, (n, self.corners.shape[1]))
        self.drawn.append(x)
        return x


CORNERS = 3 * np.eye(4)[:3]


class Recorder:
    """Stands for UMAP, which takes 15 s to compile: it notes its points, and gives two columns."""

    given: ClassVar[list[np.ndarray]] = []

    def __init__(self, **settings):
        assert settings["n_jobs"] == 1
        assert isinstance(settings["random_state"], int)

    def fit_transform(self, z):
        self.given.append(z)
        return z[:, :2]


#: The package with `Recorder` in it.
UMAP = SimpleNamespace(UMAP=Recorder, __spec__=ModuleSpec("umap", None))


@pytest.fixture
def laid_out(monkeypatch) -> list[np.ndarray]:
    """Return the points that UMAP is given, with `Recorder` in its place."""
    monkeypatch.setattr(Recorder, "given", [])
    monkeypatch.setitem(sys.modules, "umap", UMAP)
    return Recorder.given


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> fc.Results:
    folder = tmp_path_factory.mktemp("mapped")
    return study(folder).run(folder / "out", debug=True)


@pytest.fixture(scope="module")
def sketched(tmp_path_factory) -> fc.Results:
    """Return the same study with `Recorder` in UMAP's place."""
    folder = tmp_path_factory.mktemp("sketched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "umap", UMAP)
        return study(folder).run(folder / "out", debug=True)


# whose points they are --------------------------------------------------------------------


def test_the_map_of_a_study_is_drawn_from_the_saved_model_and_the_seed_alone(done, tmp_path):
    assert not done.failures
    model = saved.read(done.folder / "models" / "deep_clustering").model
    seed = seed_of(study(tmp_path).plan, 0)
    assert rows_of(done.content) == umap_rows(model, seed)
    assert umap_rows(model, seed + 1) != umap_rows(model, seed)


def test_two_runs_of_a_study_give_equal_maps(done, tmp_path):
    again = study(tmp_path).run(tmp_path / "out", debug=True)
    assert rows_of(again.content) == rows_of(done.content) != []


def test_a_model_is_shown_nothing_but_what_it_drew_and_umap_nothing_else(laid_out):
    model = Blobs(CORNERS)
    umap_rows(model, 3)
    (drawn,), (z,) = model.drawn, laid_out
    known = {row.tobytes() for row in drawn}
    assert len(drawn) == DRAWN
    assert all(row.tobytes() in known for x in model.seen for row in x)
    assert all(row.tobytes() in known for row in np.ascontiguousarray(z[:, :-1]))


def test_a_place_is_listed_under_the_cluster_that_its_patient_is_of():
    rows = umap_rows(Blobs(CORNERS), 1)
    assert [r["cluster"] for r in rows] == [0, 1, 2]
    at = np.concatenate([np.column_stack([r["x"], r["y"]]) for r in rows])
    label = np.repeat([0, 1, 2], [len(r["x"]) for r in rows])
    # corners are 60 standard deviations apart, so that neighbours are of one cluster
    near = NearestNeighbors(n_neighbors=6).fit(at).kneighbors(at, return_distance=False)[:, 1:]
    assert (label[near] == label[:, None]).mean() == 1.0


def test_of_a_model_without_latent_space_the_features_are_laid_out(monkeypatch, laid_out):
    class Plain(Blobs):
        def transform(self, x):
            raise NotSupported("transform")

    one = umap_rows(Plain(CORNERS), 2)
    monkeypatch.setattr(Blobs, "transform", lambda self, x: x)
    assert one == umap_rows(Blobs(CORNERS), 2)
    assert_array_equal(laid_out[0], laid_out[1])
    assert laid_out[0].shape[1] == CORNERS.shape[1]


def test_places_have_two_decimals_and_clusters_that_may_not_be_shown_are_left_out(laid_out):
    model = Blobs(CORNERS)
    every = umap_rows(model, 4)
    values = np.array([v for r in every for v in r["x"] + r["y"]])
    assert_array_equal(values, np.round(values, 2))
    assert shown_rows(model, 4, np.array([True, False, True])) == [every[0], every[2]]
    # a cluster that no row of the study is of
    assert shown_rows(model, 4, np.array([True, True])) == every[:2]


def test_a_rare_cluster_has_the_patients_that_were_drawn(laid_out):
    rows = umap_rows(Blobs(CORNERS, [0.7, 0.29, 0.01]), 0)
    sizes = [len(r["x"]) for r in rows]
    assert sizes[:2] == [EACH, EACH]
    assert 0 < sizes[2] < EACH


def test_a_model_that_draws_none_or_few_has_no_map():
    class Mute(Blobs):
        def sample(self, n, rng):
            raise NotSupported("sample")

    class Few(Blobs):
        def sample(self, n, rng):
            return super().sample(8, rng)

    assert umap_rows(Mute(CORNERS), 0) == umap_rows(Few(CORNERS), 0) == []


@pytest.mark.parametrize("corners", [[[1.0]], [[0.5, 0.5]], np.eye(3)])
def test_patients_that_are_all_alike_are_laid_out_too(corners):
    rows = umap_rows(Blobs(corners, spread=0.0), 0)
    values = [v for r in rows for v in r["x"] + r["y"]]
    assert len(values) == 2 * EACH * len(corners)
    assert np.isfinite(values).all()


@given(st.lists(st.integers(0, 6), max_size=200), st.integers(1, 9), st.integers(1, 40))
def test_the_first_of_each_cluster_are_kept_and_not_too_many(labels, each, most):
    labels = np.array(labels, np.int64)
    rows = first_of_each(labels, each, most)
    k = len(set(labels.tolist()))
    assert len(rows) <= max(most, k)
    assert sorted(set(rows.tolist())) == rows.tolist()
    for c in set(labels.tolist()):
        own = [i for i in rows.tolist() if labels[i] == c]
        assert own == np.flatnonzero(labels == c)[: len(own)].tolist()
        assert 1 <= len(own) <= each


def test_there_are_some_hundred_points_at_most(laid_out):
    many = Blobs(9 * np.eye(40))
    assert sum(len(r["x"]) for r in umap_rows(many, 0)) <= MOST


# what a study says ------------------------------------------------------------------------


def test_arms_that_draw_no_patients_have_no_map_and_the_page_says_that_none_is_real(sketched):
    assert {r["arm"] for r in sketched.content["cluster_umap"]} == {"deep_clustering"}
    assert sum(len(r["x"]) for r in sketched.content["cluster_umap"]) <= MOST
    page = sketched.report().read_text("utf-8")
    assert "none of them real" in page
    assert "No real patient is on this map" in page


def test_off_by_default_and_then_the_package_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    one = study(tmp_path, STUDY.replace(", umap: true", ""))
    results = one.run(tmp_path / "out", debug=True)
    assert results.content["cluster_umap"] == []
    assert "umap" not in results.content["evaluate"]
    assert "UMAP" not in (results.folder / "report.html").read_text("utf-8")


def test_without_the_package_the_extra_is_named_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    said = r"study\.yaml, line 8, evaluate\.umap: .*pip install 'fedcohort\[umap\]'\.$"
    with pytest.raises(StudyError, match=said):
        study(tmp_path)
    with pytest.raises(NotSupported, match=r"pip install 'fedcohort\[umap\]'"):
        umap_rows(Blobs(CORNERS), 0)


def test_where_numba_can_write_nowhere_the_run_does_not_begin_and_a_line_says_what_to_set(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    # numba without the folders that it finds by itself
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-m", "fedcohort.apps.cli", "run", "study.yaml", "--out", "out"]
    told = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert told.returncode != 0
    assert "Set NUMBA_CACHE_DIR to a writable folder" in " ".join(told.stderr.split())
    assert "Traceback" not in told.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("umap: true", "umap: yes please", r"evaluate\.umap: expected true or false"),
        (f"{DEEP}}}, ", "", r"evaluate\.umap: .*no arm's method can draw any.*deep_clustering"),
        ("task: clustering", "task: survival", r"evaluate\.umap: this map is of clusters"),
    ],
)
def test_a_map_that_cannot_be_is_refused_in_one_line(tmp_path, old, new, said):
    text = STUDY.replace(old, new)
    if "survival" in new:
        text = text.replace(f"{DEEP}}}, {{method: kmeans, n_clusters: 3}}", "{method: cox}")
        text = text.replace("sites:", "outcome: {time: time, event: cens}\n  sites:")
    with pytest.raises(StudyError, match=said) as told:
        study(tmp_path, text)
    assert "\n" not in str(told.value)


def test_over_a_network_the_map_is_of_the_model_and_sites_need_no_package(tmp_path, monkeypatch):
    asked = {"arms": f"[{DEEP}}}]", "bounds": "[isolated]", "evaluate": "{repeats: 1, umap: true}"}
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "umap", None)
        terms = over_sites(tmp_path, **asked)
        tables = tables_of(terms, frames_of("gbsg2"))
        with pytest.raises(NotSupported, match=r"pip install 'fedcohort\[umap\]'"):
            run_local(terms, tables, tmp_path / "none")
        assert not (tmp_path / "none").exists()
    run_local(terms, tables, tmp_path / "out")
    model = saved.read(tmp_path / "out" / "models" / "deep_clustering").model
    found = rows_of(results_of(tmp_path / "out"))
    every = umap_rows(model, seed_of(terms.plan, 0))
    assert found
    assert all(row in every for row in found)
