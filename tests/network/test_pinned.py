"""A hostile coordinator, honest nodes under masks: ordinary calls by which single rows once leaked.

Each study was approved and runs at nodes that answer no sum unmasked. Between the honest calls the
coordinator asks one of its own. The docstrings say what it got before nodes refused it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from deployed_cases import MaskedSites, frames_of, tables_of, terms_of
from fedcohort.protocol import FedcohortError, Refused
from fedcohort.protocol.once import InMemory
from fedcohort.runtime import coordinator
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.remote import RemoteTransport
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.results.own_models import OwnModels
from fedcohort.study.results.saved import Saved
from fedcohort.study.run.runner import run_over as run

#: The tables of the study under way.
TABLES: list[Any] = []
Asks = Callable[[Coordinator, Callable[..., Any], dict[str, Any]], Any]


def told(
    folder: Any,
    monkeypatch: Any,
    arm: str,
    asks: dict[str, Asks],
    task: str = "survival",
    **more: Any,
) -> dict[str, Any]:
    """Run a study; after the first honest call of each named step let the coordinator ask its own.

    Return by step what it got, or the error.
    """
    found: dict[str, Any] = {}

    def hooked(honest: Callable[..., Any]) -> Callable[..., Any]:
        def asked(fed: Any, step: Any, /, **given: Any) -> Any:
            reply = honest(fed, step, **given)
            if step.name in asks and step.name not in found:
                found[step.name] = None
                try:
                    found[step.name] = asks[step.name](
                        fed, lambda f, **a: honest(f, step, **a), given
                    )
                except FedcohortError as error:
                    found[step.name] = error
            return reply

        return asked

    monkeypatch.setattr(coordinator, "check_alike", lambda step, arguments: None)
    for verb in ("sum", "gather"):
        monkeypatch.setattr(Coordinator, verb, hooked(getattr(Coordinator, verb)))
    sample = more.pop("sample", "gbsg2")
    more.setdefault("bounds", "[]")
    terms = terms_of(folder, sample, f"[{arm}]", task=task, **more)
    tables = TABLES[:] = tables_of(terms, frames_of(sample))
    with contextlib.suppress(Refused):  # what the coordinator asked may be first, and pinned
        run(terms, MaskedSites(terms, tables, folder), folder / "out", debug=True)
    assert set(found) == set(asks)
    return found


def refused(answer: Any, why: str) -> None:
    """The answer is a refusal in one plain line."""
    assert isinstance(answer, Refused), f"the coordinator got {answer}"
    assert why in str(answer)
    assert "\n" not in str(answer)


# where sums are formed --------------------------------------------------------------------------


def daily(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> int:
    """Ask for risk sets by the day, and return how many rows of the sites it has as they are."""
    fed_rows = pd.concat([t.halves(0).train for t in TABLES])
    days = np.arange(1.0, 2700.0)
    asked = {
        **given, "times": days, "sizes": np.array([len(days)]), "shared": np.ones(len(days), bool),
        "tied": np.zeros(0, np.int64), "beta": np.zeros_like(given["beta"]),
    }  # fmt: skip
    left = ask(fed, **asked).leaving
    whole = {round(float(row @ np.arange(1, 1 + len(row))), 6) for row in left}
    rows = (fed._view.matrix(fed_rows) - given["centre"]) / given["scale"]
    return sum(round(float(r @ np.arange(1, 1 + len(r))), 6) in whole for r in rows)


def test_risk_sets_are_summed_on_one_grid_of_the_studys_length(tmp_path, monkeypatch):
    """A daily grid gave 175 of 515 whole rows."""
    found = told(tmp_path, monkeypatch, "{method: cox}", {"risk_moments": daily})
    refused(found["risk_moments"], "times in a grid; its settings give at most 513")


def test_a_second_grid_is_refused_also_where_it_is_no_longer_than_the_first(tmp_path, monkeypatch):
    def moved(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        return ask(fed, **{**given, "times": given["times"] + 1.0})

    found = told(tmp_path, monkeypatch, "{method: cox}", {"deaths": moved, "risk_moments": moved})
    for answer in found.values():
        refused(answer, "differs from its first value in this session")


def test_a_grid_has_no_more_intervals_than_the_sites_of_the_sum_have_events_for(
    tmp_path, monkeypatch
):
    """Of 512 intervals, which the settings allow, 156 had one row alone."""

    def fine(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        times = np.linspace(1.0, 2700.0, 300)
        return ask(fed, **{**given, "times": times, "blocks": np.array([[300, 0]])})

    found = told(tmp_path, monkeypatch, "{method: cox}", {"deaths": fine})
    refused(found["deaths"], "the sites of the sum have rows for")


def many(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> int:
    """Ask for sums of 2,000 clusters, and return those of one row alone."""
    d = given["about"].shape[1]
    at = np.random.default_rng(0).normal(size=(2000, d))
    asked = {**given, "path": at[None], "moves": np.zeros((0, 2000, 2000), bool), "about": at}
    return int((ask(fed, **asked).counts == 1).sum())


def test_no_more_clusters_are_summed_than_the_study_has(tmp_path, monkeypatch):
    """2,000 centroids gave 104 whole rows where the study says 3."""
    found = told(tmp_path, monkeypatch, "{method: kmeans}", {"sum_near": many}, task="clustering")
    refused(found["sum_near"], "2000 centroids; its settings give at most 3")


def test_no_second_preprocessing_stands_in_for_the_first(tmp_path, monkeypatch):
    def scaled(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        columns = [replace(c, scale=1e6) if hasattr(c, "scale") else c for c in fed._view.columns]
        return ask(fed.through(replace(fed._view, columns=tuple(columns))), **given)

    found = told(tmp_path, monkeypatch, "{method: cox}", {"totals": scaled})
    refused(found["totals"], "the preprocessing differs from its first value")


# judging ----------------------------------------------------------------------------------------


def test_one_model_is_judged_a_session(tmp_path, monkeypatch):
    """Models that the coordinator made up gave cells of 1 to 4 patients at named hospitals."""

    def other(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        from fedcohort.study.run.engine import Run

        said = fed._view
        _, model, design = said.restored
        arrays = {
            k: np.zeros_like(a) if k == "coefficients" else a for k, a in model.arrays().items()
        }
        made = type(model).restore(arrays, model.meta())
        view = replace(Said.by(Run(made, design, [], fed.ledger), "cox"), times=said.times)
        return ask(fed.through(view), **given)

    asks = {"tell_own": other, "count_risks": other}
    for answer in told(tmp_path, monkeypatch, "{method: cox}", asks).values():
        refused(answer, "the model that is judged differs from its first value")


def test_no_more_edges_than_the_metric_needs_and_no_other_ones(tmp_path, monkeypatch):
    def fine(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        return ask(fed, **{**given, "risk_edges": np.linspace(-9, 9, 5000)})

    def moved(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        return ask(fed, **{**given, "risk_edges": given["risk_edges"] + 1e-3})

    asks = {"count_risks": fine, "count_risk_by_time": moved, "sum_binned_pairs": moved}
    found = told(tmp_path, monkeypatch, "{method: cox}", asks)
    refused(found["count_risks"], "5000 edges of predictions; its settings give at most 1601")
    refused(found["count_risk_by_time"], "differs from its first value")
    refused(found["sum_binned_pairs"], "differs from its first value")


def test_survival_at_the_horizon_is_counted_between_fixed_edges_alone(tmp_path, monkeypatch):
    def moved(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        return ask(fed, **{**given, "edges": given["edges"] + 1e-3})

    found = told(tmp_path, monkeypatch, "{method: cox}", {"sum_groups": moved})
    refused(found["sum_groups"], "other edges of predicted survival than those of decision curves")


# what sites keep --------------------------------------------------------------------------------


def test_no_site_is_alone_with_what_it_has_kept_of_its_folds(tmp_path, monkeypatch):
    """Asked without a state the others told zeros, so that one site's scores were its own."""

    def alone(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        transport: Any = fed._run.transport
        assert isinstance(transport, RemoteTransport)
        kept = transport._kept
        transport._kept = {"oslo": kept["oslo"]}
        try:
            return ask(fed, **given)
        finally:
            transport._kept = kept

    tune = "{by: row-kfold, grid: {l2: [0.0, 9.0]}}"
    found = told(tmp_path, monkeypatch, "{method: cox}", {"tell_held": alone}, tune=tune)
    refused(found["tell_held"], "fewer than 3")


# who else is in the sum ---------------------------------------------------------------------------


def test_weights_of_sites_that_do_not_exist_hide_nobody(tmp_path, monkeypatch):
    """A made-up site with a weight of 1 left one hospital's gradient alone in the sum."""

    def ghost(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        from fedcohort.algorithms.weight_erosion.erosion import mark_of

        marks = np.array([mark_of("oslo"), mark_of("nowhere")])
        asked = {**given, "marks": marks, "alphas": np.ones(2), "longest": np.full(2, 1e9)}
        return ask(fed, **{**asked, "theta": given["theta"] + 0.5, "draw": given["draw"] + 1})

    arm = "{method: weight_erosion, user: bergen, rounds: 3}"
    found = told(tmp_path, monkeypatch, arm, {"weigh_slope": ghost})
    assert "Refused" in str(found["weigh_slope"])
    assert "\n" not in str(found["weigh_slope"])


@pytest.mark.parametrize("changed", ["alphas", "rate"])
def test_a_model_of_weight_erosion_is_summed_once_in_whatever_round(tmp_path, monkeypatch, changed):
    """In another round other weights were answered at the same model: the two separated two sites.

    The studies that this module runs as they are need it never."""

    def later(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        ask(fed, **given)  # the same is answered again
        other = given["alphas"] * np.array([1.0, 0.5]) if changed == "alphas" else 0.5
        return ask(fed, **{**given, changed: other, "draw": given["draw"] + 1})

    arm = "{method: weight_erosion, user: bergen, rounds: 3, visit: full}"
    found = told(tmp_path, monkeypatch, arm, {"weigh_slope": later})
    refused(found["weigh_slope"], "what is summed at one model")


def test_a_round_of_weight_erosion_is_asked_under_one_set_of_weights(tmp_path, monkeypatch):
    """Two sums at one model under other weights are two equations of two sites' gradients."""

    def again(fed: Coordinator, ask: Callable[..., Any], given: dict[str, Any]) -> Any:
        return ask(fed, **{**given, "alphas": given["alphas"] * np.array([1.0, 0.5])})

    arm = "{method: weight_erosion, user: bergen, rounds: 3}"
    found = told(tmp_path, monkeypatch, arm, {"weigh_slope": again})
    refused(found["weigh_slope"], "differs from its first value")


def test_a_site_evaluates_one_model_of_its_own_whatever_is_kept_there_later(tmp_path):
    """A fit begun anew at a made-up vector left another model to judge: cells of few patients."""
    arm = "{method: personal, user: all, way: finetune, rounds: 2}"
    terms = terms_of(tmp_path, "gbsg2", f"[{arm}]", task="survival", bounds="[]")
    table, *_ = tables_of(terms, frames_of("gbsg2"))
    models, first = OwnModels(), InMemory()

    def opened(theta: float) -> Any:
        model = SimpleNamespace(arrays=lambda: {"theta": np.array([theta])}, meta=dict)
        models.keep("personal/first-repeat", cast(Saved, SimpleNamespace(
            model=model, design=SimpleNamespace(spec="")
        )))  # fmt: skip
        session = "alone-r0000-a00"
        return open_session(terms, table, session, 5, once=lambda name: first, models=models)

    opened(1.0)
    opened(1.0)
    with pytest.raises(Refused, match="the model that is judged differs from its first value"):
        opened(2.0)
