"""Latent coordinates of rows that stay at their sites: models and errors of one process, by sums.

Tromsø lacks a view; some of Oslo's patients lack another one; entries are missing besides.
"""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from deployed_cases import tables_of
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol import Refused, StudyError, VerbRefused, registry
from fedcohort.protocol.wire import encode
from fedcohort.report import write
from fedcohort.runtime.local import local
from fedcohort.study.at_site import coding
from fedcohort.study.at_site.judging import Said, Seen
from fedcohort.study.at_site.placing import run_of
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.shown.latent_rows import latent_rows
from fedcohort.study.judge.summed import latent as latent_judging
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.sites.layout import seed_of
from latent_studies import ARMS, FRAME, PPCA, VIEWS, Done, dictionary_of, shares, study

NAMES = [arm["method"] for arm in ARMS]
COLUMNS = [name for names in VIEWS.values() for name in names]
METRICS = ("reconstruction_mae", "imputation_mae", "imputation_rmse")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return Done(tmp_path_factory.mktemp("latent"))


def run_at(done, arm):
    kept = done.saved(arm)
    return run_of(kept.model, kept.design)


def test_a_run_ends_well_and_says_what_it_leaves_out(done):
    assert {a["status"] for a in done.results["arms"]} == {"done"}
    assert [x["arm"] for x in done.results["left_out"] if "arm" in x] == ["centralised"]
    assert {"latent_filled", "latent_map"} <= {x.get("part") for x in done.results["left_out"]}
    assert done.results["evaluate"]["metrics"] == list(METRICS)
    assert done.results["evaluate"]["exactness"].keys() == set(METRICS)
    page = write(done.out).read_text()
    assert "standard deviations of these; each value is the mean over hospitals" in page
    assert "exact, of columns that enough blind patients have" in page


@pytest.mark.parametrize("arm", NAMES)
def test_the_model_is_that_of_one_process_bit_for_bit(done, arm):
    frames = {t.site: t.halves(0).train for t in done.tables}
    fed = fc.simulate(frames, outcome=None, dictionary=done.terms.seen)
    mine = next(a for a in done.terms.plan.arms if a.name == arm)
    settings = {**mine.configured(), **mine.preprocess}
    fit = fc.fit(arm, fed, seed=seed_of(done.terms.plan, 0), **settings)
    ours, want = done.saved(arm).model.arrays(), fit.model.arrays()
    assert ours.keys() == want.keys()
    for name, array in ours.items():
        assert_array_equal(array, want[name], err_msg=name)


