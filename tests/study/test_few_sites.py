"""Settings that need more sites than there are: refused when a study is read, before any fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedcohort as fc
from deployed_cases import frames_of, run_local, tables_of, terms_of
from fedcohort.apps.checking import check
from fedcohort.protocol import SettingError, StudyError
from fedcohort.protocol.host import Host
from fedcohort.study.study import Study
from fedcohort.training.robust import Aggregation

OUTCOME = fc.Survival("time", "cens")


def study(folder: Path, arm: str, sites: int, more: str = "") -> Path:
    path = folder / "study.yaml"
    path.write_text(
        f"study: few\ndata: {{source: 'sample:gbsg2', sites: {{split: iid, n: {sites}}}}}\n"
        f"arms:\n- {{method: deepcox, name: robust, hidden: [], rounds: 1, {arm}}}\n"
        f"evaluate: {{repeats: 1, draws: 2}}\n{more}"
    )
    return path


# Blanchard et al. 2017: K ≥ 2f + 3. Yin et al. 2018: ⌈βK⌉ at either end; at 0.4 of 4 sites that is
# 2 + 2, which leaves none; of 5 it is 2 + 2, which leaves one; of 6 it is 3 + 3, none; of 7, one.
@pytest.mark.parametrize(
    ("arm", "sites", "wanted", "found"),
    [
        ("aggregation: krum", 4, "needs 5 sites", "has 4"),
        ("aggregation: multi_krum, byzantine: 2", 6, "needs 7 sites", "has 6"),
        ("aggregation: median", 2, "needs 3 sites", "has 2"),
        ("aggregation: trimmed_mean, trim: 0.4", 4, "needs 5", "none of 4 sites"),
        ("aggregation: trimmed_mean, trim: 0.4", 6, "needs 7", "none of 6 sites"),
    ],
)
def test_a_study_names_the_setting_the_sites_there_are_and_those_needed(
    tmp_path: Path, arm: str, sites: int, wanted: str, found: str
):
    with pytest.raises(StudyError) as told:
        Study.from_file(study(tmp_path, arm, sites))
    said = str(told.value)
    assert "\n" not in said
    assert "arm 'robust': setting '" in said
    assert wanted in said
    assert found in said
    (listed,) = check([str(tmp_path / "study.yaml")], None).findings
    assert listed.severity == "error"
    assert wanted in listed.text(None)


@pytest.mark.parametrize(
    ("arm", "sites"),
    [("aggregation: krum", 5), ("aggregation: trimmed_mean, trim: 0.4", 5), ("rounds: 1", 1)],
)
def test_as_many_sites_as_are_needed_pass(tmp_path: Path, arm: str, sites: int):
    assert Study.from_file(study(tmp_path, arm.replace("rounds: 1", "mu: 0.1"), sites))


def test_tuning_that_leaves_a_site_out_needs_one_more(tmp_path: Path):
    grid = "tune: {grid: {learning_rate: [0.01, 0.02]}}\n"
    with pytest.raises(StudyError, match=r"centre-kfold.* needs 5 sites; this federation has 4"):
        Study.from_file(study(tmp_path, "aggregation: krum", 5, grid))
    assert Study.from_file(study(tmp_path, "aggregation: krum", 6, grid))
    by_rows = grid.replace("{grid", "{by: row-kfold, grid")
    assert Study.from_file(study(tmp_path, "aggregation: krum", 5, by_rows))


def test_every_value_that_tuning_would_try_is_looked_at(tmp_path: Path):
    grid = "tune: {by: row-kfold, grid: {aggregation: [mean, multi_krum], byzantine: [1, 2]}}\n"
    with pytest.raises(StudyError, match="'multi_krum' with byzantine: 2, which needs 7 sites"):
        Study.from_file(study(tmp_path, "trim: 0.1", 5, grid))


def test_in_python_it_is_refused_before_a_site_is_asked(monkeypatch: pytest.MonkeyPatch):
    frames = {name: frame.iloc[:40] for name, frame in frames_of("gbsg2").items()}
    fed = fc.simulate(frames, outcome=OUTCOME)

    def asked(*given: Any, **named: Any) -> Any:
        raise AssertionError("a site was asked")

    monkeypatch.setattr(Host, "agreed", asked)
    with pytest.raises(SettingError, match="needs 5 sites; this federation has 3"):
        fc.fit("deepcox", fed, aggregation="krum", rounds=1)


def test_a_deployed_study_is_refused_before_its_folder_is_made(tmp_path: Path):
    arms = "[{method: deepcox, rounds: 1, aggregation: krum}]"
    terms = terms_of(tmp_path / "terms", "gbsg2", arms, bounds="[]")
    out = tmp_path / "out"
    with pytest.raises(SettingError, match="needs 5 sites; this federation has 3"):
        run_local(terms, tables_of(terms, frames_of("gbsg2")), out)
    assert not out.exists()


@pytest.mark.parametrize("trim", [0.2, 0.34, 0.4, 0.45, 0.49, 0.4999])
def test_the_number_of_sites_that_trimming_asks_for_is_the_least_that_passes(trim: float):
    rule = Aggregation(name="trimmed_mean", trim=trim)
    for sites in (3, 4, 8, 12):
        try:
            rule.check(sites)
        except SettingError as refused:
            needed = int(str(refused).split("it needs ")[1].split()[0])
            assert needed > sites
            rule.check(needed)
            for fewer in range(sites, min(needed, sites + 50)):
                with pytest.raises(SettingError):
                    rule.check(fewer)
