"""What 500 random questions give away: no count of few, and no patient."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from overheard import listen, recovered
from queries import ask

BLOCKS = 2  # the scorecard row `disclosure` asks 500
QUERIES = 100
CURVES = ("kaplan_meier", "nelson_aalen", "log_rank")

pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out:UserWarning")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_count_of_few_is_published_and_no_patient_is_a_difference_of_sums(block, monkeypatch):
    heard = listen(monkeypatch)
    answered: Counter[str] = Counter()
    for seed in range(block * QUERIES, (block + 1) * QUERIES):
        given = ask(seed, heard)
        assert not given.published, (seed, given.query)
        assert not given.told, (seed, given.query)
        assert not given.patients, (seed, given.query)
        answered[given.query.method] += not given.refused
    assert sum(answered.values()) > QUERIES / 2
    assert answered["describe"] > 10
    assert sum(answered[name] for name in CURVES) > 6, answered


def survivors(n, seed):
    """Return simulated patients at four sites, whose times do not tie."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    death = rng.exponential(np.exp(-x @ [0.5, -0.3, 0.0]))
    leave = rng.exponential(1.5, n)
    return pd.DataFrame(x, columns=list("abc")).assign(
        time=np.minimum(death, leave),
        event=(death <= leave).astype(float),
        site=rng.choice(list("pqrs"), n),
    )


@pytest.mark.parametrize(("grid", "most", "least"), [("exact", 240, 60), ("protected", 0, 0)])
def test_the_attack_finds_every_third_patient_at_exact_times_and_none_on_the_grid(
    grid, most, least, monkeypatch
):
    heard = listen(monkeypatch)
    table = survivors(240, 0)
    fed = fc.simulate(table, sites="site", outcome=fc.Survival("time", "event"))
    fc.fit("cox", fed, time_grid=grid)
    assert least <= recovered(heard, table[list("abc")].to_numpy()).sum() <= most


def test_the_attack_finds_the_one_patient_in_whom_two_fits_differ(monkeypatch):
    # docs/disclosure.md: no rule here knows of another fit, of other rows of the same people
    heard = listen(monkeypatch)
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    table = table.assign(y=table["a"] + rng.normal(size=60), site="p")
    task = Task(kind="regression", features=("a", "b", "c"), origin=np.zeros(3))
    method = registry.find("ridge")
    for rows in (table, table[1:]):
        data = LabelledTable(rows[list("abc")].to_numpy(), rows["y"].to_numpy())
        method.fit(local([Host("p", data, method.steps)]), method.configure({"penalty": 1.0}), task)
    found = recovered(heard, table[list("abc")].to_numpy())
    assert found[0]
    assert found.sum() == 1
