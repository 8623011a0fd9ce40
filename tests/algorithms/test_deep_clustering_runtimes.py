"""Deep clustering on every runtime, after a kill, under the rules of a study, and by name."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from algorithms.deep_clustering_cases import config_of, groups, split, task_of
from conformance.cases import RUNTIMES
from fedcohort.algorithms.deep_clustering import METHOD
from fedcohort.data.tables import FeatureTable
from fedcohort.models.network import initial
from fedcohort.protocol import SettingError, VerbRefused, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.journal import Journal
from fedcohort.study.run.warnings import free_parameters

X, GROUP = groups(120)
PARTS = split(X, np.arange(len(X)) % 3)
SHORT = {"rounds": 3, "cluster_rounds": 3}
WAYS = {
    "sums alone": {},
    "own centroids": {"centroids": "double_kmeans", "latent_scale": "l2", "dropout": 0.2},
    "layer by layer": {"pretrain": "layerwise", "noise": "flip", "gamma": 0.5, "patience": 2},
    "each site seen": {"aggregation": "median", "latent_scale": "standard"},
    "a number chosen": {"n_clusters": "auto", "k_range": (2, 3)},
}
every_way = pytest.mark.parametrize("way", sorted(WAYS))


class Killed(BaseException):
    """Stands for the end of the process."""


def run(way, runtime="local", *, order=(0, 1, 2), folder=None, **options):
    """Fit on a runtime; return the model's arrays as bytes, its meta, history and ledger."""
    names = sorted(PARTS)
    hosts = [Host(n, FeatureTable(PARTS[n]), METHOD.steps, 3) for n in (names[i] for i in order)]
    journal = None
    if folder is not None:
        journal = options["journal"] = Journal(folder / "journal")
    fed = RUNTIMES[runtime](hosts, folder, **options)
    try:
        model = METHOD.fit(fed, config_of(**SHORT, **WAYS[way]), task_of(X))
    finally:
        if journal is not None:
            journal.close()
    arrays = {k: a.tobytes() for k, a in model.arrays().items()}
    return arrays, model.meta(), repr(fed.history), fed.ledger.lines


@cache
def whole(way):
    """Return the fit on the local runtime."""
    return run(way)


@every_way
@pytest.mark.parametrize("runtime", ["remote", "threads"])
def test_runtimes_give_the_same_bytes(way, runtime):
    assert run(way, runtime) == whole(way)


@pytest.mark.parametrize("way", ["sums alone", "layer by layer"])
def test_masked_sums_give_the_same_bytes_as_sums_in_the_open(way):
    assert run(way, "remote, masked")[:3] == whole(way)[:3]


@every_way
def test_the_order_of_sites_changes_no_byte(way):
    assert run(way, order=(2, 0, 1)) == whole(way)


@every_way
@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_run_that_was_killed_resumes_to_the_same_end(way, share, tmp_path):
    calls = 1 + max(json.loads(line)["call"] for line in whole(way)[3])

    def kill(progress):
        if progress.call == int(share * calls):
            raise Killed

    with pytest.raises(Killed):
        run(way, "remote", folder=tmp_path, observer=kill)
    assert run(way, "remote", folder=tmp_path) == whole(way)


@every_way
def test_only_steps_that_the_settings_say_are_asked(way):
    config = config_of(**SHORT, **WAYS[way])
    allowed = {(s.name, s.verb) for s in METHOD.asked(config)}
    lines = [json.loads(line) for line in whole(way)[3]]
    assert {(e["step"], e["verb"]) for e in lines} <= allowed
    seen = {e["step"] for e in lines if e["verb"] == "gather"}
    assert bool(seen) == bool(config.visible)


@every_way
def test_whole_numbers_and_texts_are_asked_as_the_settings_bound_them(way):
    asked = []

    def watch(call, arguments):
        asked.append((call.step.name, dict(arguments)))

    hosts = [Host(n, FeatureTable(x), METHOD.steps, 3, consent=watch) for n, x in PARTS.items()]
    config, task = config_of(**SHORT, **WAYS[way]), task_of(X)
    METHOD.fit(RUNTIMES["local"](hosts, None), config, task)
    bounds = {**METHOD.bounds(config, task), "least": (task.min_cell,)}
    for step, arguments in asked:
        for name, value in arguments.items():
            if isinstance(value, (bool, int, str)):
                assert value in bounds[name], (step, name)


@every_way
def test_nothing_leaves_a_site_that_has_as_many_entries_as_it_has_rows(way):
    for line in map(json.loads, whole(way)[3]):
        for field in line["fields"].values():
            assert len(PARTS[line["site"]]) not in field["shape"], line["step"]


def test_what_leaves_is_said_for_the_settings():
    plain, own = config_of(), config_of(centroids="max_min")
    seen = config_of(aggregation="median")
    assert "which the coordinator sees" not in METHOD.reveals_with(plain)
    assert "own clusters" in METHOD.reveals_with(own)
    assert plain.visible == ""
    assert own.visible == "centroids: max_min"
    assert seen.visible == "aggregation: median"
    with pytest.raises(SettingError, match="krum"):
        config_of(aggregation="krum").check_sites(3)
    with pytest.raises(SettingError, match="needs 3 sites; there are 2"):
        config_of(n_clusters="auto", choose="consensus").check_sites(2)


def test_a_sum_is_refused_as_single_replies():
    hosts = [Host(n, FeatureTable(x), METHOD.steps, 3) for n, x in PARTS.items()]
    fed = RUNTIMES["local"](hosts, None)
    for step in METHOD.steps:
        if step.verb == "sum":
            with pytest.raises(VerbRefused):
                fed.gather(step)


def test_the_catalogue_fits_it_by_name_on_tables_with_names_and_missing_values():
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(X.shape[1])]).assign(
        hospital=np.arange(len(X)) % 3, flat=0
    )
    frame.loc[::17, "gene3"] = np.nan
    fed = fc.simulate(frame, sites="hospital", seed=1)
    with pytest.warns(UserWarning, match="free parameters|'flat' \\(constant\\)"):
        fit = fc.fit("deep_clustering", fed, **{**SHORT, "n_clusters": 3, "rounds": 20})
    assert registry.find("deep_clustering") is METHOD
    assert "flat" in fit.dropped
    member = fit.memberships(frame)
    assert member.shape == (len(X), 3)
    assert list(fit.sample(4)) == [f"gene{j}" for j in range(12)]
    assert fit.reconstruct(frame).shape == X.shape
    assert fit.summary["n"].sum() == len(X)
    with pytest.warns(UserWarning, match="constant"):
        alone = fc.fit("deep_clustering", fed, strategy="centralised", n_clusters=3, **SHORT)
    assert len(alone.predict(frame)) == len(X)


def test_the_free_parameters_are_those_of_the_network_and_its_centroids():
    """Of 12-8-2, tied, with three centroids: weights, biases of both ways, centroids."""
    expected = 12 * 8 + 8 * 2 + (8 + 2) + (8 + 12) + 3 * 2
    given = {"n_clusters": 3, "architecture": (8, 2)}
    assert free_parameters("deep_clustering", given, 12) == expected
    config = config_of(**given)
    assert len(initial(config.dec(12, 3).spec, 0)) == expected