@pytest.mark.parametrize("arm", NAMES)
def test_errors_are_those_of_the_pooled_blind_rows(done, arm):
    judge = done.judge()
    want = judge.metrics(judge.predicted(run_at(done, arm), METRICS), METRICS)
    found = done.metrics(arm)
    assert found.keys() == want.keys()
    for name, value in want.items():
        assert_allclose(found[name], value, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("arm", NAMES)
def test_what_is_listed_is_what_one_process_lists(done, arm):
    mine = {k: [r for r in v if r["arm"] == arm] for k, v in done.results.items()
            if k.startswith("latent_")}  # fmt: skip
    want = latent_rows(registry.find(arm), run_at(done, arm), done.judge())
    for key in ("latent_views", "latent_numbers", "latent_sites"):
        found = [{k: r[k] for k in r if k not in ("arm", "scenario", "repeat")} for r in mine[key]]
        assert found == want[key]
    errors = {(r["kind"], r["view"], r["feature"]): (r["mae"], r["rmse"])
              for r in mine["latent_errors"]}  # fmt: skip
    listed = {(r["kind"], r["view"], r["feature"]): (r["mae"], r["rmse"])
              for r in want["latent_errors"]}  # fmt: skip
    assert errors.keys() == listed.keys()
    for key, value in listed.items():
        assert_allclose(errors[key], value, atol=1.01e-3)


def told(value: float | None, rows: int) -> float:
    """Return a metric of a site's own rows as the site tells it."""
    return by_patients(float("nan") if value is None else value, rows, 5)


def test_each_site_judges_on_its_own_blind_rows_in_their_own_units(done):
    for arm in NAMES:
        values = []
        for table in done.tables:
            blind = table.halves(0).blind
            judge = done.judge(blind)
            said = judge.metrics(judge.predicted(run_at(done, arm), METRICS), METRICS)
            values.append([told(said[m], len(blind)) for m in METRICS])
            own = done.metrics(arm, table.site)["reconstruction_mae_own"]
            assert_allclose(own, told(said["reconstruction_mae"], len(blind)), rtol=1e-9)
        (row,) = (r for r in done.results["arms"] if (r["arm"], r["site"]) == (arm, None))
        within = [row["within"][m] for m in METRICS]
        assert_allclose(within, np.mean(np.array(values, float), axis=0), rtol=1e-9)


def test_the_lower_bound_is_each_sites_own_model_on_its_own_blind_rows(done):
    (arm,) = (a for a in done.terms.plan.arms if a.scope == "isolated")
    values = []
    for table in done.tables:
        halves = table.halves(0)
        problem = Problem({table.site: halves.train}, done.terms.seen, None, 5, task="latent")
        run = fit_once(
            problem, registry.find(arm.method), arm.configured(), arm.preprocess,
            seed_of(done.terms.plan, 0),
        )  # fmt: skip
        judge = Latent.of(problem, halves.blind)
        said = judge.metrics(judge.predicted(run, METRICS), METRICS)
        values.append([told(said[m], len(halves.blind)) for m in METRICS])
        own = done.metrics("isolated", table.site)["reconstruction_mae_own"]
        assert_allclose(own, told(said["reconstruction_mae"], len(halves.blind)), rtol=1e-9)
    found = [done.metrics("isolated")[m] for m in METRICS]
    assert_allclose(found, np.mean(np.array(values, float), axis=0), rtol=1e-9)


def test_no_value_of_a_row_is_in_the_files(done):
    told = b"".join(p.read_bytes() for p in done.out.rglob("*.json*") if p.is_file()).decode()
    for value in done.blind[COLUMNS].to_numpy(float).ravel():
        assert np.isnan(value) or str(value) not in told


# other tables -----------------------------------------------------------------------------


def judged(done, run, method="multiview_ppca"):
    """Return what the judges of a finished run say of a model."""
    at = next(i for i, a in enumerate(done.terms.plan.arms) if a.method == method and i)
    hosts = [open_session(done.terms, t, f"judge-r0000-a{at:02d}", 5) for t in done.tables]
    named = coding.names_of(run.design, done.terms.seen.features())
    judge = latent_judging.Judge.of(
        local(hosts), Said.by(run, method).model, named, done.terms.plan.min_cell, fills=True
    )
    return judge, judge.metrics(done.terms.plan).metrics


def test_columns_that_a_model_knows_nothing_of_are_said_by_their_mean(done):
    frames = {t.site: t.halves(0).train.drop(columns=VIEWS["v2"]) for t in done.tables}
    run = fit_once(
        Problem(frames, done.terms.seen, None, 5, task="latent"), registry.find("multiview_ppca"),
        {"q": 2, "rounds": 2, "draws": 0}, {"scale": "standard", "impute": "none"}, 1,
    )  # fmt: skip
    assert not {*VIEWS["v2"]} & {*run.design.features}
    judge = done.judge()
    want = judge.metrics(judge.predicted(run, METRICS), METRICS)
    _, found = judged(done, run)
    assert_allclose([found[m] for m in METRICS], [want[m] for m in METRICS], rtol=1e-9)


def test_a_model_that_says_nothing_finite_has_no_error(done):
    run = run_at(done, "multiview_ppca")
    prior = dataclasses.replace(run.model.prior, mu=run.model.prior.mu + np.inf)
    broken = dataclasses.replace(run, model=dataclasses.replace(run.model, prior=prior))
    with np.errstate(invalid="ignore"):
        _, found = judged(done, broken)
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    "table", [{"impute": "none", "scale": "none"}, {"impute": "median", "pool_levels": 20}], ids=str
)
def test_levels_and_filled_entries_are_judged_as_in_one_process(tmp_path, table):
    rng = np.random.default_rng(0)
    frame = FRAME.assign(
        a=rng.choice(["x", "y", "z"], len(FRAME), p=[0.6, 0.34, 0.06]),
        b=np.where(rng.random(len(FRAME)) < 0.1, np.nan, rng.integers(0, 2, len(FRAME))),
    )
    known = dictionary_of(VIEWS).to_dict()
    known["variables"]["a"] = {"type": "category", "levels": ["x", "y", "z"], "view": "v3"}
    known["variables"]["b"] = {"type": "binary", "view": "v2"}
    frames = {n: frame[i::3].reset_index(drop=True) for i, n in enumerate("abc")}
    arms = [{"method": "vae", "q": 2, "rounds": 1, "internal_epochs": 2, **table}]
    done = Done(tmp_path, frames, dictionary=known, arms=arms, bounds=[])
    judge = done.judge()
    want = judge.metrics(judge.predicted(run_at(done, "vae"), METRICS), METRICS)
    found = done.metrics("vae")
    assert_allclose([found[m] for m in METRICS], [want[m] for m in METRICS], rtol=1e-9)
    listed = {r["feature"] for r in done.results["latent_errors"]}
    assert {"a=y", "b"} <= listed


def test_one_view_has_no_imputation(tmp_path):
    known = dictionary_of(VIEWS).to_dict()
    for variable in known["variables"].values():
        variable.pop("view", None)
    frames = shares(lacks="")
    done = Done(tmp_path, frames, dictionary=known, arms=[PPCA], bounds=[])
    found = done.metrics("multiview_ppca")
    assert found["imputation_mae"] is found["imputation_rmse"] is None
    judge = done.judge()
    run = run_at(done, "multiview_ppca")
    want = judge.metrics(judge.predicted(run, METRICS), METRICS)
    assert_allclose(found["reconstruction_mae"], want["reconstruction_mae"], rtol=1e-9)
    assert {r["kind"] for r in done.results["latent_errors"]} == {"reconstruction"}


