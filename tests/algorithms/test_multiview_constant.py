"""Multi-view PCA where a column, a view or a whole site does not vary."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.algorithms.multiview_ppca.maths import em
from fedcohort.algorithms.multiview_ppca.maths.model import Views
from fedcohort.algorithms.multiview_ppca.maths.moments import patterns
from fedcohort.protocol import NothingToLearn

NAMES = ["a1", "a2", "a3", "b1", "b2", "b3"]
VIEWS = {"a": NAMES[:3], "b": NAMES[3:]}
SMALL = {"q": 1, "draws": 0, "rounds": 5, "scale": "none"}


def rows(n, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    return pd.DataFrame(z @ np.ones((1, 6)) + 0.5 * rng.normal(size=(n, 6)), columns=NAMES)


def fitted(sites, **settings):
    return fc.fit("multiview_ppca", fc.simulate(sites, views=VIEWS), **{**SMALL, **settings})


@pytest.mark.parametrize("value", [1.0, 0.1], ids=["exact", "rounded"])
def test_a_site_where_nothing_varies_waits_for_the_others_and_keeps_their_noise(value):
    sites = {s: rows(60, i) for i, s in enumerate("cd")}
    alone = fitted(sites)
    joined = fitted({**sites, "e": rows(20, 9) * 0.0 + value})
    assert np.isfinite(joined.model.prior.w).all()
    ratio = joined.model.prior.variance / alone.model.prior.variance
    assert ((ratio > 0.1) & (ratio < 2)).all()


@pytest.mark.parametrize("noise", ["view", "column"])
def test_a_view_that_does_not_vary_at_one_site_does_not_make_its_noise_vanish(noise):
    sites = {s: rows(60, i) for i, s in enumerate("cde")}
    alone = fitted(sites, noise=noise)
    sites["e"] = sites["e"].assign(**dict.fromkeys(VIEWS["b"], 0.1))
    joined = fitted(sites, noise=noise)
    ratio = joined.model.prior.variance / alone.model.prior.variance
    assert ((ratio > 0.05) & (ratio < 2)).all()


def test_columns_that_differ_between_sites_alone_are_counted_and_refused():
    sites = {s: rows(60, i).assign(b2=float(i)) for i, s in enumerate("cd")}
    with pytest.raises(NothingToLearn, match="1 columns do not vary at any site"):
        fitted(sites, noise="column")


def test_what_varies_is_seen_also_where_every_row_lacks_another_entry():
    x = np.random.default_rng(0).normal(size=(6, 6))
    x[np.arange(6), np.arange(6)] = np.nan
    views = Views(np.repeat([0, 1], 3), 1)
    found = patterns(x)
    assert len(found) == 6
    assert em.varies(found, views).all()
    want = [np.nansum((p - np.nanmean(p, axis=0)) ** 2) / (~np.isnan(p)).sum()
            for p in (x[:, :3], x[:, 3:])]  # fmt: skip
    assert_allclose(em.floors(found, views), em.FLOOR * np.array(want))
    x[:, :3] = np.where(np.isnan(x[:, :3]), np.nan, 0.1)
    assert em.varies(patterns(x), views).tolist() == [False, True]
