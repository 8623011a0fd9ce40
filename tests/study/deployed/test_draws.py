"""An attack on repeats: sums over training rows, of which a coordinator knows who is in them.

With sets of rows known by their places, each repeat's sum of a column is one linear equation of the
column's values, and as many repeats as rows give the values. The attacker is granted the event of
every row, by which rows are drawn in proportion, and a site's own sums, which the coordinator sees.
"""

from __future__ import annotations

import numpy as np
import pytest

from deployed_cases import frames_of, tables_of, terms_of
from fedcohort.study.sites.splits import strata, stratified

REPEATS = 120


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    terms = terms_of(tmp_path_factory.mktemp("draws"), "gbsg2", "[{method: cox}]", repeats=REPEATS)
    frames = {s: f[:80] for s, f in frames_of("gbsg2").items()}
    return tables_of(terms, frames)[0]


def solved(site, sets):
    """Return the ages that the sums over the training rows of all repeats give."""
    ages = site.frame["age"].to_numpy(float)
    told = [ages[~site.blind(r)].sum() for r in range(REPEATS)]
    return np.linalg.lstsq((~sets).astype(float), np.array(told), rcond=None)[0], ages


def test_sums_over_known_rows_of_many_repeats_would_tell_them_all(site):
    found, ages = solved(site, np.array([site.blind(r) for r in range(REPEATS)]))
    died = site.frame["cens"].to_numpy() > 0
    for some in (died, ~died):  # as many of each are blind in every repeat: up to one number
        assert np.ptp((found - ages)[some]) < 1e-6


def test_the_seed_of_a_study_does_not_tell_which_rows_are_blind(site):
    plan, by = site.terms.plan, strata(site.frame, site.terms.outcome)
    name = int.from_bytes(site.site.encode(), "big")
    sets = np.array([
        stratified(by, plan.test_fraction, np.random.default_rng((plan.seed, r, 0x7465, name)))
        for r in range(REPEATS)
    ])  # fmt: skip
    found, ages = solved(site, sets)
    found += ages.mean() - found.mean()
    assert np.mean(np.abs(found - ages) < 0.5) < 0.2
    assert np.corrcoef(found, ages)[0, 1] < 0.4
    apart = np.mean([np.mean(site.blind(r) == one) for r, one in enumerate(sets)])
    assert abs(apart - 0.625) < 0.05  # as two draws of a quarter agree by chance


def test_a_draw_depends_on_every_row_and_not_on_their_order(site):
    other = site.frame.copy()
    other.loc[3, "age"] += 1
    shuffled = site.frame.sample(frac=1, random_state=1)
    terms = site.terms
    same, changed = (
        tables_of(terms, {site.site: f.reset_index(drop=True)})[0] for f in (shuffled, other)
    )
    np.testing.assert_array_equal(same.blind(0), site.blind(0))
    assert not np.array_equal(changed.blind(0), site.blind(0))
