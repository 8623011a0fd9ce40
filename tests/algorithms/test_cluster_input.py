"""Tables that clusters are hard to find in, through `fc.fit` and through a study's run.

Each is handled, or refused in one line that names the column or the setting and no patient's value.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.protocol import FedcohortError

DEEP = {
    "architecture": [6, 2], "rounds": 2, "cluster_rounds": 1, "restarts": 2, "n_clusters": 3,
}  # fmt: skip
SHORT = {"kmeans": {"restarts": 3}, "kmodes": {"restarts": 3}, "hdp": {"iterations": 5}}
SHORT["deep_clustering"] = DEEP
METHODS = list(SHORT)
BINARY = {"kmodes": {}, "hdp": {}, "deep_clustering": {"binary": True}}
#: What stands for a patient's value, in no error.
ODD = 0.73219


def table(n=120, p=9, seed=0):
    """Return rows of zeros and ones of three groups."""
    rng = np.random.default_rng(seed)
    own = rng.integers(3, size=n)
    likely = np.where(np.arange(p) % 3 == own[:, None], 0.85, 0.1)
    return pd.DataFrame((rng.random((n, p)) < likely).astype(float)).add_prefix("gene")


def two_kinds(n=120):
    return pd.DataFrame({"a": [0.0, 1.0] * (n // 2), "b": [1.0, 0.0] * (n // 2)})


def fitted(method, frame, **settings):
    """Return a fit over three sites, and what it warned of."""
    if method == "hdp":
        pytest.importorskip("tomotopy")
    parts = {f"h{k}": frame[k::3].reset_index(drop=True) for k in range(3)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fc.fit(method, fc.simulate(parts), **{**SHORT[method], **settings})
    return fit, "\n".join(str(w.message) for w in caught)


def ran(method, frame, folder, **settings):
    """Return the results of a study of one arm."""
    if method == "hdp":
        pytest.importorskip("tomotopy")
    arm = {"method": method, **SHORT[method], **settings}
    data = frame.assign(centre=[f"h{k % 3}" for k in range(len(frame))])
    (folder / "study.yaml").write_text(
        "study: clusters\ntask: clustering\n"
        "data: {source: t.csv, outcome: null, sites: {column: centre}}\n"
        f"arms: [{json.dumps(arm)}]\nevaluate: {{repeats: 1, draws: 2}}\n"
    )
    return fc.Study.from_file(folder / "study.yaml", data=data).run(folder / "out")


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert str(ODD) not in text
    return text


@pytest.mark.parametrize("method", BINARY)
def test_a_column_that_is_not_binary_is_named_where_columns_must_be(method):
    frame = table().assign(gene3=np.linspace(0, ODD, 120))
    with pytest.raises(FedcohortError, match="column 'gene3' has other values than 0 and 1") as e:
        fitted(method, frame, **BINARY[method])
    one_line(e)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_column_is_left_out_by_name_and_missing_values_are_filled(method):
    frame = table().mask(np.random.default_rng(1).random((120, 9)) < 0.05).assign(flat=1.0)
    fit, said = fitted(method, frame)
    assert "leaves out 1 column: 'flat' (constant)" in said
    assert len(fit.predict(frame)) == 120


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_value_is_refused_by_column(method):
    with pytest.raises(FedcohortError, match="column 'gene2' is infinite") as error:
        fitted(method, table().assign(gene2=[np.inf, *[ODD] * 119]))
    one_line(error)


@pytest.mark.parametrize("method", ["kmeans", "kmodes", "deep_clustering"])
def test_more_clusters_than_rows_differ_are_dropped_with_a_warning_that_counts_them(method):
    fit, said = fitted(method, two_kinds(), n_clusters=4)
    assert len(fit.summary) == 2
    assert f"{method}: 2 of 4 clusters were dropped" in said


@pytest.mark.parametrize("method", ["kmeans", "kmodes", "deep_clustering"])
def test_more_clusters_than_all_rows_allow_are_refused_by_number(method):
    said = "'n_clusters' is 99, and 120 rows make at most 24 clusters of 5"
    with pytest.raises(FedcohortError, match=said) as error:
        fitted(method, table(), n_clusters=99)
    one_line(error)


@pytest.mark.parametrize(
    ("method", "given"),
    [("kmeans", {"seeding": "sites"}), ("deep_clustering", {"centroids": "random"})],
)
def test_sites_centroids_at_fewer_places_than_clusters_leave_fewer_clusters(method, given):
    fit, said = fitted(method, two_kinds(), n_clusters=4, **given)
    assert len(fit.summary) == 2
    assert f"{method}: 2 of 4 clusters were dropped" in said


@pytest.mark.parametrize("method", ["kmeans", "kmodes", "deep_clustering"])
def test_a_site_with_fewer_different_rows_than_clusters_takes_part(method):
    frame = table()
    frame.iloc[::3] = frame.iloc[0].to_numpy()
    fit, said = fitted(method, frame, n_clusters=3)
    assert sum(row for row in fit.summary["n"]) == 120
    assert "dropped" not in said


def test_a_study_says_how_many_clusters_were_dropped(tmp_path):
    found = ran("kmeans", two_kinds(), tmp_path, n_clusters=4)
    assert not found.failures
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    notes = [row["note"] for row in told["crowded"]]
    assert any(note.startswith("2 of 4 clusters were dropped") for note in notes)


@pytest.mark.parametrize("method", BINARY)
def test_a_study_names_a_column_that_is_not_binary(method, tmp_path):
    frame = table().assign(gene3=np.linspace(0, ODD, 120))
    (failure,) = ran(method, frame, tmp_path, **BINARY[method]).failures
    said = json.dumps(failure)
    assert "column 'gene3' has other values than 0 and 1" in said
    assert "Traceback" not in said
    assert str(ODD) not in said


@pytest.mark.parametrize("method", METHODS)
def test_a_study_takes_constant_columns_and_missing_values(method, tmp_path):
    frame = table().mask(np.random.default_rng(1).random((120, 9)) < 0.05).assign(flat=1.0)
    assert not ran(method, frame, tmp_path).failures
