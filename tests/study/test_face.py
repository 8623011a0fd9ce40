"""The notebook's face: names and behaviour that the contract fixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lifelines import CoxPHFitter

import fedcohort as fc
from fedcohort.data.read import sources


def gbsg2() -> pd.DataFrame:
    frame = sources.load("sample:gbsg2", Path()).frames
    assert isinstance(frame, pd.DataFrame)
    return frame


OUTCOME = fc.Survival("time", "cens")
NUMBERS = ["age", "tsize", "pnodes", "progrec", "estrec", "time", "cens"]


def three_sites(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {name: frame.iloc[i::3] for i, name in enumerate(("east", "north", "south"))}


def test_a_cox_fit_over_sites_has_the_summary_of_the_pooled_fit():
    frame = gbsg2()[NUMBERS]
    fit = fc.fit("cox", fc.simulate(three_sites(frame), outcome=OUTCOME), time_grid="exact")
    pooled = CoxPHFitter().fit(frame, "time", "cens", fit_options={"precision": 1e-12})
    summary = fit.summary.set_index("covariate")
    np.testing.assert_allclose(
        summary.loc[pooled.params_.index, "coefficient"], pooled.params_, rtol=1e-6
    )
    np.testing.assert_allclose(
        summary.loc[pooled.params_.index, "standard_error"], pooled.standard_errors_, rtol=1e-6
    )


def test_one_frame_with_a_site_column_is_the_same_as_a_mapping():
    frame = gbsg2()
    named = frame.assign(hospital=["east", "north", "south"] * 228 + ["east", "north"])
    a = fc.fit("cox", fc.simulate(named, sites="hospital", outcome=OUTCOME))
    b = fc.fit("cox", fc.simulate(three_sites(frame), outcome=OUTCOME))
    np.testing.assert_array_equal(a.predict(frame), b.predict(frame))


def test_a_cohort_prints_no_record():
    fed = fc.simulate(three_sites(gbsg2()), outcome=OUTCOME)
    assert repr(fed) == "<Cohort of 3 sites, outcome time, cens>"
    assert repr(fc.simulate({"all": gbsg2()})) == "<Cohort of 1 site>"


def test_polars_frames_pass_the_door():
    frame = gbsg2()[NUMBERS]
    a = fc.fit("cox", fc.simulate(three_sites(frame), outcome=OUTCOME))
    polars = {k: pl.from_pandas(v) for k, v in three_sites(frame).items()}
    b = fc.fit("cox", fc.simulate(polars, outcome=OUTCOME))
    np.testing.assert_array_equal(a.predict(frame), b.predict(pl.from_pandas(frame)))


@pytest.mark.parametrize("method", ["cox", "deepcox"])
def test_a_saved_fit_predicts_the_same_after_loading(method, tmp_path):
    frame = gbsg2()
    settings = {"rounds": 3} if method == "deepcox" else {}
    fit = fc.fit(method, fc.simulate(three_sites(frame), outcome=OUTCOME), **settings)
    fit.save(tmp_path / "m")
    again = fc.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(frame), fit.predict(frame))
    times = np.array([200.0, 900.0, 1500.0])
    np.testing.assert_array_equal(
        again.predict_survival(frame, times), fit.predict_survival(frame, times)
    )
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


def test_two_fits_with_one_seed_are_equal_and_another_seed_differs():
    frame = gbsg2()
    fed = fc.simulate(three_sites(frame), outcome=OUTCOME, seed=4)
    a, b, c = (fc.fit("deepcox", fed, rounds=3, seed=s).predict(frame) for s in (None, 4, 5))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-6


def test_history_and_ledger_are_tables():
    fit = fc.fit("deepcox", fc.simulate(three_sites(gbsg2()), outcome=OUTCOME), rounds=3)
    assert len(fit.history) >= 3
    assert {"call", "step", "verb", "site", "fields"} <= set(fit.ledger.columns)
    assert set(fit.ledger.site) == {"east", "north", "south"}


def test_what_a_method_cannot_give_names_those_which_can():
    fit = fc.fit("deepcox", fc.simulate(three_sites(gbsg2()), outcome=OUTCOME), rounds=2)
    with pytest.raises(fc.NotSupported, match="can: bayes_cox, bayes_linear, bayes_logistic"):
        _ = fit.summary
    able = "dgd, joint_normal, mcvae, mice, multiview_ppca, savae, vae"
    with pytest.raises(fc.NotSupported, match=f"no impute; these methods can: {able}"):
        fit.impute(gbsg2())


def test_isolated_sites_have_a_fit_each_and_centralised_has_one():
    frame = gbsg2()
    fed = fc.simulate(three_sites(frame), outcome=OUTCOME)
    alone = fc.fit("cox", fed, strategy="isolated")
    assert sorted(alone.sites) == ["east", "north", "south"]
    with pytest.raises(fc.NotSupported, match=r"take one, fit\.of\(site\)"):
        alone.predict(frame)
    assert alone.sites["east"].predict(frame).shape == (686,)
    pooled = fc.fit("cox", fed, strategy="centralised")
    whole = fc.fit("cox", fc.simulate({"all": frame}, outcome=OUTCOME), time_grid="exact")
    np.testing.assert_allclose(pooled.predict(frame), whole.predict(frame), atol=1e-8)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda f: fc.fit("coxx", f), fc.SettingError, "did you mean 'cox'"),
        (lambda f: fc.fit("cox", f, tise="efron"), fc.SettingError, "did you mean 'ties'"),
        (lambda f: fc.fit("cox", f, scale="minmx"), fc.SettingError, "did you mean 'minmax'"),
        (lambda f: fc.simulate({}, outcome=OUTCOME), fc.DataError, "no sites"),
        (lambda f: fc.simulate(gbsg2(), outcome=OUTCOME), fc.DataError, "sites="),
        (lambda f: fc.simulate(gbsg2(), sites="hosp", outcome=OUTCOME), fc.DataError, "'hosp'"),
        (lambda f: fc.simulate([1, 2], outcome=OUTCOME), fc.DataError, "pandas or Polars"),
        (lambda f: fc.load("/nowhere/at/all"), fc.DataError, "no model.json"),
        (lambda f: fc.fit("cox", gbsg2()), fc.SettingError, "simulate"),
        (lambda f: fc.fit(["cox"], f), fc.SettingError, "no method"),
        (lambda f: fc.fit("cox", f, min_cell=0), fc.SettingError, "min_cell is 0"),
        (lambda f: fc.fit("cox", f, min_cell="5"), fc.SettingError, "min_cell is '5'"),
        (lambda f: fc.fit("cox", f, seed=-1), fc.SettingError, "seed is -1"),
        (lambda f: fc.fit("cox", f, quorum="all"), fc.SettingError, "quorum is 'all'"),
        (lambda f: fc.fit("cox", f, quorum=2), fc.SettingError, "quorum is 2"),
        (lambda f: fc.simulate({"a": gbsg2()}, sites="a", outcome=OUTCOME), fc.DataError, "sites="),
    ],
)
def test_wrong_use_is_one_clear_line(call, error, said):
    fed = fc.simulate(three_sites(gbsg2()), outcome=OUTCOME)
    with pytest.raises(error) as caught:
        call(fed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_public_names_are_these_and_no_others():
    assert set(fc.__all__) == {
        "Binary", "Category", "Cohort", "Continuous", "Count", "DataError", "FedcohortError",
        "Fit", "InputError", "NotSupported", "Ordered", "Results", "SettingError",
        "SiteUnavailable", "Study", "StudyError", "Survival", "fit", "load", "simulate",
    }  # fmt: skip
    for name in fc.__all__:
        assert getattr(fc, name) is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("time", "event"), "outcome is a tuple. Give fc.Survival('time', 'event')."),
        ("y", "outcome is a str. Give fc.Survival(time, event), fc.Binary('y'), "
              "fc.Category('y'), fc.Continuous('y') or fc.Count('y')."),
        (fc.Survival, "outcome is a type. Give fc.Survival(time, event), fc.Binary(y), "
                   "fc.Category(y), fc.Continuous(y) or fc.Count(y)."),
    ],
)  # fmt: skip
def test_an_outcome_of_another_form_is_told_what_to_write(given, said):
    with pytest.raises(fc.SettingError) as error:
        fc.simulate({"a": pd.DataFrame({"time": [1, 2], "event": [0, 1]})}, outcome=given)
    assert str(error.value) == said


def test_a_column_that_is_filled_in_in_many_rows_is_a_warning_with_its_share():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {"site": ["a", "b"] * (n // 2), "x": rng.normal(size=n), "z": rng.normal(size=n),
         "g": rng.choice(["u", "v"], n), "y": rng.choice(["no", "yes"], n)}
    )  # fmt: skip
    frame.loc[: int(0.52 * n) - 1, "x"] = np.nan
    frame.loc[: int(0.15 * n), "z"] = np.nan
    fed = fc.simulate(frame, sites="site", outcome=fc.Binary("y"))
    with pytest.warns(
        UserWarning, match=r"logistic: missing values .* in many rows of 'x' \(52%\)\."
    ):
        fit = fc.fit("logistic", fed)
    assert dict(fit.parts.design.filled) == {"x": 0.52}
    frame.loc[frame.index % 3 > 0, "g"] = None
    fed = fc.simulate(frame, sites="site", outcome=fc.Binary("y"))
    with pytest.warns(UserWarning, match=r"rows of 'g' \(67%\), 'x' \(52%\)"):
        fc.fit("logistic", fed)


def test_a_saved_fit_still_knows_what_was_filled_in(tmp_path):
    ages = np.random.default_rng(0).normal(60, 9, 100).round()
    x = [np.nan] * 94 + [1, 2, 3, 4, 5, 6]
    frame = pd.DataFrame({"x": x, "age": ages, "y": ["a", "b"] * 50})
    fed = fc.simulate({"n": frame, "s": frame.iloc[::-1].assign(x=np.nan)}, outcome=fc.Binary("y"))
    with pytest.warns(UserWarning, match=r"'x' \(97%\)"):
        fit = fc.fit("logistic", fed, l2=0.1)
    fit.save(tmp_path / "m")
    assert dict(fc.load(tmp_path / "m").parts.design.filled) == {"x": 0.97}
