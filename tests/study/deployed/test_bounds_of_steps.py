"""What sites hold a step's arguments to: every kind of argument has a rule, and it is the study's.

That honest studies pass is in `test_consent`; hostile coordinators over a network in
`network/test_hostile_sums.py`.
"""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np
import pytest

from deployed_cases import terms_of
from fedcohort.algorithms.cox import own_steps
from fedcohort.algorithms.linear.steps import fold_products
from fedcohort.arrays import Array
from fedcohort.data import describe, prepare
from fedcohort.metrics.sums import clusters as federated_clusters
from fedcohort.metrics.sums import latent as federated_latent
from fedcohort.protocol import Refused, Task, message, registry, summed
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.protocol.step import Site
from fedcohort.study.at_site import cluster_sites, counting, holding, judging, latent_sites
from fedcohort.study.at_site.bounds import _COMMON, Bounds, scalars

NAMES = ("north", "south", "west")
#: Steps of no method.
OTHERS = (
    *prepare.STEPS, *judging.STEPS, *holding.STEPS, *counting.STEPS, describe.describe_columns,
    *federated_clusters.STEPS, *cluster_sites.STEPS, *federated_latent.STEPS, *latent_sites.STEPS,
)  # fmt: skip
#: Tasks of studies over a network, with an outcome each.
KINDS = {
    "survival": "survival", "classification": "binary", "regression": "continuous",
    "clustering": "", "latent": "",
}  # fmt: skip
#: Methods that such a study can name.
ARMS = [name for name in registry.names() if KINDS.keys() & set(registry.find(name).tasks)]


def rules_of(name: str) -> set[str]:
    """Return the arguments that a method has rules for, with settings that it has by default."""
    method = registry.find(name)
    if method.bounds is None:
        return set()
    kind = next(k for k in KINDS if k in method.tasks)
    task = Task(kind=kind, features=("a", "b"), outcome=KINDS[kind])
    return set(method.bounds(method.configure({}), task))


def test_every_whole_number_yes_or_no_and_text_of_every_step_has_a_rule():
    """(a) what the study determines has one; real numbers and arrays are (b), free; (c) is apart.

    An argument of another type would be in none of these.
    """
    free = (float, Array, np.ndarray, Array | None, tuple[int, float] | None)
    start = tuple[Array, float, float, Array] | None
    steps = [(name, step) for name in ARMS for step in registry.find(name).steps]
    for name, step in [*steps, *(("", step) for step in OTHERS)]:
        if step.private:
            continue  # `privacy.guard` holds all that these are asked with
        rules = (rules_of(name) if name else set()) | set(_COMMON)
        hints = typing.get_type_hints(step.run)
        for argument in list(inspect.signature(step.run).parameters)[1:]:
            if argument in scalars(step):
                known = {argument, f"{step.name}.{argument}"} & rules
                assert known, f"{step.name}.{argument} of {name or 'the study'} has no rule"
            elif argument != "dealt":
                assert hints[argument] in (*free, start), (step.name, argument, hints[argument])


def test_only_a_first_round_of_consensus_is_asked_apart():
    every = {s for name in registry.names() for s in registry.find(name).steps} | set(OTHERS)
    assert {(s.name, s.apart) for s in every if s.apart} == {("admm_round", ("fresh",))}


def bounds(folder: Any, arms: str, sample: str = "diabetes", **more: Any) -> Bounds:
    task = {"diabetes": "regression", "gbsg2": "survival"}[sample]
    terms = terms_of(folder, sample, f"[{arms}]", task=task, bounds="[]", **more)
    return Bounds(terms, "fit", terms.plan.arms[0], seed=7)


def call(step: Any, among: tuple[str, ...] = NAMES) -> Call:
    return Call(0, step, step.verb, None, Arguments({}, ()), among=among)


FOLDS = {"n_folds": 3, "seed": 7, "min_cell": 5, "dealt": dict.fromkeys(NAMES, -1)}
WRONG = [
    {"n_folds": 20}, {"n_folds": 4}, {"n_folds": 1}, {"n_folds": 3.0}, {"n_folds": True},
    {"seed": 67}, {"seed": 7.0}, {"min_cell": 4}, {"min_cell": 6}, {"min_cell": 10**12},
    {"min_cell": 5.0}, {"dealt": {"north": -1, "south": -1}}, {"dealt": -1}, {"dealt": []},
    {"dealt": {"north": 0, "south": 1, "west": 1}},
    {"dealt": {"north": 0, "ghost": 0, "south": 1, "west": 1}},
]  # fmt: skip


def test_folds_of_the_study_are_answered_and_no_others(tmp_path):
    held = bounds(tmp_path, "{method: lasso, folds: rows, n_folds: 3}")
    held.check(call(fold_products), FOLDS)
    held.check(call(fold_products), {**FOLDS, "n_folds": 2})
    for change in WRONG:
        with pytest.raises(Refused, match="more than the approved study"):
            held.check(call(fold_products), {**FOLDS, **change})


def test_two_sites_cannot_be_made_to_seem_three(tmp_path):
    held = bounds(tmp_path, "{method: lasso, folds: rows, n_folds: 3}")
    two = {**FOLDS, "dealt": {"north": -1, "south": -1}}
    held.check(call(fold_products, ()), two)
    with pytest.raises(Refused, match="dealt to more sites than are asked"):
        held.check(call(fold_products, ()), FOLDS)


COX = {
    "ties": "efron", "folds": 5, "min_cell": 5, "without": 2, "dealt": dict.fromkeys(NAMES, -1),
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"folds": 6},
        {"folds": 0},
        {"without": 5},
        {"without": -1},
        {"ties": "breslow"},
        {"least": 6},
    ],
    ids=str,
)
def test_a_likelihood_is_without_one_of_the_studys_folds(tmp_path, change):
    held = bounds(tmp_path, "{method: cox, penalty: auto}", "gbsg2")
    held.check(call(own_steps.fold_likelihood), COX)
    with pytest.raises(Refused, match="more than the approved study"):
        held.check(call(own_steps.fold_likelihood), {**COX, **change})


def test_where_settings_are_tried_each_candidates_values_are_answered(tmp_path):
    tune = "{by: row-kfold, grid: {n_folds: [3, 6]}}"
    held = bounds(tmp_path, "{method: lasso, folds: rows}", tune=tune)
    for n, fine in ((2, True), (6, True), (7, False)):
        asked = {**FOLDS, "n_folds": n}
        if fine:
            held.check(call(fold_products), asked)
            continue
        with pytest.raises(Refused):
            held.check(call(fold_products), asked)


@message
class Ones:
    """One number, ()."""

    value: Array


def test_an_argument_that_nobody_says_anything_of_is_refused(tmp_path):
    @summed
    def odd(site: Site[Any, None], *, depth: int) -> Ones:
        return Ones(np.array(float(depth)))

    with pytest.raises(Refused, match="nothing limits depth of odd"):
        bounds(tmp_path, "{method: lasso}").check(call(odd), {"depth": 1})
