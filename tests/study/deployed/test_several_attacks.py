"""What a coordinator of its own choosing may ask of regressions of several classes: nothing new.

Calls go to sites of an approved study, as over a network: arguments, views and classes that the
study does not give are refused before a row is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

import several
from deployed_cases import terms_of as study_of
from fedcohort.algorithms.multinomial.steps import freed, slopes, tally
from fedcohort.data import exact, prepare
from fedcohort.metrics.sums.classes import sum_classes
from fedcohort.metrics.sums.values import count_labels
from fedcohort.protocol import FedcohortError, Refused
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.at_site.consent import Consent
from fedcohort.study.at_site.judging import Seen
from fedcohort.study.at_site.pins import Pins
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.sites import LocalSites

STUDY = """\
study: grades
task: classification
data: {{dictionary: d.yaml, outcome: {{y: grade, type: {type}}}}}
arms: [{{method: {method}}}]
bounds: []
evaluate: {{repeats: 1}}
"""
LAWS = {"multinomial": "category", "ordinal": "ordinal"}


@pytest.fixture(scope="module", params=LAWS)
def asked(request, tmp_path_factory):
    """Return the method, the terms, a federation of a fit, and the honest preprocessing."""
    method, folder = request.param, tmp_path_factory.mktemp("attacks")
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": several.DICTIONARY}))
    (folder / "s.yaml").write_text(STUDY.format(type=LAWS[method], method=method))
    terms = Terms.of(folder / "s.yaml")
    tables = [
        SiteTable.of(terms, str(s), rows.drop(columns="site").reset_index(drop=True))
        for s, rows in several.patients(420).groupby("site")
    ]
    sites = LocalSites(terms, tables, min_cell=5)

    def opened(session: str = "fit-r0000-a00") -> Any:
        return sites.federation(session, quorum=1.0, ledger=Ledger(5), journal=None, observer=None)

    design = prepare.fit_design(
        opened(), terms.seen, terms.learnt, scale="none", impute="median", min_cell=5
    )
    return method, terms, opened, design


def given(method: str, design: Any, **changes: Any) -> dict[str, Any]:
    """Return the arguments of an honest first round of `slopes`, with changes."""
    p, k = len(design.features), len(design.classes)
    n = (k - 1) * (p + 1) if method == "multinomial" else k - 1 + p
    gamma = np.zeros(n)
    if method == "ordinal":
        gamma[: k - 1] = np.arange(k - 1.0)
    start = {
        "law": method, "classes": k, "centre": np.zeros(p), "scale": np.ones(p), "gamma": gamma,
    }  # fmt: skip
    return start | changes


def test_an_honest_round_is_answered(asked):
    method, _, opened, design = asked
    fed = opened().through(design)
    assert fed.sum(tally, classes=3).rows > 300
    assert np.isfinite(fed.sum(slopes, **given(method, design)).log_likelihood)


@pytest.mark.parametrize("change", [
    {"classes": 2}, {"classes": 4}, {"classes": 3.0}, {"classes": True}, {"law": "other"},
    {"law": ""},
])  # fmt: skip
def test_other_numbers_of_classes_and_laws_are_refused(asked, change):
    method, _, opened, design = asked
    with pytest.raises(FedcohortError, match=r"differs from its settings|is no|must be"):
        opened().through(design).sum(slopes, **given(method, design, **change))


def test_the_other_methods_law_is_refused(asked):
    method, _, opened, design = asked
    (other,) = {*LAWS} - {method}
    with pytest.raises(Refused, match="law of slopes differs"):
        opened().through(design).sum(slopes, **given(other, design))


@pytest.mark.parametrize("classes", [2, 4])
def test_counts_by_other_classes_are_refused(asked, classes):
    _, _, opened, design = asked
    with pytest.raises(Refused, match="classes of tally differs"):
        opened().through(design).sum(tally, classes=classes)


@pytest.mark.parametrize("change", [{"n_classes": 0}, {"n_classes": 4}, {"kinds": False}])
def test_what_singles_out_records_is_counted_by_the_studys_classes_alone(asked, change):
    _, _, opened, design = asked
    arguments = {
        "origin": np.zeros(len(design.features)), "link": "", "kinds": True, "n_classes": 3,
    } | change  # fmt: skip
    (step,) = (s for s in exact.STEPS if s.name == "isolation")
    with pytest.raises(FedcohortError, match=r"differs from its settings"):
        opened().through(design).sum(step, **arguments)


FORGED = [
    ("low", "mid"), ("low", "mid", "high", "none"), ("none", "low", "mid", "high"),
    ("low", "low", "mid", "high"), ("high", "mid", "low"), (), ("low",),
]  # fmt: skip


@pytest.mark.parametrize("classes", FORGED, ids=str)
def test_a_preprocessing_with_other_classes_is_refused_before_a_row_is_read(asked, classes):
    """Fewer would let an error name the rows of the missing one; others would shift the classes."""
    _, _, opened, design = asked
    with pytest.raises(Refused, match="other classes"):
        opened().through(replace(design, classes=classes)).sum(tally, classes=3)


def test_centre_and_scale_stay_the_first_ones(asked):
    method, _, opened, design = asked
    fed = opened().through(design)
    p = len(design.features)
    fed.sum(slopes, **given(method, design))
    fed.sum(slopes, **given(method, design, scale=np.full(p, 2.0)))
    for change in ({"centre": np.ones(p)}, {"scale": np.full(p, 3.0)}):
        with pytest.raises(Refused, match="differs from its first value"):
            fed.sum(slopes, **given(method, design, **change))


@pytest.mark.parametrize("gamma", [np.zeros(2), np.zeros(50), np.array([]), np.zeros((2, 2))])
def test_coefficients_of_another_length_give_nothing(asked, gamma):
    method, _, opened, design = asked
    with pytest.raises(FedcohortError):
        opened().through(design).sum(slopes, **given(method, design, gamma=gamma))


def test_the_test_of_proportional_odds_is_asked_of_ordinal_alone(asked):
    method, _, opened, design = asked
    arguments = given("ordinal", design)
    arguments.pop("law")
    if method == "ordinal":
        opened().through(design).sum(freed, **arguments)
        with pytest.raises(Refused, match="classes of freed"):
            opened().through(design).sum(freed, **arguments | {"classes": 4})
        return
    with pytest.raises(FedcohortError):
        opened().through(design).sum(freed, **arguments)


def test_sums_by_class_need_a_model_of_the_blind_rows(asked):
    _, _, opened, design = asked
    for view in (Seen("train"), Seen("blind"), Seen("all"), design):
        with pytest.raises(FedcohortError):
            opened("judge-r0000-a00").through(view).sum(sum_classes)
        with pytest.raises(FedcohortError):
            opened("judge-r0000-a00").through(design).sum(count_labels, edges=np.array([0.5]))


@pytest.mark.parametrize("spec", ["[2, 4]", "{choose: [2, 4]}"])
def test_no_more_centroids_than_the_largest_that_may_be_proposed(tmp_path, spec):
    terms = study_of(
        tmp_path, "gbsg2", "[{method: kmeans}]", task="clustering", bounds="[]",
        tune=f"{{by: row-kfold, trials: 2, space: {{n_clusters: {spec}}}}}",
    )  # fmt: skip
    consent = Consent(terms, "tune", terms.plan.arms[0], seed_of(terms.plan, 0))
    assert isinstance(consent._pins, Pins)
    assert consent._pins.most_clusters == 4
    assert Session.parse("tune-r0000-a00-n00009", terms).number == 9
