"""What a site agrees to is what the study's settings need: enough for every fit, and no more."""

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.data import prepare
from fedcohort.data.outcome import Binary, Continuous, Survival
from fedcohort.protocol import VerbRefused, registry
from fedcohort.study.at_site import asking
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.training.networks import strategies

#: Steps that a fit asks for only where the data make it: columns that nearly give others.
BY_DATA = {"differences"}


@pytest.fixture(scope="module")
def sites():
    made, rng = {}, np.random.default_rng(0)
    for site in "abcd":
        x = rng.normal(size=(220, 3))
        made[site] = pd.DataFrame(
            {
                "x": x[:, 0],
                "z": x[:, 1],
                "w": x[:, 2],
                "time": np.round(rng.exponential(np.exp(-x[:, 0] / 2)), 3) + 0.001,
                "event": (rng.random(220) < 0.7).astype(int),
                "yes": (rng.random(220) < 1 / (1 + np.exp(-x[:, 0]))).astype(int),
                "y": np.exp(0.3 * x[:, 0] + 0.3 * rng.normal(size=220)) + 1,
                "n": rng.poisson(np.exp(0.5 + 0.2 * x[:, 1])),
            }
        )
    return made


#: Rounds of a network whose number of passes changes no step.
BRIEF = {"rounds": 2, "internal_epochs": 1, "hidden": (3,)}
#: Steps that a forest asks for of survival alone.
LIFETIMES = {"death_moments", "death_spread", "death_cells"}
CASES = [
    ("cox", {}, set()),
    ("cox", {"baseline": "stratified"}, {"own_hazard"}),
    ("cox", {"time_grid": "exact"}, set()),
    ("cox", {"l1": 0.05}, {"risk_moments"}),
    ("cox", {"ph_check": "none"}, set()),
    (
        "cox",
        {"penalty": "auto", "path": 3, "time_grid": "exact"},
        {"risk_moments", "trend_moments"},
    ),
    ("cox", {"impute": "iterative", "winsorise": 0.05}, set()),
    ("cox", {"impute": "mean", "scale": "standard"}, set()),
    ("deepcox", {"strategy": "fedavg", "rounds": 2}, set()),
    ("deepcox", {"strategy": "sequential", "rounds": 2}, set()),
    ("deepcox", {"strategy": "ensemble", "rounds": 2}, set()),
    ("deepcox", {"strategy": "exact", "rounds": 2, "patience": 1, "time_grid": "exact"}, set()),
    ("deepcox", {"rounds": 2, "patience": 1, "patience_by": "count"}, set()),
    (
        "deepcox",
        {"rounds": 3, "patience": 1, "patience_by": "count", "personal": "fedper", "user": "all"},
        {"turn_back"},
    ),
    ("deepcox", {"rounds": 2, "lr_rule": "plateau", "optimiser_state": "kept"}, set()),
    ("deepcox", {"rounds": 2, "compression": "int8"}, set()),
    ("deepcox", {"rounds": 2, "compression": "top_k"}, set()),
    ("classifier", {"strategy": "fedavg", "rounds": 2}, set()),
    ("classifier", {"strategy": "sequential", "rounds": 2}, set()),
    ("classifier", {"strategy": "exact", "rounds": 2, "patience": 1}, set()),
    ("classifier", {"rounds": 2, "compression": "top_k", "optimiser_state": "kept"}, set()),
    ("regressor", {"strategy": "fedadam", "rounds": 2}, set()),
    ("regressor", {"strategy": "ensemble", "rounds": 2}, set()),
    ("regression_forest", {"rounds": 2, "leaf_start": "normal"}, LIFETIMES),
    ("regression_forest", {"strategy": "exact", "rounds": 1}, LIFETIMES | {"count_deaths"}),
    ("forest", {"trees": 2}, {"sum_outcome"}),  # it is for values, asked here of survival
    ("forest", {"trees": 2, "strategy": "union", "time_grid": "exact"}, {"sum_outcome"}),
    ("boosting", {"rounds": 2, "strategy": "top-s"}, set()),
    ("boosting", {"rounds": 2, "strategy": "bagging", "time_grid": "exact"}, set()),
    ("boosting", {"rounds": 2, "strategy": "cyclic"}, set()),
    ("logistic", {}, set()),
    ("logistic", {"solver": "admm", "l2": 0.1}, set()),
    ("bayes_cox", {}, set()),
    ("bayes_cox", {"baseline": "stratified"}, {"own_hazard"}),
    ("bayes_cox", {"by_site": "all", "site_effects": True}, {"own_hazard"}),
    ("bayes_cox", {"predictive_draws": 5}, set()),
    ("bayes_linear", {}, set()),
    ("bayes_linear", {"by_site": "all", "predictive_draws": 5}, set()),
    ("bayes_logistic", {"skewness": True}, set()),
    ("bayes_logistic", {"by_site": "intercept", "site_effects": True}, set()),
    ("bayes_net", BRIEF, LIFETIMES | {"sum_times", "sum_outcome"}),  # of classes here
    (
        "bayes_net",
        {**BRIEF, "head": "cox"},
        LIFETIMES | {"sum_times", "sum_outcome", "count_deaths", "sum_risks"},
    ),
    *(
        ("bayes_net", {**BRIEF, "strategy": s}, LIFETIMES | {"sum_times", "sum_outcome"})
        for s in ("sequential", "fedavg", "ensemble", "virtual", "sep")
    ),
    ("glm", {"family": "gamma"}, set()),
    ("glm", {"family": "gamma", "link": "inverse"}, set()),
    ("ridge", {}, set()),
    ("ridge", {"solver": "admm", "penalty": 0.1}, set()),
    ("lasso", {}, set()),
    ("lasso", {"rule": "bic"}, set()),
    ("elastic_net", {"solver": "admm", "penalty": 0.1}, set()),
    ("kmeans", {"restarts": 3}, set()),
    ("kmeans", {"restarts": 3, "seeding": "sites"}, set()),
    ("kmeans", {"restarts": 3, "n_clusters": "auto", "k_range": (1, 3)}, set()),
]


