"""Membership inference: training rows revealed by the final model.

The saved model's training rows at all sites are compared with held-out rows of the study. Two
attackers know values and outcomes of rows (`scores`): one compares likelihoods, the other has
shadow models, fitted to other divisions of the same rows by the same method with its protections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.audit.findings import Findings
from fedcohort.audit.rebuilt import Rebuilt
from fedcohort.audit.scores import likelihood_ratios, scores
from fedcohort.data.prepare import Design
from fedcohort.metrics.membership import Auc, delong
from fedcohort.protocol import DataError, FedcohortError, Fitted
from fedcohort.study.run.engine import Problem, Run, fit_once

#: An AUC above this, with an interval above ½, is an alarm.
CAUGHT = 0.55
#: Smallest number of rows on either side.
LEAST = 20


def infer(run: Rebuilt, *, arm: str | None = None, shadows: int = 16, seed: int = 0) -> Findings:
    """Audit one arm of a run.

    Parameters
    ----------
    shadows : number of shadow models; 0 for none.

    Raises
    ------
    DataError : fewer than 20 rows on either side, or a model that predicts no outcome.
    """
    chosen = run.arm(arm)
    kept = run.saved(chosen)
    frames = run.laid.problem.frames
    members = sum(map(len, frames.values()))
    if min(members, len(run.laid.test)) < LEAST:
        raise DataError(
            f"{run.folder}: {members} rows were trained on and {len(run.laid.test)} held out; an "
            f"audit of membership needs {LEAST} of each."
        )
    method, settings = run.method(chosen), run.settings(chosen)

    def again(problem: Problem, seed: int) -> Run:
        return fit_once(problem, method, settings, chosen.preprocess, seed, explained=False)

    lines, made = attacks(
        kept.model, kept.design, run.laid.problem, run.laid.test, again, shadows, seed
    )
    worst = max(lines, key=lambda line: line["auc"])
    alarm = any(line["auc"] > CAUGHT and line["low"] > 0.5 for line in lines)
    dp = run.plan.privacy.dp
    attack = "The attack" if len(lines) == 1 else f"The stronger of {len(lines)} attacks"
    told = "without differential privacy" if dp is None else f"at ε = {dp.epsilon:g}"
    verdict = (
        f"{attack} on the model fitted {told} has an AUC of "
        f"{worst['auc']:.3f} ({worst['low']:.3f} to {worst['high']:.3f}); 0.5 is guessing. "
        + ("It tells members from others." if alarm else "It hardly tells members from others.")
    )
    return Findings(
        "membership",
        chosen.name,
        "Can somebody with the final model tell who it was trained on?",
        lines,
        verdict,
        alarm,
        {"shadows": made, "epsilon": None if dp is None else dp.epsilon},
    )


def attacks(
    model: Fitted,
    design: Design,
    problem: Problem,
    test: pd.DataFrame,
    again: Callable[[Problem, int], Run],
    shadows: int,
    seed: int = 0,
) -> tuple[list[dict[str, Any]], int]:
    """Return a line for each attack on a model, and how many shadow models could be fitted.

    Parameters
    ----------
    problem : whose rows, at all sites, the model was trained on.
    test : rows that it was not.
    again : fits the same method to another problem, from a seed.
    """
    members = sum(map(len, problem.frames.values()))
    rows = pd.concat([*problem.frames.values(), test], ignore_index=True)
    target = scores(model, design, rows)
    lines = [_line("likelihood", delong(target[:members], target[members:]))]
    if not shadows:
        return lines, 0
    ratios, made = _shadowed(problem, rows, target, again, shadows, seed)
    if made >= 4:
        auc = delong(ratios[:members], ratios[members:])
        lines.append(_line(f"likelihood ratio, {made} shadow models", auc))
    return lines, made


def _shadowed(
    problem: Problem,
    rows: pd.DataFrame,
    target: Array,
    again: Callable[[Problem, int], Run],
    count: int,
    seed: int,
) -> tuple[Array, int]:
    """Return Λ of each row (n,), and how many shadow models could be fitted."""
    rng = np.random.default_rng((seed, 0x73686164))
    sizes = {k: len(f) for k, f in problem.frames.items()}
    seen: list[Array] = []
    inside: list[Array] = []
    for _ in range(count):
        order = rng.permutation(len(rows))
        cuts = np.cumsum(list(sizes.values()))
        parts = np.split(order[: cuts[-1]], cuts[:-1])
        frames = {
            name: rows.iloc[np.sort(part)].reset_index(drop=True)
            for name, part in zip(sizes, parts, strict=True)
        }
        try:
            fit = again(problem.on(frames), int(rng.integers(2**31)))
            said = scores(fit.model, fit.design, rows)
        except FedcohortError:  # a division that gives no model, such as a site without an event
            continue
        if not np.isfinite(said).all():
            continue
        seen.append(said)
        taken = np.zeros(len(rows), bool)
        taken[order[: cuts[-1]]] = True
        inside.append(taken)
    if len(seen) < 2:
        return np.zeros(len(rows)), len(seen)
    return likelihood_ratios(target, np.stack(seen), np.stack(inside)), len(seen)


def _line(attack: str, auc: Auc) -> dict[str, Any]:
    return {
        "attack": attack,
        "auc": round(auc.value, 4),
        "low": round(auc.low, 4),
        "high": round(auc.high, 4),
        "members": auc.members,
        "others": auc.others,
    }
