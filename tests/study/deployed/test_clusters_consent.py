"""What sites refuse of a coordinator who looks for clusters: the outcome, other settings, rows."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deployed_cases import NAMES, frames_of, tables_of
from fedcohort.data.prepare import STEPS as PREPROCESS
from fedcohort.data.prepare import fit_design
from fedcohort.metrics.sums import clusters as sums_of
from fedcohort.metrics.sums.power_sums import Moments
from fedcohort.privacy.disclosure.numbers import SHARE
from fedcohort.protocol import Refused, VerbRefused, registry
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.wire import encode
from fedcohort.runtime.local import local
from fedcohort.study.at_site import cluster_sites
from fedcohort.study.at_site.cluster_sites import own_hidden
from fedcohort.study.at_site.placing import Clustered
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.file.terms import Terms
from fedcohort.training.clusters.partition import Cells, sum_near
from fedcohort.training.clusters.points import PLAIN
from fedcohort.training.clusters.seeding import own_centroids

MORE = "the coordinator asks for more than the approved study"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Terms with survival beside the clusters, a site's table, and the design of the fit."""
    folder = tmp_path_factory.mktemp("consent")
    (folder / "s.yaml").write_text(
        "study: net\ntask: clustering\n"
        "data: {source: 'sample:gbsg2', outcome: {time: time, event: cens}}\n"
        "arms: [{method: kmeans, seeding: sites}]\nbounds: [isolated]\nevaluate: {repeats: 1}\n"
    )
    terms = Terms.of(folder / "s.yaml")
    tables = tables_of(terms, frames_of("gbsg2"))
    return terms, tables[0], designed(terms, tables, terms.seen, None)


def designed(terms, tables, dictionary, outcome):
    hosts = [Host(t.site, t.halves(0).train, PREPROCESS, 0) for t in tables]
    return fit_design(
        local(hosts), dictionary, outcome, scale="standard", impute="median", min_cell=5
    )


def asked(host, step, view, **arguments):
    return host.answer(
        Call(0, step, step.verb, view, Arguments(arguments, ()), among=NAMES), arguments
    )


def model_of(design, k, method="kmeans"):
    """Return the text of a k-means model with k clusters."""
    p = len(design.features)
    made = registry.find(method).model(
        features=tuple(design.features), centroids=np.arange(k * p, dtype=float).reshape(k, p),
        counts=np.full(k, 50), variance=np.ones((k, p)), groups=np.zeros(0, np.int64), inertia=1.0,
        rounds=1, converged=True, moving=0, dropped=0,
    )  # fmt: skip
    meta = {"method": method, "meta": made.meta(), "design": design.to_json()}
    return base64.b64encode(encode(made.arrays(), meta)).decode()


def test_a_fits_rows_have_no_column_of_an_outcome_that_only_judges(here):
    terms, table, _ = here
    assert {"time", "cens"} <= set(table.frame.columns)
    host = open_session(terms, table, "fit-r0000-a01", 5)
    assert not {"time", "cens"} & set(host.data_through(None).columns)


@pytest.mark.parametrize("outcome", [True, False])
def test_the_outcome_is_refused_as_a_feature_and_as_an_outcome_of_a_fit(here, outcome):
    terms, table, good = here
    if outcome:
        bad = designed(terms, [table], terms.dictionary, terms.outcome)
    else:
        bad = designed(terms, [table], terms.dictionary, None)
    at = np.zeros((1, len(bad.features)))
    cells = Cells.around(at)
    ask = {"path": cells.path, "moves": cells.moves, "about": at, "unscaled": False, **PLAIN.given}
    host = open_session(terms, table, "fit-r0000-a01", 5)
    with pytest.raises(Refused, match=MORE):
        asked(host, sum_near, bad, **ask)
    at = np.zeros((1, len(good.features)))
    cells = Cells.around(at)
    ask |= {"path": cells.path, "moves": cells.moves, "about": at}
    assert asked(host, sum_near, good, **ask).reply is not None


