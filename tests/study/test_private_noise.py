"""Where the noise of private fits comes from, what a model says of it, and whose δ it is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort.algorithms.deepcox import METHOD as DEEPCOX
from fedcohort.algorithms.deepcox.private import INTERVALS, hazards_privately, record_hazards
from fedcohort.algorithms.glm import LOGISTIC
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Dp, InputError, Refused, Site, registry
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.study.run import private
from fedcohort.study.study import Study

DP = Dp(epsilon=3.0, delta=1e-4)
COLUMNS = {
    "x": {"type": "number", "usual": [-1, 1]},
    "time": {"type": "time", "usual": [0, 3]},
    "event": {"type": "event"},
}
OUTCOME = fc.Survival("time", "event")
EXACT: dict[str, Any] = {"strategy": "exact", "hidden": (), "dp_rounds": 2}


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, t = rng.uniform(-1, 1, n), rng.exponential(1.0, n) + 1e-3
    return pd.DataFrame({"x": x, "time": t, "event": (rng.random(n) < 0.7).astype(int)})


def cohort() -> Any:
    frames = {name: rows(100, i) for i, name in enumerate("abc")}
    return fc.simulate(frames, outcome=OUTCOME, dictionary={"variables": COLUMNS})


def fitted(**given: Any) -> Any:
    return fc.fit("deepcox", cohort(), dp={"epsilon": 3.0, "delta": 1e-4}, **EXACT, **given)


# where noise comes from ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_without_a_seed_takes_noise_from_the_system_and_says_so(tmp_path: Path):
    a, b = fitted(), fitted()
    assert not np.array_equal(a.model.arrays()["thetas"], b.model.arrays()["thetas"])
    assert "ε 3, δ 0.0001, noise from the system's generator" in repr(a)
    a.save(tmp_path)
    note = json.loads((tmp_path / "model.json").read_text())["notes"]["privacy"]
    assert note | {"note": ""} == {
        "epsilon": 3.0, "delta": 1e-4, "unit": "record", "mechanism": "gaussian",
        "noise": "system", "note": "",
    }  # fmt: skip
    assert "noise from the system's generator" in repr(fc.load(tmp_path))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_with_a_seed_repeats_and_warns_of_it():
    a, b = fitted(seed=4), fitted(seed=4)
    np.testing.assert_array_equal(a.model.arrays()["thetas"], b.model.arrays()["thetas"])
    assert a.parts.notes["privacy"]["noise"] == "seed"
    assert "noise from a known seed: a simulation, not for release" in repr(a)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_without_noise_says_nothing_of_noise():
    fit = fc.fit("deepcox", cohort(), strategy="exact", hidden=(), rounds=2)
    assert "noise" not in repr(fit)
    assert "privacy" not in fit.parts.notes


# two arms --------------------------------------------------------------------------------


def noise_of(method: Any, given: dict[str, Any], dp: Dp = DP, **more: Any) -> np.ndarray:
    """Return the noise that the first reply of a fit would have at a simulated site."""
    guard = private.simulated_guard("a", 100, method, method.configure(given), dp, 7, **more)
    call = Call(0, hazards_privately, "sum", None, Arguments({}, ("a",)))
    return guard.source(call).words(4)


def test_two_arms_of_one_seed_have_noise_of_their_own_and_one_arm_the_same_again():
    first = noise_of(DEEPCOX, EXACT)
    np.testing.assert_array_equal(first, noise_of(DEEPCOX, EXACT))
    others = [
        noise_of(DEEPCOX, EXACT | {"dp_rounds": 3}),
        noise_of(LOGISTIC, {}),
        noise_of(DEEPCOX, EXACT, Dp(epsilon=2.0, delta=1e-4)),
        noise_of(DEEPCOX, EXACT, scenario="unbalanced"),
    ]
    seen = [first, *others]
    assert len({tuple(x.tolist()) for x in seen}) == len(seen)


def test_what_follows_from_the_study_is_demanded_by_every_site():
    dictionary = Dictionary.from_dict({"variables": COLUMNS})
    config = DEEPCOX.configure(EXACT)
    held = private.held(DEEPCOX, config, DP, dictionary, OUTCOME)
    guard = private.simulated_guard("a", 100, DEEPCOX, config, DP, 7, demanded=held)
    step = next(s for s in DEEPCOX.steps if s.name == "pull_privately")
    asked = {"theta": np.zeros(1), **held[step.name]}
    for name, value in (("plan", "{}"), ("groups", 1), ("clip", 9.0), ("clip", None)):
        call = Call(0, step, "sum", None, Arguments({}, ("a",)))
        with pytest.raises(Refused, match=f"another {name!r} than the study says"):
            guard.admit(call, asked | {name: value})
    assert guard.tally.taken("", step.name) == 0
    guard.admit(call, asked)
    assert guard.tally.taken("", step.name) == 1


def test_every_argument_of_a_private_step_but_a_model_is_demanded():
    """A model is what earlier noisy answers made: any is as good."""
    free = {"theta", "thetas", "weights", "gamma"}
    known = {
        "x": COLUMNS["x"], "time": COLUMNS["time"], "event": COLUMNS["event"],
        "dead": {"type": "binary"}, "score": {"type": "number", "usual": [0, 9]},
    }  # fmt: skip
    dictionary = Dictionary.from_dict({"variables": known})
    outcome = {"logistic": fc.Binary("dead"), "deepcox": OUTCOME, "ridge": fc.Continuous("score")}
    for name, about in (*outcome.items(), ("describe", None)):
        method = registry.find(name)
        config = method.configure(EXACT if name == "deepcox" else {})
        held = private.held(method, config, DP, dictionary, about)
        steps = [s for s in method.steps if s.private]
        assert steps and held.keys() >= {s.name for s in steps}
        for step in steps:
            takes = step.run.__annotations__.keys() - {"site", "return"}
            assert takes <= free | held[step.name].keys()


# δ ---------------------------------------------------------------------------------------


def study(folder: Path, delta: float, sites: str = "{column: site}") -> Path:
    rows(400, 3).assign(site=list("abcd") * 100).to_csv(folder / "rows.csv", index=False)
    known = {**COLUMNS, "site": {"type": "category", "levels": list("abcd")}}
    (folder / "columns.yaml").write_text(json.dumps({"variables": known}))
    path = folder / "study.yaml"
    path.write_text(
        "study: noise\ntask: survival\n"
        f"data:\n  source: rows.csv\n  dictionary: columns.yaml\n  sites: {sites}\n"
        "  outcome: {time: time, event: event}\n"
        "arms:\n  - {method: deepcox, strategy: exact, hidden: [], rounds: 2}\n"
        "bounds: [isolated, centralised]\n"
        "evaluate: {repeats: 1, draws: 2, test_fraction: 0.5}\n"
        f"privacy: {{dp: {{epsilon: 3, delta: {delta}}}}}\n"
    )
    return path


def test_delta_is_held_against_all_patients_of_a_site_and_not_only_those_trained_on(
    tmp_path: Path,
):
    """100 patients at each site, of whom 50 are trained on: 1/100 is the most, not 1/50."""
    with pytest.raises(InputError, match=r"delta 0.015 is above one over its number of patients"):
        Study.from_file(study(tmp_path, 0.015))
    Study.from_file(study(tmp_path, 0.01))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_simulated_study_says_in_model_and_card_that_its_noise_is_known(tmp_path: Path):
    Study.from_file(study(tmp_path, 1e-4)).run(tmp_path / "out")
    (arm,) = [p for p in (tmp_path / "out" / "models").iterdir() if p.name == "exact"]
    note = json.loads((arm / "model.json").read_text())["notes"]["privacy"]
    assert (note["epsilon"], note["delta"], note["noise"]) == (3.0, 1e-4, "seed")
    assert note["note"] == "noise from a known seed: a simulation, not for release"
    card = (arm / "card.md").read_text()
    assert "## Privacy\n\n- ε 3, δ 0.0001 of one patient, for this fit\n- Mechanism: gau" in card
    assert "Noise from a known seed: a simulation, not for release" in card
    assert "Do not give this model away as private" in card
    assert json.loads((tmp_path / "out" / "results.json").read_text())["noise"] == "seed"
    for other in (p for p in (tmp_path / "out" / "models").iterdir() if p.name != "exact"):
        assert "## Privacy" not in (other / "card.md").read_text()


# the baseline hazard ---------------------------------------------------------------------

HOSTILE = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-308, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan]),
)


@settings(max_examples=300, deadline=None)
@given(
    f=HOSTILE, time=HOSTILE, event=st.booleans(),
    horizon=st.one_of(st.floats(min_value=5e-324, max_value=1.7e308), st.just(5e-324)),
)  # fmt: skip
def test_a_hostile_record_s_part_of_the_hazards_is_finite_and_within_its_sensitivity(
    f: float, time: float, event: bool, horizon: float
):
    record = (np.array([f]), np.array([time]), np.array([event]))
    part = record_hazards(*record, horizon)
    assert np.isfinite(part).all()
    assert np.linalg.norm(part) <= math.sqrt(1.0 + INTERVALS) * (1 + 1e-12)
    # and it changes nobody else's
    other = (np.array([0.1]), np.array([1.0]), np.array([True]))
    both = record_hazards(*(np.concatenate(x) for x in zip(record, other, strict=True)), horizon)
    np.testing.assert_array_equal(both[0], part[0])
    np.testing.assert_array_equal(both[1], record_hazards(*other, horizon)[0])


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.nan, math.inf])
def test_a_horizon_that_is_no_number_above_0_is_refused_whatever_the_times_are(horizon: float):
    for time in (np.array([1.0, 2.0]), np.array([0.0, 2.0])):
        seen = SurvivalTable(np.zeros((2, 1)), time, np.ones(2, bool), None, None, None)
        with pytest.raises(InputError, match="must be a number above 0"):
            hazards_privately.run(
                Site("a", seen, None, (0, 1)), thetas=np.zeros((1, 1)), weights=np.ones(1),
                plan=DEEPCOX.configure(EXACT).plan(1).text, horizon=horizon,
            )  # fmt: skip
