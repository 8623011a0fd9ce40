"""Multi-view PPCA over sites: against the pooled fit, with views missing, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

import fedcohort as fc
from fedcohort.algorithms.multiview_ppca.maths import latent
from fedcohort.algorithms.multiview_ppca.maths.model import Theta, Views
from fedcohort.algorithms.multiview_ppca.program import chosen

VIEWS = Views(np.repeat([0, 1, 2], [8, 6, 7]), 3)
COLUMNS = {
    f"view{k + 1}": [f"t{j:02d}" for j in np.flatnonzero(VIEWS.of == k)] for k in range(3)
}  # fmt: skip
NAMES = [name for columns in COLUMNS.values() for name in columns]
SMALL = {"draws": 0, "scale": "none", "rounds": 40}


RNG = np.random.default_rng(7)
TRUTH = Theta(RNG.normal(size=21), RNG.normal(size=(21, 3)), np.array([0.2, 0.4, 0.1]))


def rows(n, seed):
    """Return rows of one model (n, 21), in units of its own."""
    return latent.sample(n, TRUTH, VIEWS, np.random.default_rng((seed, 8)))


def frame(x):
    return pd.DataFrame(x, columns=NAMES)


def cohort(parts, lacking=None, seed=0):
    """Return sites with these rows; `lacking` says which view a site lacks."""
    frames = {
        site: frame(x).drop(columns=COLUMNS.get((lacking or {}).get(site, ""), []))
        for site, x in parts.items()
    }
    return fc.simulate(frames, views=COLUMNS, seed=seed)


def thirds(x):
    return dict(zip("abc", np.array_split(x, 3), strict=True))


def error(fit, x):
    """Return the mean absolute error of the rows as they come back."""
    return np.abs(fit.reconstruct(frame(x)).to_numpy() - x).mean()


@pytest.fixture(scope="module")
def pooled():
    return fc.fit("multiview_ppca", cohort({"all": rows(300, 0)}), q=3, **SMALL)


def test_one_site_and_one_view_is_pca_by_scikit_learn():
    x = rows(200, 0)
    one = fc.simulate({"all": frame(x)})
    fit = fc.fit("multiview_ppca", one, q=3, noise="view", **SMALL)
    pca = PCA(21).fit(x)
    assert subspace_angles(fit.model.prior.w, pca.components_[:3].T).max() < 1e-6
    rest = pca.explained_variance_[3:].mean() * 199 / 200
    assert_allclose(fit.model.theta.variance, rest, rtol=1e-8)


@pytest.mark.parametrize(
    ("lacking", "most"), [({}, 1.01), ({"b": "view2", "c": "view3"}, 1.03)], ids=["all", "K"]
)
def test_sites_reconstruct_new_rows_as_well_as_the_pooled_table(pooled, lacking, most):
    new = rows(400, 99)
    fit = fc.fit("multiview_ppca", cohort(thirds(rows(300, 0)), lacking), q=3, **SMALL)
    assert error(fit, new) <= most * error(pooled, new)
    assert subspace_angles(fit.model.prior.w, pooled.model.prior.w).max() < 0.1


def test_start_and_spread_of_the_paper_are_there_and_end_further_away(pooled):
    parts = cohort(thirds(rows(300, 0)))
    ours = fc.fit("multiview_ppca", parts, q=3, **SMALL)
    theirs = fc.fit("multiview_ppca", parts, q=3, start="random", spread="modes", **SMALL)
    best = pooled.model.prior.w

    def away(fit):
        return subspace_angles(fit.model.prior.w, best).max()

    assert away(ours) < away(theirs)
    # modes alone: the spread falls towards its floor; with the uncertainty it does not
    assert theirs.model.prior.w_variance.max() < ours.model.prior.w_variance.min()


def test_groups_and_views_that_differ_by_site_cost_nothing_where_sites_have_their_own_patients():
    # the paper's G/K: site b has group 1 and no view 2, site c group 2 and no view 3
    shift = 6.0 * np.array([1.0, -1.0, 0.5]) @ TRUTH.w.T
    x, group = rows(360, 7), np.arange(360) % 2
    x = x + group[:, None] * shift
    parts = {"a": x[:120], "b": x[120:][group[120:] == 0], "c": x[120:][group[120:] == 1]}
    new = rows(300, 8) + (np.arange(300) % 2)[:, None] * shift
    lacking = {"b": "view2", "c": "view3"}
    one = fc.fit("multiview_ppca", cohort({"all": x}), q=3, **SMALL)
    ours, theirs = (
        fc.fit("multiview_ppca", cohort(parts, lacking), q=3, centres=centres, **SMALL)
        for centres in (True, False)
    )
    assert error(ours, new) < 1.05 * error(one, new)
    assert error(theirs, new) > 1.2 * error(one, new)
    assert ours.model.prior.mu_variance.max() < 0.05 * theirs.model.prior.mu_variance.max()


def test_intervals_of_imputed_entries_cover_what_was_taken_away():
    x, new = rows(600, 1), rows(500, 2)
    fit = fc.fit(
        "multiview_ppca", cohort(thirds(x), {"b": "view2", "c": "view3"}), q=3, **SMALL
    )  # fmt: skip
    gaps = new.copy()
    gaps[:250, VIEWS.of == 1] = np.nan
    gaps[250:, VIEWS.of == 2] = np.nan
    told = fit.model.complete(gaps)
    away = np.isnan(gaps)
    off = np.abs(told.mean - new)[away] / told.sd[away]
    # 3,250 entries, five or six of a patient's depend on each other
    assert 0.93 < (off < 1.959964).mean() < 0.97
    mean = np.abs(x.mean(axis=0) - new)[away].mean()
    assert np.abs(told.mean - new)[away].mean() < 0.6 * mean
    filled = fit.impute(frame(gaps)).to_numpy()
    assert_allclose(filled[away], told.mean[away])
    assert_allclose(filled[~away], new[~away])


def test_a_table_comes_back_completed_in_its_own_units_with_intervals():
    x, new = 100 + 20 * rows(300, 1), frame(100 + 20 * rows(200, 2))
    fit = fc.fit("multiview_ppca", cohort(thirds(x)), q=3, draws=0, rounds=30)
    gone = new.drop(columns=COLUMNS["view2"])
    gone.loc[:20, "t00"] = np.nan
    filled = fit.impute(gone)
    assert set(filled.columns) == set(NAMES)
    pd.testing.assert_frame_equal(filled[gone.columns].where(gone.notna()), gone)
    told = fit.intervals(gone)
    assert len(told) == 200 * len(COLUMNS["view2"]) + 21
    truth = np.array([new.at[r, c] for r, c in zip(told["row"], told["column"], strict=True)])
    there = [filled.at[r, c] for r, c in zip(told["row"], told["column"], strict=True)]
    assert_allclose(told["value"], there)
    assert 0.92 < ((told["low"] < truth) & (truth < told["high"])).mean() < 0.98
    assert (fit.intervals(gone, level=0.5)["low"] > told["low"]).all()
    assert fit.intervals(new).empty
    drawn = fit.sample(2000)
    assert_allclose(drawn.mean(), x.mean(axis=0), atol=6)
    with pytest.raises(fc.FedcohortError, match="between 0 and 1"):
        fit.intervals(gone, level=95)


@pytest.mark.parametrize("noise", ["view", "column"])
def test_q_auto_finds_the_latent_dimensions_of_the_model(noise):
    fit = fc.fit(
        "multiview_ppca", cohort(thirds(rows(240, 5))), q="auto", q_range=(1, 5), scale="none",
        rounds=30, draws=60, noise=noise,
    )  # fmt: skip
    assert fit.model.q == 3
    assert [row["q"] for row in fit.model.numbers] == [1, 2, 3, 4, 5]


def test_the_smallest_q_within_two_standard_errors_is_chosen():
    table = [
        {"q": 1, "waic": 50.0, "errors": {}},
        {"q": 2, "waic": 12.0, "errors": {1: 9.0}},
        {"q": 3, "waic": 10.0, "errors": {1: 9.0, 2: 1.5}},
        {"q": 4, "waic": 10.5, "errors": {1: 9.0, 2: 2.0, 3: 1.0}},
    ]
    assert chosen(table) == 2
    table[2]["errors"][2] = 0.5
    assert chosen(table) == 3


def test_a_centre_that_measures_one_view_otherwise_is_named():
    parts = thirds(rows(450, 3))
    parts["b"] = parts["b"] + 0.6 * (VIEWS.of == 1)
    fit = fc.fit("multiview_ppca", cohort(parts), q=3, compare=True, **SMALL)
    found = {(r["site"], r["what"]): r for r in fit.model.differences()}
    assert min(found, key=lambda k: found[k]["p"]) == ("b", "view2")
    assert found["b", "view2"]["p_adjusted"] < 1e-3
    assert len(found) == 12
    assert fc.fit("multiview_ppca", cohort(parts), q=3, **SMALL).model.differences() == []


def test_a_site_with_few_rows_waits_for_the_others():
    parts = thirds(rows(200, 4)) | {"d": rows(3, 5)}
    fit = fc.fit("multiview_ppca", cohort(parts), q=3, **SMALL)
    new = rows(300, 6)
    alone = fc.fit("multiview_ppca", cohort(thirds(rows(200, 4))), q=3, **SMALL)
    assert_allclose(error(fit, new), error(alone, new), rtol=0.02)


def test_rows_without_entries_are_left_out_and_told():
    parts = thirds(rows(150, 4))
    parts["a"] = np.vstack([parts["a"], np.full((6, 21), np.nan)])
    fit = fc.fit("multiview_ppca", cohort(parts), q=2, **SMALL)
    assert any("6 rows without any entry" in line for line in fit.model.cautions())


def test_of_fewer_rows_than_a_cell_has_a_site_tells_nothing():
    # of 4 rows without entries, of a view that 4 rows have, of 4 rows at all: as if they were not
    plain = thirds(rows(150, 4))
    few = {site: x.copy() for site, x in plain.items()}
    few["a"] = np.vstack([few["a"], np.full((4, 21), np.nan)])
    few["b"][4:, VIEWS.of == 1] = np.nan
    few["d"] = rows(4, 9)
    less = {site: x.copy() for site, x in plain.items()}
    less["b"][:, VIEWS.of == 1] = np.nan
    given = {"q": 2, "rounds": 3, "draws": 0, "scale": "none"}
    a, b = (fc.fit("multiview_ppca", cohort(p), **given) for p in (few, less))
    assert not any("without any entry" in line for line in a.model.cautions())
    assert (a.model.rows, a.model.empty) == (b.model.rows, 0)
    for name, value in a.model.arrays().items():
        assert_allclose(value, b.model.arrays()[name], rtol=1e-9, atol=1e-9)


def test_one_site_that_could_begin_alone_is_refused():
    parts = dict(zip("abc", np.split(rows(70, 2), [58, 64]), strict=True))
    with pytest.raises(fc.FedcohortError, match="1 of 3 sites have 8 rows or more"):
        fc.fit("multiview_ppca", cohort(parts), q=3, **SMALL)
    with pytest.raises(fc.FedcohortError, match="1 of 3 sites have 8 rows or more"):
        # who waits follows from the largest q that is tried
        fc.fit("multiview_ppca", cohort(parts), q="auto", q_range=(1, 3), rounds=2)


def test_views_that_no_rows_join_are_told():
    parts = thirds(rows(150, 4))
    lacking = {"a": "view2", "b": "view1", "c": "view1"}
    fit = fc.fit("multiview_ppca", cohort(parts, lacking), q=2, **SMALL)
    assert not any("a guess" in line for line in fit.model.cautions())
    frames = {s: frame(x) for s, x in parts.items()}
    frames["a"] = frames["a"].drop(columns=COLUMNS["view2"] + COLUMNS["view3"])
    for site in "bc":
        frames[site] = frames[site].drop(columns=COLUMNS["view1"])
    fit = fc.fit("multiview_ppca", fc.simulate(frames, views=COLUMNS, seed=0), q=2, **SMALL)
    told = [line for line in fit.model.cautions() if "a guess" in line]
    assert told == ["no rows have both 'view1' and 'view2': what one says of the other is a guess"]


@pytest.mark.parametrize("offset", [0.0, 0.5, 1.0])
def test_intervals_cover_patients_of_new_sites_that_measure_otherwise(offset):
    # sites' offsets differ, and those of the new patients' sites too
    rng = np.random.default_rng(int(10 * offset))

    def site(n):
        return rows(n, rng.integers(1 << 30)) + offset * rng.standard_normal(21)

    sites = cohort({f"s{i:02}": site(40) for i in range(24)})
    fit = fc.fit("multiview_ppca", sites, q=3, rounds=30, draws=0, scale="none")
    off = []
    for _ in range(120):
        x = site(5)
        gaps = np.where(VIEWS.of == rng.integers(3), np.nan, x)
        told = fit.model.complete(gaps)
        away = np.isnan(gaps)
        off.append((np.abs(told.mean - x)[away] / told.sd[away]) < 1.959964)
    assert 0.93 < np.concatenate(off).mean() < 0.98


def test_a_view_of_one_site_is_told():
    parts = dict(zip("ab", np.array_split(rows(120, 0), 2), strict=True))
    fit = fc.fit("multiview_ppca", cohort(parts, {"b": "view3"}), q=2, **SMALL)
    assert any("'view3': known from one site alone" in line for line in fit.model.cautions())


def test_saved_and_loaded_it_gives_the_same(tmp_path, pooled):
    pooled.save(tmp_path / "model")
    again, x = fc.load(tmp_path / "model"), frame(rows(10, 3)).drop(columns=COLUMNS["view2"])
    assert_allclose(again.transform(x), pooled.transform(x))
    assert_allclose(again.impute(x), pooled.impute(x))
    pd.testing.assert_frame_equal(again.summary, pooled.summary)
    assert_allclose(again.sample(5, seed=1), pooled.sample(5, seed=1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"q": 0}, "q"),
        ({"q": 21}, "there are 21 columns"),
        ({"q": 40}, "there are 21 columns"),
        ({"q_range": (3, 2)}, "q_range"),
        ({"draws": 5}, "draws"),
        ({"rounds": 0}, "rounds"),
        ({"tol": -1.0}, "tol"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(fc.FedcohortError, match=said) as told:
        fc.fit("multiview_ppca", cohort(thirds(rows(90, 0))), **{"q": 2, **SMALL, **change})
    assert "\n" not in str(told.value)


def test_a_view_that_no_site_has_is_refused_by_name():
    frames = {s: frame(x).drop(columns=COLUMNS["view2"]) for s, x in thirds(rows(90, 0)).items()}
    words = {name: {"type": "number", "view": v} for v, c in COLUMNS.items() for name in c}
    with pytest.raises(fc.FedcohortError, match="view2") as told:
        fc.fit("multiview_ppca", fc.simulate(frames, dictionary={"variables": words}), q=2)
    assert "\n" not in str(told.value)


def test_too_few_rows_for_q_are_refused():
    with pytest.raises(fc.FedcohortError, match="too few") as told:
        fc.fit("multiview_ppca", cohort(thirds(rows(15, 0))), q=8, **SMALL)
    assert "\n" not in str(told.value)


def test_two_fits_give_the_same_arrays():
    parts = cohort(thirds(rows(90, 0)))
    a, b = (fc.fit("multiview_ppca", parts, q=2, rounds=3, draws=10) for _ in range(2))
    for name, value in a.model.arrays().items():
        assert_allclose(value, b.model.arrays()[name], rtol=0, atol=0)
    assert a.model.waic == b.model.waic


def test_time_of_a_round_does_not_grow_with_rows():
    # an iteration works on sums: of 100 times the rows, the same arrays of at most p rows
    from fedcohort.algorithms.multiview_ppca.maths.moments import patterns

    small, large = patterns(rows(200, 0)), patterns(rows(20000, 0))
    assert [one.factor.shape for one in small] == [one.factor.shape for one in large] == [(21, 21)]


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", None])
def test_a_number_of_rows_to_draw_that_cannot_be_is_refused_in_one_line(pooled, n):
    with pytest.raises(fc.FedcohortError, match="whole number of rows") as told:
        pooled.sample(n)
    assert "\n" not in str(told.value)
