"""One name of an argument means one thing in all steps of a fit, or its rule names the step.

A site of a network refuses whole numbers, booleans and texts that `Method.bounds` does not allow.
Rules go by an argument's name: two steps whose argument of one name has another meaning make every
deployed fit refuse. So every fit of this suite is held to its method's rules (`cases.Held`), as a
site holds it; here are further settings, whose steps the others do not ask.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import pytest

from conformance import cases
from conformance.cases import Case, reference, run
from fedcohort.protocol import Refused, Task, registry
from fedcohort.study.at_site.bounds import scalars

FURTHER = [
    Case("cox", "survival", (("penalty", "auto"), ("path", 3), ("n_folds", 3))),
    Case("lasso", "regression", (("folds", "rows"), ("path", 3), ("n_folds", 3))),
    Case("lasso", "regression", (("solver", "admm"), ("penalty", 0.1), ("local", "subgradient"))),
    Case("logistic", "classification", (("solver", "admm"), ("local", "subgradient"))),
    Case("deep_clustering", "clustering", (("pretrain", "layerwise"), ("monitor", "gradient"))),
    Case("deepcox", "survival", (("personal", "fedrep"), ("monitor", "gradient"))),
    Case("deepcox", "survival", (("patience", 2),)),
    Case("mcvae", "latent", (("personal", "fedrep"), ("monitor", "gradient"))),
    Case("vae", "latent", (("patience", 2),)),
    Case("personal", "regression", (("way", "local"),)),
    Case("personal", "regression", (("way", "cluster"), ("n_clusters", 2))),
    Case("personal", "regression", (("way", "fedrep"), ("monitor", "gradient"))),
    Case("mixed", "regression", (("site_effects", True),)),
    Case("multiview_ppca", "latent", (("compare", True),)),
    Case("kmodes", "clustering", (("seeding", "sites"),)),
]


@pytest.mark.parametrize("further", FURTHER, ids=str)
def test_a_fit_asks_only_what_a_site_of_a_network_answers(further):
    assert reference(further).ledger


def clashing(method: Any) -> Any:
    """Return a method whose rule for one argument is another step's."""

    def bounds(config: Any, task: Task) -> Mapping[str, Any]:
        return {**method.bounds(config, task), "family": ("poisson",)}

    return dataclasses.replace(method, bounds=bounds)


def test_a_rule_of_another_meaning_ends_a_fit(monkeypatch):
    case = Case("glm", "regression", ())
    wrong = clashing(registry.find("glm"))
    monkeypatch.setattr(Case, "entry", property(lambda self: wrong))
    monkeypatch.setattr(cases, "consent_of", lambda case, seed: cases.Held(case, seed).check)
    with pytest.raises(Refused, match=r"family of .* differs from its settings"):
        run(case)


METHODS = [n for n in registry.names() if registry.find(n).bounds is not None]


@pytest.mark.parametrize("name", METHODS)
def test_what_a_rule_allows_is_of_the_type_of_every_argument_that_it_is_for(name):
    """A name that is a number in one step and a text in another has a rule for each step."""
    method = registry.find(name)
    kind = method.tasks[0]
    config = Case(name, kind, ()).config
    task = cases.task_of(Case(name, kind, ()), 3)
    assert method.bounds is not None
    rules = method.bounds(config, task)
    wrong = []
    for step in method.steps:
        hints = typing.get_type_hints(step.run)
        for argument in scalars(step):
            rule = rules.get(f"{step.name}.{argument}", rules.get(argument))
            if rule is None or step.private:
                continue
            some = rule[:1] if isinstance(rule, range) else rule
            values = [value for value in some if not callable(value)]  # a rule such as `Rescaled`
            if any(type(value) is not hints[argument] for value in values):
                wrong.append((step.name, argument, hints[argument].__name__, list(some)[:2]))
    assert wrong == []
