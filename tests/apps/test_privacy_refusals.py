"""What cannot be protected as asked is refused in one line; nothing is computed or written."""

from __future__ import annotations

import pytest

from fedcohort.apps import cli

STUDY = """\
study: private
task: survival
data:
  source: sample:gbsg2
  outcome: {time: time, event: cens}
  sites: {split: iid, n: 4}
arms:
  - {method: deepcox, strategy: exact, rounds: 2, hidden: []}
evaluate: {repeats: 1, draws: 2}
privacy: {dp: {epsilon: 3, delta: 1e-4}}
"""
MASKED = ("dp: {epsilon: 3, delta: 1e-4}", "secure_aggregation: true")
AVERAGED = ("strategy: exact", "strategy: fedavg, aggregation: median")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("epsilon: 3", "epsilon: 0")], "s.yaml, line 10, privacy.dp.epsilon: expected a number"),
        ([("epsilon: 3", "epsilon: -1")], "privacy.dp.epsilon: expected a number above 0"),
        ([("epsilon: 3", "epsilon: lots")], "privacy.dp.epsilon: expected a number above 0"),
        ([("epsilon: 3", "epsilon: .nan")], "privacy.dp.epsilon: expected a number above 0"),
        ([("epsilon: 3", "epsilon: 1e5")], "expected a number above 0, up to 1000"),
        ([("epsilon: 3, delta: 1e-4", "epsilon: 1e-6, delta: 1e-9")], "cannot be met: noise of"),
        ([("epsilon: 3, ", "")], "privacy.dp: the key 'epsilon' is missing"),
        ([("delta: 1e-4", "delta: 0")], "privacy.dp.delta: expected a number between 0 and 1"),
        ([("delta: 1e-4", "delta: 1")], "privacy.dp.delta: expected a number between 0 and 1"),
        ([("delta: 1e-4", "delta: 0.01")], "'site-1': delta 0.01 is above one over its number of"),
        ([("delta: 1e-4", "delat: 1e-4")], "unknown key 'delat'; did you mean 'delta'?"),
        ([("n: 4", "n: 30")], "it has fewer than 20 rows, too few for a private fit"),
        ([("deepcox, strategy: exact, rounds: 2, hidden: []", "cox")], "no differentially private"),
        ([("privacy:", "tune: {grid: {rounds: [2, 3]}}\nprivacy:")], "private study tunes nothing"),
        ([AVERAGED], "'aggregation' of method 'deepcox' is 'median', which needs each site's own"),
        ([MASKED, ("n: 4", "n: 2")], "there are 2 sites: a masked sum needs 3 or more. Add sites"),
        ([MASKED, AVERAGED], "aggregation: median, for which the coordinator sees each site's"),
        ([("dp: {", "db: {")], "privacy.db: unknown key 'db'; did you mean 'dp'?"),
        ([MASKED, ("true", "perhaps")], "privacy.secure_aggregation: expected auto, true or false"),
    ],
)
def test_it_is_refused_on_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, changes, said
):
    text = STUDY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "s.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedcohort", "run", "s.yaml", "--out", "out"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    told = capsys.readouterr()
    assert left.value.code == 2
    (line,) = told.err.strip().splitlines()
    assert line.startswith("fedcohort: s.yaml, line ")
    assert said in line
    assert told.out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.yaml"]
