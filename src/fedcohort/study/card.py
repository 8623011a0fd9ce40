"""The model card: one page that goes with a saved model, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fedcohort
from fedcohort.protocol import registry
from fedcohort.study.arms import Arm
from fedcohort.study.plan import Plan


def card(plan: Plan, arm: Arm, results: Mapping[str, Any]) -> str:
    """Return the model card: what the model is, what it was trained on, how good it is."""
    method = registry.find(arm.method)
    first = plan.scenarios[0].name
    scores = [s for s in results["summary"] if s["arm"] == arm.name and s["scenario"] == first]
    rows = "\n".join(f"| {s['metric']} | {s['mean']:.3f} | {s['n']} |" for s in scores)
    declared = next(d for d in results["declared"] if d["arm"] == arm.name)
    settings = "\n".join(f"- {k}: {v}" for k, v in declared["settings"].items())
    return f"""# {arm.title}: {plan.study}

{plan.question}

- Method: {method.title} (`{method.name}`). Source: {method.paper}
- Trained on: {plan.source}, scenario {first}, the training rows of the first repeat \
({1 - plan.test_fraction:.0%} of {results["data"]["rows"]} rows)
- Outcome: {", ".join(results["outcome"]["columns"]) or "none"}
- Role in the study: {declared["role"]}
- What left the sites: {declared["reveals"]}
- Seed: {plan.seed}; fedcohort {fedcohort.__version__}

## Evaluation on blind test rows, scenario {first}

| metric | mean | repeats |
|---|---|---|
{rows}

## Settings

{settings}

## Limits

The model was evaluated on rows of the same source. Before it is used for patients of another
hospital or period, evaluate it there. It is no medical device.
"""
