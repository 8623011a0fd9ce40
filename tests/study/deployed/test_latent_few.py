"""Errors of latent coordinates over a network: what is asked of few rows, and what is not."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from deployed_cases import run_local, tables_of
from fedcohort.metrics.sums import latent as sums_of
from fedcohort.protocol import registry
from fedcohort.runtime.local import local
from fedcohort.study.at_site import coding
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.summed import latent as latent_judging
from fedcohort.study.run.engine import Problem, fit_once
from latent_studies import PPCA, VIEWS, shares, study

METRICS = ("reconstruction_mae", "imputation_mae", "imputation_rmse")
COLUMNS = [name for names in VIEWS.values() for name in names]


@given(
    counts=arrays(np.int64, (2, 6), elements=st.integers(0, 30)),
    least=st.integers(1, 6),
    fills=st.booleans(),
)
def test_what_is_summed_of_a_column_is_of_many_rows_and_differs_by_many_or_none(
    counts, least, fills
):
    known, hidden = counts.sum(axis=0), counts[0]
    c = sums_of.Counted.of(
        sums_of.EntryCounts(np.array(60), known, hidden), least, fills=fills
    )  # fmt: skip
    many = 2 * least if least > 1 else 1
    assert (c.entries[c.asked] >= many).all()
    assert (c.filled_entries[c.filled] >= many).all()
    assert not c.filled[~c.asked].any()
    assert fills or not c.filled.any()
    apart = (c.entries - c.filled_entries)[c.filled]
    assert ((apart == 0) | (apart >= least)).all()
    left = (known - c.entries)[c.asked]  # of what is asked for, few rows are left out
    assert (left < max(least, 1)).all()


class Asked:
    """One model of all training rows, and the judges of blind rows that some views are taken of."""

    def __init__(self, folder, frames, least=5):
        self.terms = study(folder, arms=[PPCA], bounds=[], privacy={"min_cell": least})
        self.tables = tables_of(self.terms, frames)
        self.frames = {t.site: t.halves(0).train for t in self.tables}
        self.problem = Problem(self.frames, self.terms.seen, None, least, task="latent")
        table = {"scale": "standard", "impute": "none"}
        settings = {"q": 2, "rounds": 2, "draws": 0}
        self.run = fit_once(self.problem, registry.find("multiview_ppca"), settings, table, 1)

    def edit(self, change):
        """Change the blind rows (n,) of all sites in one table, and give them back."""
        halves = [t.halves(0) for t in self.tables]
        whole = pd.concat([h.blind for h in halves], keys=range(len(halves)))
        change(whole)
        self.blind = whole.reset_index(drop=True)
        for i, (table, h) in enumerate(zip(self.tables, halves, strict=True)):
            table._halves[0] = h._replace(blind=whole.loc[i].reset_index(drop=True))

    def judge(self):
        hosts = [open_session(self.terms, t, "judge-r0000-a00", 5) for t in self.tables]
        named = coding.names_of(self.run.design, self.terms.seen.features())
        text = Said.by(self.run, "multiview_ppca").model
        fed = local(hosts)
        least = self.terms.plan.min_cell
        return latent_judging.Judge.of(fed, text, named, least, fills=True)

    def expected(self, rows):
        judge = Latent.of(self.problem, rows)
        return judge.metrics(judge.predicted(self.run, METRICS), METRICS)


@pytest.mark.parametrize("alone", [0, 3, 6])
def test_few_rows_that_have_a_view_alone_do_not_count_in_it_and_many_do(tmp_path, alone):
    asked = Asked(tmp_path, shares(lacks=""))

    def change(blind):
        blind.loc[:, COLUMNS] = blind[COLUMNS].fillna(0.0)
        blind.iloc[:alone, [blind.columns.get_loc(c) for v in ("v2", "v3") for c in VIEWS[v]]] = (
            np.nan
        )

    asked.edit(change)
    judge = asked.judge()
    found = judge.metrics(asked.terms.plan).metrics
    few = 0 < alone < 5
    rows = asked.blind[alone:].reset_index(drop=True) if few else asked.blind
    want = asked.expected(rows)
    assert_allclose([found[m] for m in METRICS], [want[m] for m in METRICS], rtol=1e-9)
    v1 = np.array([name in VIEWS["v1"] for name in judge.columns.names])
    assert_array_equal(judge.columns.counted.whole, ~v1 if few else np.ones(len(v1), bool))


def test_a_column_of_few_values_is_summed_in_no_way(tmp_path):
    asked = Asked(tmp_path, shares(lacks=""))

    def change(blind):
        blind.iloc[9:, blind.columns.get_loc("v1_03")] = np.nan

    asked.edit(change)
    judge = asked.judge()
    j = judge.columns.names.index("v1_03")
    assert not judge.columns.counted.asked[j]
    assert judge.columns.unit[j] == 1.0
    assert judge.columns.centre[j] == 0.0
    found = judge.metrics(asked.terms.plan).metrics
    assert_allclose(found["reconstruction_mae"], _mean_without(asked, "v1_03"), rtol=1e-9)
    assert "v1_03" not in {r["feature"] for r in judge.errors(1)}


def _mean_without(asked, column):
    """Return the error of all entries but those of a column, which the model still sees."""
    judge = Latent.of(asked.problem, asked.blind)
    said = judge.predicted(asked.run, METRICS)
    keep = [i for i, f in enumerate(said.features) if f != column]
    return np.nanmean(said.off[:, keep])


def test_a_column_that_few_values_make_and_later_arms_of_few_rows_are_not_listed(tmp_path):
    asked = Asked(tmp_path, shares(lacks=""))

    def change(blind):
        blind.iloc[:, blind.columns.get_loc("v1_01")] = 0.0
        blind.iloc[:4, blind.columns.get_loc("v1_01")] = 50.0
        blind.iloc[25:, blind.columns.get_loc("v2_01")] = np.nan

    asked.edit(change)
    judge = asked.judge()
    listed = [{r["feature"] for r in judge.errors(order)} for order in (1, 2, 3)]
    assert all("v1_01" not in names for names in listed)
    assert ["v2_01" in names for names in listed] == [True, True, False]
    assert all({"v1_02", None} <= names for names in listed)


def test_what_is_listed_of_each_repeat_is_of_the_first_alone(tmp_path):
    evaluate = {"repeats": 2, "test_fraction": 0.25}
    terms = study(tmp_path, arms=[PPCA], bounds=[], evaluate=evaluate)
    run_local(terms, tables_of(terms, shares()), tmp_path / "out")
    asked = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").open()]
    told = {r["repeat"] for r in asked if r.get("step") in ("sum_column_errors", "sum_entry_tails")}
    assert told == {0}
    assert {r["repeat"] for r in asked if r.get("step") == "sum_rebuild_errors"} == {0, 1}