def test_a_private_study_is_judged_by_blind_rows_alone(tmp_path):
    known = dictionary_of(VIEWS).to_dict()
    for name, variable in known["variables"].items():
        if name in COLUMNS:
            variable["range"] = [float(FRAME[name].min()), float(FRAME[name].max())]
    arm = {"method": "multiview_ppca", "q": 2, "rounds": 2, "noise": "column"}
    done = Done(
        tmp_path, shares(lacks=""), dictionary=known, arms=[arm], bounds=[],
        privacy={"dp": {"epsilon": 50, "delta": 1.0e-3}},
    )  # fmt: skip
    assert {a["status"] for a in done.results["arms"]} == {"done"}
    judge = done.judge()
    want = judge.metrics(judge.predicted(run_at(done, "multiview_ppca"), METRICS), METRICS)
    found = done.metrics("multiview_ppca")
    assert_allclose([found[m] for m in METRICS], [want[m] for m in METRICS], rtol=1e-9)


# the outcome, and what is refused ---------------------------------------------------------


def with_group(folder, **more):
    known = dictionary_of(VIEWS).to_dict()
    known["variables"]["group"] = {"type": "binary", "levels": ["1", "2"]}
    data = {"source": "t.csv", "dictionary": "d.yaml", "outcome": {"y": "group"}}
    return study(folder, known, data=data, **more)


def test_classes_are_left_aside_and_not_judged_by(tmp_path):
    terms = with_group(tmp_path)
    assert terms.plan.metrics == METRICS
    assert "group" not in {v.name for v in terms.seen.features()}
    frames = {n: f.assign(group="1") for n, f in shares().items()}
    table = tables_of(terms, frames)[0]
    host = open_session(terms, table, "fit-r0000-a01", 5)
    assert "group" not in host.data_through(None).columns


def test_a_study_of_classes_alone_is_refused_in_one_line(tmp_path):
    with pytest.raises(StudyError, match="ask for reconstruction_mae") as told:
        with_group(tmp_path, evaluate={"repeats": 1, "metrics": ["latent_auc"]})
    assert "\n" not in str(told.value)


def test_what_travels_is_read_again_as_the_same_study(tmp_path):
    terms = with_group(tmp_path)
    assert Terms.from_json(terms.to_json()) == terms


def model_of(run, method="multiview_ppca"):
    meta = {"method": method, "meta": run.model.meta(), "design": run.design.to_json()}
    return base64.b64encode(encode(run.model.arrays(), meta)).decode()


def test_a_judge_is_sent_a_model_of_the_study_alone(done):
    run = run_at(done, "multiview_ppca")
    host = open_session(done.terms, done.tables[0], "judge-r0000-a01", 5)
    fed = local([host])
    counts = latent_judging.sums_of.count_known_entries
    assert int(fed.through(coding.Coded(model_of(run))).sum(counts).rows) > 0
    other = dataclasses.replace(run, design=dataclasses.replace(run.design, scale="minmax"))
    for view in (coding.Coded(model_of(other)), coding.Coded(""), Said(model_of(run)),
                 Seen("blind")):  # fmt: skip
        with pytest.raises(Refused):
            fed.through(view).sum(counts)


def test_a_site_is_asked_with_its_studys_least_cell_and_alone_for_its_own_errors_only(done):
    own = open_session(done.terms, done.tables[0], "alone-r0000-a00", 5)
    tell, fed = latent_judging.tell_own_errors, local([own])
    assert fed.through(coding.Coded("")).gather(tell, min_cell=5)
    with pytest.raises(Refused, match="min_cell"):
        fed.through(coding.Coded("")).gather(tell, min_cell=2)
    with pytest.raises(VerbRefused):
        fed.through(coding.Coded("")).sum(latent_judging.sums_of.count_known_entries)
    with pytest.raises(Refused, match="another model than its own"):
        run = run_at(done, "multiview_ppca")
        fed.through(coding.Coded(model_of(run))).gather(tell, min_cell=5)


def test_a_site_whose_rows_give_no_model_counts_as_saying_the_mean_of_each_column(tmp_path):
    frames = shares(lacks="")
    frames["tromsø"] = frames["tromsø"][:16]
    evaluate = {"repeats": 1, "test_fraction": 0.5}
    done = Done(tmp_path, frames, arms=[PPCA], bounds=["isolated"], evaluate=evaluate)
    blind = next(t for t in done.tables if t.site == "tromsø").halves(0).blind[COLUMNS]
    assert len(blind) == 8  # and 8 to learn from, of the 10 that errors of a model take
    off = ((blind - blind.mean()) / blind.std(ddof=0)).abs().to_numpy()
    found = done.metrics("isolated", "tromsø")["reconstruction_mae_own"]
    assert_allclose(found, told(off.mean(), 8), rtol=1e-9)
    assert done.metrics("multiview_ppca", "tromsø")["reconstruction_mae_own"] < found / 2