@pytest.mark.parametrize(
    "change", [{"k": 4}, {"k": 200}, {"least": 4}, {"least": 1}, {"restarts": 26}], ids=str
)
def test_a_fit_is_asked_for_its_own_number_of_clusters_and_least_cell_alone(here, change):
    terms, table, design = here
    host = open_session(terms, table, "fit-r0000-a01", 5)
    good = {"k": 3, "restarts": 25, "least": 5, **PLAIN.given}
    assert asked(host, own_centroids, design, **good).reply is not None
    with pytest.raises(Refused, match=MORE):
        asked(host, own_centroids, design, **{**good, **change})


def test_a_judge_is_sent_no_more_clusters_than_the_study_has_and_no_other_least_cell(here):
    terms, table, design = here
    host = open_session(terms, table, "judge-r0000-a01", 5)
    fine = Clustered(model_of(design, 3))
    assert asked(host, cluster_sites.tell_hidden, fine, min_cell=5).reply is not None
    with pytest.raises(Refused, match=MORE):
        asked(host, cluster_sites.tell_hidden, fine, min_cell=4)
    with pytest.raises(Refused, match="more clusters than its settings give"):
        asked(host, sums_of.count_clusters, Clustered(model_of(design, 4)))


def test_values_of_training_rows_are_summed_by_no_judge(here):
    terms, table, design = here
    host = open_session(terms, table, "judge-r0000-a01", 5)
    blind = Clustered(model_of(design, 3))
    train = dataclasses.replace(blind, half="train")
    origin = np.zeros(len(design.features))
    assert asked(host, sums_of.sum_scatter, blind, origin=origin).reply is not None
    assert asked(host, sums_of.count_clusters, train).reply is not None
    for step, more in (
        (sums_of.sum_scatter, {"origin": origin}),
        (sums_of.sum_powers, {"centre": np.zeros(5)}),
        (sums_of.sum_spread, {"origin": np.zeros(0)}),
        (sums_of.count_levels, {}),
    ):
        with pytest.raises(Refused, match="values of training rows by cluster"):
            asked(host, step, train, **more)


def test_a_model_of_no_arm_is_not_compared_with(here):
    terms, table, design = here
    host = open_session(terms, table, "judge-r0000-a01", 5)
    one, other = model_of(design, 3), model_of(designed(terms, [table], terms.dictionary, None), 3)
    assert asked(host, sums_of.count_flow, Clustered(one, before=one)).reply is not None
    for bad in (other, model_of(design, 4)):
        with pytest.raises(Refused, match="a model of no arm"):
            asked(host, sums_of.count_flow, Clustered(one, before=bad))


def test_a_site_alone_tells_how_good_its_own_clusters_are_and_nothing_else(here):
    terms, table, design = here
    host = open_session(terms, table, "alone-r0000-a00", 5)
    own = Clustered("")
    assert asked(host, cluster_sites.tell_own_groups, own, min_cell=5).reply is not None
    with pytest.raises(VerbRefused):
        asked(host, sums_of.count_clusters, own)
    with pytest.raises(Refused, match="another model than its own"):
        asked(host, cluster_sites.tell_own_groups, Clustered(model_of(design, 3)), min_cell=5)


@given(
    counts=arrays(np.int64, st.integers(2, 8), elements=st.integers(0, 30)),
    least=st.integers(1, 8),
)
def test_what_a_site_hides_is_of_many_together_and_what_it_shows_is_of_none_or_many(counts, least):
    hidden = own_hidden(counts, least)
    assert not ((counts[~hidden] > 0) & (counts[~hidden] < least)).any()
    if hidden.any() and not hidden.all():
        assert hidden.sum() > 1
        assert counts[hidden].sum() >= least


@given(
    values=st.lists(st.floats(-100, 100), min_size=1, max_size=40),
    lonely=st.lists(st.floats(-1e4, 1e4), max_size=3),
    least=st.integers(2, 6),
)
def test_a_mean_that_fourth_powers_let_pass_is_made_by_no_few_values(values, lonely, least):
    x = np.array(values + lonely)
    told = Moments(len(x), np.array([np.sum(x**p) for p in (1, 2, 3, 4)]))
    assert told.mean == pytest.approx(x.mean(), abs=1e-9)
    if told.may_be_shown(least) and x.std() > 1e-3 * np.abs(x).max():
        d = np.sort((x - x.mean()) ** 2)
        others = len(x) - (least - 1)
        assert len(x) >= 2 * least
        assert d[:others].sum() >= (SHARE - 1e-6) * d[others:].sum()