@pytest.mark.parametrize(
    ("name", "given", "idle"),
    CASES,
    ids=[" ".join([name, *(f"{k}={v}" for k, v in given.items())]) for name, given, _ in CASES],
)
def test_a_fit_asks_for_the_steps_that_its_settings_declare_and_for_no_others(
    sites, name, given, idle
):
    method = registry.find(name)
    columns, outcome = {
        "survival": (["time", "event"], fc.Survival("time", "event")),
        "classification": (["yes"], fc.Binary("yes")),
        "regression": (["y"], fc.Continuous("y")),
        "clustering": ([], None),
    }[method.tasks[0]]
    tables = {s: t[["x", "z", "w", *columns]] for s, t in sites.items()}
    fit = fc.fit(name, fc.simulate(tables, outcome=outcome, seed=0), **given)
    used = set(fit.ledger["step"])
    options = {**method.preprocess, **{k: v for k, v in given.items() if k in method.COMMON}}
    settings = {k: v for k, v in given.items() if k not in method.COMMON}
    own = {s.name for s in method.asked(method.configure(settings))}
    shared = {s.name for s in prepare.asked(options)}
    assert used <= own | shared
    assert own | shared <= used | idle | BY_DATA


@pytest.mark.parametrize("name", registry.names())
def test_what_settings_declare_is_among_a_methods_steps(name):
    method = registry.find(name)
    if method.asks is not None:
        found = {s.run for s in method.asks(method.settings())}
        assert found
        assert found <= {s.run for s in method.steps}


def test_judging_asks_for_what_the_outcome_needs():
    by = {
        kind: {s.name for s in asking.of_judge(outcome, outcome.kind)}
        for kind, outcome in (
            ("time", Survival("t", "e")), ("class", Binary("y")), ("value", Continuous("y")),
        )
    }  # fmt: skip
    assert "sum_brier" in by["time"] - by["class"] - by["value"]
    assert "sum_labels" in by["class"] - by["time"] - by["value"]
    assert "sum_spread" in by["value"] - by["time"] - by["class"]
    assert all("tell_own" in steps for steps in by.values())


def test_judging_clusters_asks_for_what_the_outcome_needs():
    by = {
        kind: {s.name for s in asking.of_judge(outcome, "clustering")}
        for kind, outcome in (("none", None), ("time", Survival("t", "e")), ("class", Binary("y")))
    }
    assert {"sum_exposure", "count_risk_by_time"} <= by["time"] - by["class"] - by["none"]
    assert "count_classes" in by["class"] - by["time"] - by["none"]
    assert {"sum_scatter", "tell_hidden"} <= by["none"]
    assert not {"tell_own", "sum_brier", "death_times"} & set.union(*by.values())
    assert {s.name for s in asking.of_alone(None, "clustering")} == {"tell_own_groups"}


@pytest.fixture
def terms(tmp_path):
    def make(arm, more=""):
        (tmp_path / "dictionary.yaml").write_text(
            "x: {type: number}\ntime: {type: time, unit: days}\nevent: {type: event}\n"
        )
        (tmp_path / "study.yaml").write_text(
            "study: s\ntask: survival\ndata: {source: n.csv, dictionary: dictionary.yaml, "
            f"outcome: {{time: time, event: event}}}}\narms:\n- {arm}\n{more}"
        )
        return Terms.of(tmp_path / "study.yaml")

    return make


def test_a_site_refuses_a_step_that_the_approved_settings_do_not_need(terms, sites):
    study = terms("{method: deepcox, strategy: fedavg, rounds: 2}")
    table = SiteTable.of(study, "a", sites["a"][["x", "time", "event"]])
    host = open_session(study, table, "fit-r0000-a00", 5)
    assert host.step(strategies.train_here.name) is strategies.train_here
    for name in ("visit", "train_alone", "pull", "death_times", "column_cut"):
        with pytest.raises(VerbRefused, match=f"does not know the step '{name}'"):
            host.step(name)


def test_what_tuning_may_choose_is_agreed_to_as_well(terms):
    study = terms(
        "{method: deepcox, rounds: 2}", "tune: {grid: {strategy: [fedavg, sequential]}}\n"
    )
    names = {s.name for s in asking.of_study(study.plan, study.outcome)}
    assert {"train_here", "visit", "hold", "tell_held"} <= names
    assert "train_alone" not in names
