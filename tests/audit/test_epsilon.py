"""The one-run audit on the code that sites run: honest releases pass, mutants are caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcohort.audit.canaries import play
from fedcohort.audit.epsilon import Site, bound
from fedcohort.audit.rebuilt import rebuild
from fedcohort.privacy.accounting import calibrate
from fedcohort.protocol.private import Dp, Release
from fedcohort.study.study import Study

DP = Dp(epsilon=3.0, delta=1e-5, clip=0.5)
DICTIONARY = """\
variables:
  age: {type: number, range: [20, 90]}
  marker: {type: number, range: [0, 1]}
  time: {type: time, unit: days, usual: [0, 2000]}
  dead: {type: event}
"""
STUDY = """\
study: private
data:
  source: t.csv
  dictionary: d.yaml
  outcome: {time: time, event: dead}
  sites: {split: iid, n: 3}
arms: [{method: deepcox, strategy: exact, rounds: 3}]
evaluate: {repeats: 1, draws: 2, metrics: [c_index]}
privacy: {dp: {epsilon: 3, delta: 0.00001}}
"""


def releases(sampling: float = 1.0) -> tuple[Release, ...]:
    """Two kinds of release: training, and a number told once."""

    def make(z: float) -> tuple[Release, ...]:
        return (
            Release(step="pull_privately", noise=z, count=4, sampling=sampling),
            Release(step="told_once", noise=2 * z),
        )

    return make(calibrate(make, DP))


def low(seed: int, made: tuple[Release, ...], **options: object) -> float:
    site = Site(made, DP, seed=seed, **options)  # pyright: ignore[reportArgumentType]
    return play(site, 600, 120, DP.epsilon, DP.delta, np.random.default_rng(seed)).epsilon_low


@pytest.mark.parametrize("seed", range(4))
def test_honest_releases_are_never_refuted_and_say_something(seed):
    assert 0.2 < low(seed, releases()) <= DP.epsilon


@pytest.mark.parametrize("seed", range(4))
def test_groups_and_samples_tell_no_more_than_their_claim(seed):
    assert low(seed, releases(0.5), groups=16) <= DP.epsilon


@pytest.mark.parametrize("seed", range(4))
def test_missing_clip_is_caught(seed):
    assert low(seed, releases(), clip=1e9) > DP.epsilon


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_is_shared_with_sites_that_are_not_there_is_caught(seed):
    assert low(seed, releases(), share=25) > DP.epsilon


def test_releases_follow_from_the_seed_and_differ_between_seeds():
    coins = np.arange(50) % 2 == 0
    one, again, other = (Site(releases(), DP, seed=s)(coins) for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_canaries_move_what_is_released_by_their_clip():
    """The mean difference between those who are in and those who are out is Δ/(z²Δ) = 1/z²."""
    made = releases()
    coins = np.arange(4000) % 2 == 0
    told = Site(made, DP)(coins)[:4].mean(0)  # the four rounds of training
    z = made[0].noise
    assert told[coins].mean() - told[~coins].mean() == pytest.approx(1 / z**2, abs=0.2 / z**2)


def test_audit_of_a_private_run_plays_all_its_releases(tmp_path: Path):
    rng = np.random.default_rng(0)
    time = rng.integers(1, 1999, 240)
    rows = [f"{20 + i % 70},{i % 7 / 7:.3f},{t},{i % 2}" for i, t in enumerate(time)]
    (tmp_path / "t.csv").write_text("age,marker,time,dead\n" + "\n".join(rows) + "\n")
    (tmp_path / "d.yaml").write_text(DICTIONARY)
    (tmp_path / "s.yaml").write_text(STUDY)
    Study.from_file(tmp_path / "s.yaml").run(tmp_path / "run")
    found = bound(rebuild(tmp_path / "run", tmp_path), canaries=400, guesses=60)
    assert not found.alarm
    assert all(line["claim"] == 3.0 and line["bound"] <= 3.0 for line in found.lines)
    assert "3 × pull_privately" in found.lines[0]["releases"]
