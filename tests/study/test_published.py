"""What a study's files say together: no hidden count is the difference of those shown."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.study.results.files import _test_mark
from fedcohort.study.sites.cohort import cohort
from fedcohort.study.sites.counts import closed_sites, count, hidden_rows
from published import attack, publish


@pytest.mark.parametrize("task", ["survival", "classification", "regression"])
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 6])
def test_no_hidden_count_of_a_site_can_be_recovered_from_a_run(tmp_path, task, seed):
    study = publish(tmp_path, seed, task)
    found = attack(tmp_path, study)
    assert len(found.cells) > 10  # there is something to attack
    assert found.recovered() == []


def test_the_attack_sees_what_one_further_total_would_tell(tmp_path):
    found = attack(tmp_path, publish(tmp_path, 0, "survival"))
    name, unknowns = next((k, v) for k, v in found.cells.items() if k[0] == "level")
    found.tell(unknowns, found.value(unknowns))
    assert name in found.recovered()


def test_a_saved_model_leaves_the_number_of_events_out(tmp_path):
    for task, arm, key in (("survival", "cox", "events"), ("classification", "logistic", "ones")):
        publish(tmp_path / task, 4, task)
        model = json.loads((tmp_path / task / "out/models" / arm / "model.json").read_text())
        model = model["model"]
        assert key not in model
        assert model["rows"] > 0


@pytest.mark.parametrize(
    ("rows", "min_cell"), [((5, 11, 12), 5), ((8, 9, 20), 5), ((6, 6, 6), 3), ((4, 7, 8, 9), 3)]
)
def test_events_that_some_sites_hide_have_two_values_for_who_knows_the_rest(rows, min_cell):
    """All tables are enumerated, and put together by what is published of them."""
    names = "abcd"[: len(rows)]
    alike = defaultdict(list)
    for events in itertools.product(*(range(1, n + 1) for n in rows)):
        cells = {s: np.array([n - e, e]) for s, n, e in zip(names, rows, events, strict=True)}
        own = hidden_rows(dict(zip(names, rows, strict=True)), min_cell)
        own |= {s for s, c in cells.items() if 0 < c.min() < min_cell}
        own |= {s for s, n in zip(names, rows, strict=True) if n < min_cell}
        closed = closed_sites(cells, own, min_cell)
        shown = tuple(e for s, e in zip(names, events, strict=True) if s not in closed)
        alike[tuple(sorted(closed)), shown, sum(events)].append(events)
    some = {k: v for k, v in alike.items() if 0 < len(k[0]) < len(rows)}
    assert some
    for (closed, _, _), worlds in some.items():
        for s in closed:
            assert len({w[names.index(s)] for w in worlds}) > 1, (closed, worlds)


STUDY = """\
study: marks
seed: {seed}
data: {{source: memory, outcome: {{time: t, event: e}}, sites: {{split: iid, n: 2}}}}
arms: [{{method: cox, l2: {l2}}}]
bounds: {bounds}
evaluate: {{repeats: {repeats}, test_fraction: {test}}}
"""
BASE = {"seed": 1, "l2": 0.1, "bounds": "[]", "repeats": 2, "test": 0.25}
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"x": RNG.normal(size=120), "t": 1 + RNG.exponential(size=120), "e": [0, 1] * 60}
)


@pytest.fixture
def mark(tmp_path):
    """Return what a study that is not run would write as its `test_mark`."""

    def of(frame=FRAME, **change):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.format(**BASE | change))
        study = fc.Study.from_file(path, data=frame)
        counts = count(study.plan, study.table)
        patients, *_ = cohort(study.plan, study.table, counts)
        return _test_mark(study.plan, study.table, counts, patients)

    return of


def test_other_arms_and_bounds_judge_the_same_patients(mark):
    assert mark() == mark(l2=0.5) == mark(bounds="[isolated, centralised]")


@pytest.mark.parametrize("change", [{"seed": 2}, {"repeats": 3}, {"test": 0.5}])
def test_other_draws_are_other_patients(mark, change):
    assert mark() != mark(**change)


def test_other_numbers_of_rows_or_events_are_other_patients(mark):
    assert mark() != mark(FRAME.iloc[:118])
    assert mark() != mark(FRAME.assign(e=1.0 * (np.arange(120) % 3 > 0)))


def test_the_mark_confirms_no_guess_at_a_patient_by_who_knows_all_others(mark):
    guess = FRAME.copy()
    guess.loc[7, ["x", "t"]] = [3.0, 9.0]
    guess.loc[[8, 9], "e"] = FRAME.loc[[9, 8], "e"].to_numpy()
    assert mark() == mark(guess)
