"""Over a network the last sums of a fit of trees explain the model that the report shows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.algorithms.boosting.explaining import COLUMNS, STEPS, explain_trees
from fedcohort.protocol import Refused
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.at_site.pins import InMemory, Pins

ARM = "[{method: boosting, rounds: 2, max_bins: 8}]"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    terms = terms_of(
        folder, "diabetes", ARM, repeats=2, bounds="[]", task="regression", final="false",
        tune="{by: row-kfold, grid: {max_depth: [2]}}",
    )  # fmt: skip
    run_local(terms, tables_of(terms, frames_of("diabetes")), folder / "out")
    return folder / "out"


def test_the_models_that_are_shown_are_explained_and_no_others(done):
    names = {s.name for s in STEPS}
    lines = [json.loads(line) for line in (done / "ledger.jsonl").read_text().splitlines()]
    asked = [line for line in lines if line["step"] in names]
    assert {(line["repeat"], line["phase"], line["verb"]) for line in asked} == {(0, "fit", "sum")}
    assert len(asked) == 2 * 3  # once a site
    assert "boosting" in {line["arm"] for line in lines if line["repeat"] == 1}


def test_results_and_card_have_what_the_model_tells(done):
    rows = [r for r in results_of(done)["explained"] if r["arm"] == "boosting"]
    assert {r["repeat"] for r in rows} == {0}
    shown = {r["covariate"] for r in rows if r["kind"] == "curve"}
    assert 1 <= len(shown) <= COLUMNS
    assert shown <= {r["covariate"] for r in results_of(done)["splits"]}
    assert "Effects in trees" in (done / "models" / "boosting" / "card.md").read_text()


def test_a_site_explains_one_set_of_trees_by_one_choice_of_columns_a_session(tmp_path):
    terms = terms_of(tmp_path, "diabetes", ARM, bounds="[]", task="regression")
    given = {n: np.zeros(2) for n in explain_trees.run.__annotations__ if n not in NOT_ARRAYS}
    one = Call(0, explain_trees, "sum", None, Arguments({}, ()))
    for name in given:
        pins = Pins(Bounds(terms, "fit", terms.plan.arms[0]), InMemory())
        pins.check(one, given)
        pins.check(one, given)
        with pytest.raises(Refused, match=f"{name} of explain_trees differs from its first"):
            pins.check(one, {**given, name: np.ones(2)})


NOT_ARRAYS = ("site", "return", "objective")
