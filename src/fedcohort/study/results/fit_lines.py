"""One-line texts about a fit, for a notebook: its kind, columns left out, its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import (
    Binary,
    Category,
    Continuous,
    Count,
    Ordered,
    Outcome,
    Survival,
)
from fedcohort.protocol import Method

#: Number of features to name.
FEW = 6
#: Code for an outcome.
OUTCOMES: Mapping[type[Outcome], str] = {
    Survival: 'fc.Survival("TIME", "EVENT")',
    Binary: 'fc.Binary("COLUMN")',
    Category: 'fc.Category("COLUMN")',
    Ordered: 'fc.Ordered("COLUMN")',
    Continuous: 'fc.Continuous("COLUMN")',
    Count: 'fc.Count("COLUMN")',
}


def about(
    method: str,
    sites: int,
    rounds: int,
    features: Sequence[str],
    offset: str = "",
    private: Mapping[str, Any] | None = None,
) -> str:
    """Return a fit's description; `sites` is 0 if unknown."""
    told = [f"<Fit of {method}"]
    told += [_many(sites, "site"), _many(rounds, "round")] if sites else []
    if features:
        more = ", …" if len(features) > FEW else ""
        told.append(f"{_many(len(features), 'feature')}: {', '.join(features[:FEW])}{more}")
    told += [f"offset {offset}"] if offset else []
    if private:
        told.append(f"ε {private['epsilon']:g}, δ {private['delta']:g}, {private['note']}")
    return f"{', '.join(told)}>"


def left_out(
    method: str, dropped: Mapping[str, str], dictionary: Dictionary, *, drafted: bool
) -> str:
    """Return a warning about columns expected among the covariates but left out; "" without.

    A written dictionary states which columns are no covariates. A drafted one may be wrong, except
    for identifiers.

    Parameters
    ----------
    dropped : column → why it is no covariate.
    """
    said: list[str] = []
    more = ""
    for name, why in dropped.items():
        if dictionary[name].usable:
            said.append(f"{name!r} ({why})")
        elif drafted and not dictionary[name].identifier:
            said.append(f"{name!r} ({why}, as drafted)")
            more = " Give a dictionary to say otherwise."
    return f"{method} leaves out {_many(len(said), 'column')}: {', '.join(said)}.{more}" * bool(
        said
    )


def serves(method: Method, outcome: Outcome | None) -> str:
    """Return a method's tasks, and what to do if the sites have another outcome, or none."""
    known = [
        code
        for kind, code in OUTCOMES.items()
        if kind.kind in method.tasks and kind.type in method.outcomes
    ]
    tasks = f"method {method.name!r} serves {', '.join(method.tasks)}"
    if outcome is None and known:
        return f"{tasks}; say what it predicts: fc.simulate(…, outcome={' or '.join(known)})."
    return f"{tasks}, not {'latent' if outcome is None else outcome.kind}."


def _many(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
