"""What `glm` refuses, and how it says so: outcomes, links, covariates, offsets, rare counts."""

from __future__ import annotations

import numpy as np
import pytest

from algorithms.glm_cases import federation, fit, scattered, simulated
from fedcohort.algorithms.glm import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    SettingError,
    SingularInformation,
    SiteUnavailable,
)


def refused(error, parts, *arguments, **settings):
    with pytest.raises(error) as caught:
        fit(parts, *arguments, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def counts(n=300, seed=0):
    return simulated("poisson", "log", n=n, seed=seed)


@pytest.mark.parametrize(
    ("family", "bad", "said"),
    [
        ("poisson", -3.25, "the outcome is below 0 in row 8"),
        ("poisson", 3.25, "the outcome is no whole number in row 8"),
        ("gamma", 0.0, "the outcome is not above 0 in row 8"),
    ],
)
def test_an_outcome_that_the_family_cannot_have_is_named_by_row_and_never_by_value(
    family, bad, said
):
    table = simulated(family, "log", n=60)
    table.y[7] = bad
    message = refused(DataError, [simulated(family, "log", n=60), table], family)
    assert message.startswith(f"site 'site-1': {said}, and family {family!r} cannot have that. ")
    assert "3.25" not in message


def test_a_level_without_events_is_named_with_the_remedy():
    table = counts()
    x, y = table.x.copy(), table.y.copy()
    y[x[:, 2] == 1] = 0.0
    table = table._replace(x=x, y=y)
    message = refused(
        NotConverged, scattered(table, 3), "poisson", "log", ("age", "dose", "grade=IV")
    )
    assert message == (
        "the likelihood rises without limit along 'grade=IV': where these covariates are high, or "
        "where they are low, every count is 0. Drop them, join rare levels, or refit with a ridge "
        "penalty (l2 > 0)."
    )
    assert np.isfinite(fit(scattered(table, 3), "poisson", l2=0.01).coefficients).all()


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_separation_is_named_under_every_binomial_link(link):
    table = simulated("binomial", "logit", n=200)
    x = table.x.copy()
    x[:, 1] = table.y * 2 + np.random.default_rng(0).random(200)
    message = refused(
        NotConverged, scattered(table._replace(x=x), 3), "binomial", link, ("age", "dose", "sex")
    )
    assert "rises without limit along 'dose': separation" in message


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_collinear_and_constant_covariates_are_named(family):
    table = simulated(family, "log")
    x = np.column_stack([table.x, table.x[:, 1] - 2 * table.x[:, 2]])
    message = refused(
        SingularInformation, scattered(table._replace(x=x), 3), family, "log", tuple("abcd")
    )
    assert message.startswith("covariates 'b', 'c', 'd' are collinear (eigenvalue ratio ")
    x[:, 3] = 7.3
    message = refused(
        SingularInformation, scattered(table._replace(x=x), 3), family, "log", tuple("abcd")
    )
    assert message.startswith("covariate 'd' is constant (eigenvalue ratio ")


def test_fewer_counts_above_zero_than_min_cell_are_refused_over_sites_only():
    table = counts(120)
    y = np.zeros(120)
    y[[3, 50, 90]] = 1.0
    table = LabelledTable(table.x[:, 1:2], y)
    message = refused(DataError, scattered(table, 3), "poisson")
    assert message.startswith("there are fewer than 5 counts above 0 at all sites together")
    alone, over = fit([table], "poisson"), fit(scattered(table, 3), "poisson", min_cell=3)
    np.testing.assert_allclose(over.coefficients, alone.coefficients, rtol=1e-7)


def test_counts_that_are_all_zero_are_refused():
    table = counts(60)
    message = refused(DataError, [table._replace(y=np.zeros(60))], "poisson")
    assert message.startswith("every count of 60 records is 0, and a fit needs events.")


@pytest.mark.parametrize(
    ("outcome", "family", "said"),
    [
        (
            "binary",
            "poisson",
            "family 'poisson' does not go with a binary outcome; give",
        ),
        (
            "count",
            "binomial",
            "family 'binomial' does not go with a count outcome; give",
        ),
        ("category", "auto", "method 'glm' has no family for an outcome of type 'category'; give"),
    ],
)
def test_an_outcome_that_does_not_go_with_the_family_is_named(outcome, family, said):
    assert refused(SettingError, [counts()], family, outcome=outcome).startswith(said)


def test_links_and_families_are_checked_before_anything_is_asked():
    with pytest.raises(SettingError, match="link 'logit' does not go with family 'gamma'"):
        METHOD.configure({"family": "gamma", "link": "logit"})
    message = refused(SettingError, [counts()], "auto", "logit", outcome="count")
    assert message.startswith("link 'logit' does not go with family 'poisson', the family of")


def test_an_offset_that_is_no_logarithm_is_named():
    table = counts(60)
    x = np.column_stack([table.x, np.full(60, 5000.0)])
    message = refused(DataError, [table._replace(x=x)], "poisson", offset=True)
    assert message.startswith("site 'site-0': the offset is beyond ±300 in rows 1, 2, 3, 4, 5, …")
    assert message.endswith("Give the logarithm of the exposure.")


def test_an_outcome_whose_mean_the_link_cannot_reach_is_refused():
    table = simulated("gaussian", "identity", n=80)
    message = refused(DataError, [table._replace(y=-np.abs(table.y))], "gaussian", "log")
    assert message.startswith("the outcome's mean over all sites is 0 or below")


def test_no_degree_of_freedom_for_the_dispersion_is_refused():
    table = simulated("gaussian", "identity", n=4)
    table = table._replace(x=table.x + np.eye(4)[:, :3])
    message = refused(SingularInformation, [table], "gaussian", min_cell=1)
    assert message.startswith("4 records leave no degree of freedom for the dispersion")


@pytest.mark.parametrize("family", ["gaussian", "gamma"])
def test_an_outcome_that_is_constant_or_a_covariate_is_refused(family):
    table = simulated(family, "log", n=80)
    message = refused(DataError, scattered(table._replace(y=np.full(80, 2.5)), 3), family, "log")
    assert message.startswith("the outcome is the same in all records, or the covariates predict")
    if family == "gaussian":
        assert message == refused(DataError, scattered(table._replace(y=table.x[:, 1]), 3), family)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_a_gaussian_outcome_does_not_matter(unit):
    table = simulated("gaussian", "log")
    a = fit(scattered(table, 3), "gaussian", "log")
    b = fit(scattered(table._replace(y=unit * table.y), 3), "gaussian", "log")
    np.testing.assert_allclose(b.coefficients, a.coefficients, rtol=1e-6)
    np.testing.assert_allclose(b.standard_errors, a.standard_errors, rtol=1e-6)
    assert b.rounds == a.rounds


def test_no_covariates_besides_an_offset_are_refused():
    table = counts(60)
    message = refused(DataError, [table._replace(x=table.x[:, :1])], "poisson", offset=True)
    assert message.startswith("there are no covariates")


def test_a_site_that_leaves_ends_the_fit():
    parts = scattered(counts(), 3)
    leaves = federation(parts, quorum=0.5, absent=lambda call, site: call > 2 and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit(parts, "poisson", fed=leaves)


def test_means_at_the_edge_of_the_link_are_said_to_be():
    table = counts()
    x, y = table.x.copy(), table.y.copy()
    y[x[:, 2] == 1] = 0.0
    message = refused(NotConverged, scattered(table._replace(x=x, y=y), 3), "poisson", "sqrt")
    assert message.endswith(
        "The means that fit best are at the limit of link 'sqrt'. Choose another link, such as "
        "'log'."
    )


@pytest.mark.parametrize(("family", "link"), [("poisson", "sqrt"), ("gamma", "inverse")])
def test_an_offset_that_leaves_no_start_is_refused_with_the_remedy(family, link):
    table = simulated(family, "log", n=60)
    shift = np.linspace(-50, 50, 60)
    table = table._replace(x=np.column_stack([table.x, shift]))
    message = refused(NotConverged, [table], family, link, offset=True)
    assert message.startswith(f"with this offset, link {link!r} has impossible means at the")


def test_rounds_that_are_over_are_not_asked_to_be_raised_beyond_the_most():
    parts = scattered(counts(), 2)
    said = refused(NotConverged, parts, "poisson", max_rounds=1)
    assert "Raise max_rounds (up to 50)" in said
