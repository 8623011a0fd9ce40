"""Gradients of `exact` beside one another: honest ones are heard, and those too long are not.

Measured on the packaged sample (docs/robustness.md): at most 5.0 times the median of ‖∇‖/√(n + 10).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcohort.algorithms.deepcox import METHOD, program
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import ReplyRejected, Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.updates import FAR
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport
from fedcohort.training.networks.pooled import FEW

LIAR = "s03"
Forge = Callable[[str, dict[str, Any]], dict[str, Any]]


def sample() -> SurvivalTable:
    table = pd.read_csv(str(files("fedcohort.data") / "samples" / "gbsg2.csv"))
    x = pd.get_dummies(table.drop(columns=["time", "cens"]), drop_first=True).to_numpy(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return SurvivalTable(x, table.time.to_numpy(float), table.cens.to_numpy(bool))


TABLE = sample()
N = len(TABLE.time)


def split(how: str, n: int, seed: int = 0) -> dict[str, SurvivalTable]:
    """Return the patients by site: as many each, but for `lopsided`, `few` and `no deaths`."""
    order = np.random.default_rng(seed).permutation(N)
    if how == "by age":
        order = np.argsort(TABLE.x[:, 0], kind="stable")
    elif how == "by time":
        order = np.argsort(TABLE.time, kind="stable")
    parts = np.array_split(order, n)
    if how == "lopsided":
        parts = [order[: 6 * N // 10], *np.array_split(order[6 * N // 10 :], n - 1)]
    elif how == "few":  # from 3 rows to some hundreds
        share = np.cumsum(1.5 ** np.arange(n))
        parts = np.split(
            order, (3 * np.arange(1, n + 1) + share / share[-1] * (N - 3 * n)).astype(int)[:-1]
        )
    elif how == "no deaths":
        alive, dead = order[~TABLE.event[order]], order[TABLE.event[order]]
        rest = np.random.default_rng(seed).permutation(np.r_[alive[100:], dead])
        parts = [alive[:50], alive[50:100], *np.array_split(rest, n - 2)]
    return {
        f"s{i:02}": SurvivalTable(TABLE.x[p], TABLE.time[p], TABLE.event[p])
        for i, p in enumerate(parts)
    }


class Overheard(LocalTransport):
    """Keeps what `pull` was answered, and lets a forger say something else."""

    def __init__(self, tables: Mapping[str, SurvivalTable], forge: Forge | None = None):
        super().__init__([Host(s, t, METHOD.steps, 1) for s, t in tables.items()])
        self._forge = forge
        self.pulls: list[dict[str, dict[str, Any]]] = []

    def ask(self, call: Any, to: Any) -> Any:
        heard: dict[str, dict[str, Any]] = {}
        for site, said in super().ask(call, to):
            reply = said
            if site == LIAR and self._forge is not None and isinstance(said, dict):
                reply = self._forge(call.step.name, dict(said))
            if call.step is program.pull:
                heard[site] = reply
            yield site, reply
        if heard:
            self.pulls.append(heard)


def fit(transport: LocalTransport, secure: str = "false", **settings: Any) -> Coordinator:
    fed = Coordinator(transport, quorum=0.5, secure=secure)
    given = {"strategy": "exact", "rounds": 40, "time_grid": 10, "learning_rate": 0.03} | settings
    names = tuple(f"x{i}" for i in range(TABLE.x.shape[1]))
    METHOD.fit(fed, METHOD.configure(given), Task(kind="survival", features=names))
    return fed


@pytest.mark.parametrize("n", [3, 7, 20])
@pytest.mark.parametrize("how", ["at random", "by age", "by time", "lopsided", "few", "no deaths"])
def test_honest_gradients_stay_within_the_bound_however_patients_are_split(how, n):
    sites = Overheard(split(how, n))
    fed = fit(sites)
    assert fed.missing == []
    assert len(sites.pulls) == 40
    for heard in sites.pulls:
        told = [np.linalg.norm(r["gradient"]) / np.sqrt(r["rows"] + FEW) for r in heard.values()]
        assert max(told) < FAR * np.median(told)


def scaled(by: float) -> Forge:
    def forge(step: str, reply: dict[str, Any]) -> dict[str, Any]:
        return reply | ({"gradient": by * reply["gradient"]} if step == "pull" else {})

    return forge


@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("at random", 10.0),
        ("at random", -10.0),
        ("by time", 1e3),
        ("lopsided", 1e3),
        ("few", 1e200),
    ],
)
def test_a_gradient_that_is_scaled_is_rejected_by_name_and_the_fit_is_finished(how, by):
    fed = fit(Overheard(split(how, 7), scaled(by)), rounds=3)
    assert {site for _, site in fed.missing} == {LIAR}
    (why,) = fed.rejected.values()
    assert why.startswith(f"site {LIAR!r} answered pull ")
    assert "6 times as long as the median" in why


def test_exact_sums_do_not_compare_sites_as_they_are_the_same_with_masks():
    assert (
        fit(Overheard(split("at random", 7), scaled(10.0)), secure="auto", rounds=3).missing == []
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("rows", -9.0, "no number of rows"),
        ("rows", 0.0, "over no rows"),
        ("rows", [1.0], "not one real number"),
        ("gradient", [1.0], "another shape"),
    ],
)
def test_a_pull_that_cannot_be_is_rejected_by_name(field, value, said):
    def forge(step: str, reply: dict[str, Any]) -> dict[str, Any]:
        return reply | ({field: np.array(value)} if step == "pull" else {})

    fed = fit(Overheard(split("at random", 5), forge), rounds=2)
    assert {site for _, site in fed.missing} == {LIAR}
    assert all(said in why for why in fed.rejected.values())


def test_more_rows_than_were_counted_do_not_make_room_for_a_longer_gradient():
    """Of sums alone: the fit ends in one line, that has no name to give."""

    def forge(step: str, reply: dict[str, Any]) -> dict[str, Any]:
        return reply | ({"rows": np.array(reply["rows"] + 1.0)} if step == "pull" else {})

    with pytest.raises(ReplyRejected, match=r"over 687 rows and .* of 686, .* cannot be named"):
        fit(Overheard(split("at random", 5), forge), rounds=2)
