"""The linkage audit finds patients in exact curves, and none in the curves that a run publishes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.audit.linkage import deaths, exact_curve, linkage, published, thin_intervals
from fedcohort.metrics.survival.kaplan_meier import round_times
from fedcohort.metrics.survival.published_curves import published_at_risk, published_curve
from fedcohort.protocol.errors import DataError


def patients(n, seed, whole=False):
    rng = np.random.default_rng(seed)
    died, left = rng.exponential(900, n), rng.exponential(1500, n)
    time, event = np.minimum(died, left), died <= left
    return (np.ceil(time) if whole else time), event


def results(groups, least=5):
    """Return results with groups of (time, event) shown as a study shows them."""
    number = np.repeat(np.arange(len(groups)), [len(t) for t, _ in groups])
    every = np.concatenate([t for t, _ in groups])
    at = round_times(0.0, float(every.max()), 8)
    at, left = published_at_risk(number, every, at, least)
    rows = []
    for g, (time, event) in enumerate(groups):
        curve = np.stack(published_curve(time, event, least), axis=1).tolist()
        shown = [[float(t), int(m)] for t, m in zip(at, left[:, g], strict=True)]
        rows.append({"label": f"group {g}", "curve": curve, "at_risk": shown})
    return {"risk_groups": [{"arm": "cox", "scenario": "iid", "repeat": 0, "groups": rows}]}


def test_every_patient_is_singled_out_at_exact_times():
    time, event = patients(120, 0)
    found = linkage({}, time, event)
    control = found.lines[1]
    assert control["singled out"] == 120
    assert not found.alarm
    assert found.lines[0]["singled out"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_interval_of_a_published_curve_is_of_few(seed):
    groups = [patients(n, (seed, n), whole=seed % 2 == 0) for n in (15, 40, 90)]
    run = results(groups)
    time, event = (np.concatenate(x) for x in zip(*groups, strict=True))
    found = linkage(run, time, event)
    assert found.lines[0]["curves"] == 3
    assert found.lines[0]["of few"] == 0
    assert found.lines[0]["singled out"] == 0
    assert found.lines[1]["singled out"] > 20


def test_a_curve_that_steps_at_one_death_raises_the_alarm():
    time, event = patients(60, 3)
    found = linkage(results([(time, event)], least=1), time, event)
    assert found.alarm
    assert found.lines[0]["singled out"] > 0
    assert "fewer than 5" in found.verdict


@given(seed=st.integers(0, 2**16), n=st.integers(5, 80), k=st.integers(1, 6))
def test_the_deaths_of_an_interval_lie_between_the_bounds(seed, n, k):
    time, event = patients(n, seed)
    full = exact_curve(time, event)
    at = np.unique(np.r_[0, np.random.default_rng(seed).integers(0, len(full.times), k)])
    some = type(full)("some", full.times[at], full.survival[at], full.at[at], full.at_risk[at])
    for i in range(1, len(at)):
        if some.survival[i - 1] == 0:
            continue
        t0, t1 = some.times[i - 1], some.times[i]
        died = int((event & (time > t0) & (time <= t1)).sum())
        low, high = deaths(some, i)
        assert min(low, max(died, 1)) <= max(died, 1)
        assert died == 0 or low <= died <= high
    counts = [t.most for t in thin_intervals(some, 5)]
    assert all(1 <= c < 5 for c in counts)


def test_a_share_has_its_exact_interval():
    # of 0 in 100: 1 − 0.025^(1/100) = 0.0362 (Clopper & Pearson, Biometrika 26, 1934)
    time, event = patients(100, 1)
    line = linkage({}, time, event).lines[0]
    assert line["low"] == 0
    assert line["high"] == pytest.approx(1 - 0.025 ** (1 / 100))


def test_only_the_curves_of_an_arm_are_looked_at_and_a_run_is_read_from_its_folder(tmp_path):
    run = results([patients(60, 0)])
    (tmp_path / "results.json").write_text(json.dumps(run))
    assert len(list(published(run, "cox"))) == 1
    assert not list(published(run, "other"))
    assert linkage(tmp_path, arm="cox").lines[0]["curves"] == 1
    assert "no curve" in linkage(tmp_path, arm="other").verdict
    with pytest.raises(DataError, match=r"results\.json"):
        linkage(tmp_path / "nowhere")
