"""What a site of `meta_analysis` reveals, which sites are left out and why, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.meta_cases import SIZES, federation, fit, rossi, tables
from algorithms.mixed_cases import simulated
from fedcohort.algorithms.meta_analysis import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError, SettingError, Task

# what leaves a site, and who is left out --------------------------------------------------


def test_one_round_reveals_coefficients_and_errors_and_covariances_where_asked():
    parts = simulated(SIZES, 0.5, 3)
    for pool, shape in (("random", [0, 0]), ("multivariate", [3, 3])):
        fed = federation(parts)
        fit(parts, fed=fed, pool=pool)
        lines = [json.loads(line) for line in fed.ledger.lines]
        assert {(e["step"], e["verb"], e["call"]) for e in lines} == {("own_fit", "gather", 0)}
        assert all(e["fields"]["covariance"]["shape"] == shape for e in lines)
        assert len(fed.history) == 1
    said = METHOD.reveals_with
    assert "covariance" in said(METHOD.configure({"pool": "multivariate"}))
    assert "covariance" not in said(METHOD.configure({}))


def broken(family="gaussian"):
    """Return two sound sites, and what can be wrong with a third."""
    return simulated((60, 70, 50), 0.3, 7, family)


def left_out(parts, family="gaussian", **options):
    ours = fit(parts, family, **options)
    assert ours.names == ("site-0", "site-1")
    (why,) = ours.left_out.values()
    assert list(ours.left_out) == ["site-2"]
    sound = fit(parts[:2], family, **options)
    assert_allclose(ours.coefficients, sound.coefficients, rtol=1e-12)
    return why


@pytest.mark.parametrize("n", [0, 1, 3, 7])
def test_a_site_of_few_records_is_left_out(n):
    a, b, c = broken()
    c = LabelledTable(c.x[:n], c.y[:n])
    assert left_out([a, b, c]).startswith("fewer than 5 records more than coefficients (min_cell)")


def test_a_site_with_few_of_a_class_few_counts_or_few_events_is_left_out():
    a, b, c = broken("binomial")
    rare = c._replace(y=(np.arange(50) < 4).astype(float))
    said = "fewer than 5 records of one class (min_cell); join the site with another"
    assert left_out([a, b, rare], "binomial") == said
    assert left_out([a, b, rare._replace(y=1 - rare.y)], "binomial") == said
    assert left_out([a, b, rare._replace(y=np.ones(50))], "binomial") == said
    a, b, c = broken("poisson")
    assert left_out([a, b, rare], "poisson").startswith("fewer than 5 counts above 0")
    a, b, c = rossi(3)
    quiet = c._replace(event=np.zeros(len(c.time), bool))
    assert left_out([a, b, quiet], "cox").startswith("fewer than 5 events (min_cell)")


def test_a_site_where_few_records_have_a_level_is_left_out_and_the_covariate_named():
    a, b, c = (p._replace(x=np.column_stack([p.x, p.x[:, 0] > 0])) for p in broken())
    c.x[:, 2] = np.arange(50) < 4
    said = left_out([a, b, c], features=("age", "sex", "grade=IV"))
    assert said.startswith("fewer than 5 records differ from the most common value of 'grade=IV'")
    c.x[:, 2] = 1 - c.x[:, 2]
    assert "'grade=IV'" in left_out([a, b, c], features=("age", "sex", "grade=IV"))


def test_a_site_with_collinear_covariates_is_left_out_and_they_are_named():
    a, b, c = broken()
    c.x[:, 1] = 3 - 2 * c.x[:, 0]
    said = left_out([a, b, c], features=("age", "dose"))
    assert said == "'age', 'dose': constant or collinear there; drop one"


@pytest.mark.parametrize("family", ["binomial", "cox"])
def test_a_site_with_separation_is_left_out_and_the_covariate_named(family):
    a, b, c = broken("binomial") if family == "binomial" else rossi(3)
    if family == "binomial":
        c.x[:, 1] = c.y + 0.1 * np.arange(50) / 50
    else:
        c.x[:, 1] = c.event
    features = ("age", "dose") if family == "binomial" else ("age", "dose", "sex")
    said = left_out([a, b, c], family, features=features)
    assert said.startswith("'dose'")
    assert "separation" in said


def test_a_site_whose_fit_does_not_end_is_left_out():
    a, b, c = broken("poisson")
    calm = [p._replace(y=np.where(np.arange(len(p.y)) % 2, 2.0, 1.0)) for p in (a, b)]
    wild = c._replace(y=np.round(np.exp(2 * c.x[:, 0] + 2)))
    said = left_out([*calm, wild], "poisson", features=("age", "dose"), max_rounds=5)
    assert said == "its fit did not converge, mostly along 'age'; raise max_rounds, or drop it"


# what is refused --------------------------------------------------------------------------


def refused(error, parts, family="gaussian", **options):
    with pytest.raises(error) as caught:
        fit(parts, family, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_fewer_than_two_sites_with_coefficients_are_refused_and_the_reasons_given():
    a, _, c = broken()
    c.x[:, 1] = 7.0
    few = LabelledTable(a.x[:4], a.y[:4])
    said = refused(DataError, [a, few, c], features=("age", "dose"))
    assert said.startswith("1 site gives coefficients, and pooling needs 2 or more. Left out are ")
    assert "site-1: fewer than 5 records more" in said
    assert "site-2: fewer than 5 records differ from the most common value of 'dose'" in said
    assert refused(DataError, [a]).endswith("Bring more sites, or take 'glm' or 'cox'.")
    said = refused(DataError, [LabelledTable(a.x[:3], a.y[:3])], pool="fixed")
    assert said.startswith("no site gives coefficients, and pooling needs 1 or more.")
    assert "site-0: fewer than 1 records more than coefficients" in said


@pytest.mark.parametrize(
    ("family", "value"), [("binomial", 2.0), ("poisson", 0.5), ("gamma", 0.0), ("poisson", -1.0)]
)
def test_an_outcome_that_the_family_cannot_have_is_refused_and_the_site_named(family, value):
    parts = tables(family)
    parts[2].y[5] = value
    said = refused(DataError, parts, family)
    assert said.startswith(
        f"the outcome has values that family '{family}' cannot have, at 'site-2'."
    )


@pytest.mark.parametrize(
    ("kind", "given_", "said"),
    [
        ("regression", {"family": "binomial"}, "family 'binomial' of method 'meta_analysis' does"),
        (
            "classification",
            {"family": "poisson"},
            "family 'poisson' of method 'meta_analysis' does",
        ),
        ("regression", {"link": "logit"}, "link 'logit' of method 'meta_analysis' does not go"),
        ("survival", {"family": "poisson"}, "family and link of method 'meta_analysis' are not"),
    ],
)
def test_a_family_or_link_that_does_not_go_with_the_outcome_is_refused(kind, given_, said):
    with pytest.raises(SettingError) as caught:
        METHOD.fit(
            federation(broken()), METHOD.configure(given_), Task(kind=kind, features=("a", "b"))
        )
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"tol": 0.5}, "setting 'tol' of method 'meta_analysis' is 0.5; give a number between"),
        ({"max_rounds": 0}, "setting 'max_rounds' of method 'meta_analysis' is 0; give a whole"),
        ({"level": 1.0}, "setting 'level' of method 'meta_analysis' is 1.0; give a number"),
        ({"family": "poisson", "link": "logit"}, "link 'logit' of method 'meta_analysis' does not"),
    ],
)
def test_an_impossible_setting_is_named(given_, said):
    with pytest.raises(SettingError) as caught:
        METHOD.configure(given_)
    assert str(caught.value).startswith(said)


def test_no_covariates_are_refused():
    with pytest.raises(DataError, match="there are no covariates"):
        METHOD.fit(federation(broken()), METHOD.configure({}), Task(kind="regression", features=()))


def test_a_site_that_is_away_is_left_out_of_the_pool():
    parts = simulated(SIZES, 0.5, 3)
    away = federation(parts, quorum=0.5, absent=lambda call, site: site == "site-1")
    ours = fit(parts, fed=away)
    assert ours.names == ("site-0", "site-2", "site-3")
    assert_allclose(ours.coefficients, fit([parts[0], *parts[2:]]).coefficients, rtol=1e-12)


@pytest.mark.parametrize("constant", [True, False])
def test_a_site_whose_outcome_leaves_no_spread_is_left_out(constant):
    a, b, c = broken()
    said = left_out([a, b, c._replace(y=np.full(50, 3.7) if constant else 2 * c.x[:, 0] + 1)])
    assert said.startswith("the outcome has one value there, or the covariates predict it")


def test_many_sites_without_coefficients_share_one_line():
    parts = simulated([7] * 30, 0.3, 1)
    with pytest.raises(DataError) as caught:
        fit(parts)
    assert ". Left out are site-0, site-1, " in str(caught.value)
    assert "and 25 more: fewer than 5 records more than coefficients" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_offset_that_is_no_logarithm_is_named_by_row():
    parts = simulated((60, 70), 0.3, 7, "poisson")
    long = [p._replace(x=np.column_stack([p.x, np.full(len(p.y), 1.0)])) for p in parts]
    long[1].x[4, -1] = 365.25
    with pytest.raises(DataError, match=r"'site-1': the offset is beyond ±300 in row 5;") as caught:
        fit(long, "poisson", features="abc", task={"offset": True})
    assert "365" not in str(caught.value)
