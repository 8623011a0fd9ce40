"""Bad updates: what one of seven sites says in every round, under each strategy and aggregation.

    python benchmarks/scorecard/bad_updates.py [--json FILE]

Each of 14 kinds of lie (`benchmarks/robust/attacks.py`; a scaled update is one kind, at ×10 and at
×1000) is told by a liar in one process, and, but for flips, in the bytes of its replies,
to DeepCox on the packaged sample gbsg2 with a quorum of a half and no masks. Three outcomes count:

    rejected    every lie was rejected with the site named, and the fit was finished without it
    out-voted   it was finished with the lie, by an aggregation other than mean, and the C-index is
                within 0.02 of that without the liar, in the mean over five splits
    heard       it was finished with the lie, or the fit came to no good end

The target is met where every lie is rejected. Ten kinds are impossible for an honest site, and
rejected under every strategy. Flips of labels and signs, and constant sums of `exact` of an honest
length, are what a hospital with other patients could have sent: robust aggregations can out-vote
them, and strategies without a vote hear them. No check can tell them, so the target is not to be
met; the row counts them all the same. A stale reply is told in bytes alone: in one process there is
no call to forge.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sheet import main

sys.path.append(str(Path(__file__).parents[1] / "robust"))
from attacks import IMPOSSIBLE, KINDS, LARGE, PLAUSIBLE, federation, sample, sites_of, some

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.models.network import initial, network
from fedcohort.protocol import FedcohortError, Task
from fedcohort.training.networks import strategies
from fedcohort.training.networks.server import RULES

ITEM = "bad updates: 14 kinds × every strategy"
TARGET = "all rejected with the site named; the round completes"

ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "norm_bound")
STRATEGIES = (
    "fedavg", "fedprox", "fedadam", "fedyogi", "fedadagrad", "sequential", "ensemble", "exact",
)  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    **{name: {"strategy": name} for name in STRATEGIES},
    **{name: {"aggregation": name, "trim": 0.2, "byzantine": 1} for name in ROBUST},
}
SITES, LIAR, SLACK = 7, "site-3", 0.02
#: Kinds that are told in one process alone, as bytes make no difference to a vote.
SAME = PLAUSIBLE
SPLITS = range(5)
TABLE = sample()


def split(seed: int) -> tuple[Any, dict[str, Any]]:
    """Return the rows held out, and the others by site."""
    order = np.random.default_rng(seed).permutation(len(TABLE.time))
    return some(TABLE, order[:137]), sites_of(some(TABLE, order[137:]), SITES, seed)


TEST, TABLES = split(0)


def fit(case: str, fed: Any, test: Any = TEST) -> float:
    """Return the C-index on the rows held out."""
    given = {"rounds": 12, "time_grid": 10, **CASES[case]}
    given |= {"rounds": 60, "learning_rate": 0.03} if case == "exact" else {}
    adagrad = case == "fedadagrad"
    config = METHOD.configure({**given, "strategy": "fedadam"} if adagrad else given)
    names = tuple(f"x{i}" for i in range(TABLE.x.shape[1]))
    if adagrad:  # a rule of `training.networks.server` that DeepCox does not offer
        plan = config.plan(len(names))
        theta = initial(plan.network, 0)
        course = strategies.averaging(
            fed, plan, config.schedule, RULES[case], config.server(theta), lambda _: 0.0
        )
        net = network(plan.network, plan.dtype, plan.device)
        net.load(course.theta)
        risk = net.outputs(strategies.rows_of(test, plan, (0, 0)).x)
    else:
        risk = METHOD.fit(fed, config, Task(kind="survival", features=names)).predict(test.x)
    return harrell(np.asarray(risk, float), test.time, test.event)


def loss(case: str, kind: str) -> float:
    """Return what a lie costs in C-index, in the mean over the splits."""
    costs: list[float] = []
    for seed in SPLITS:
        test, tables = split(seed)
        honest = {s: t for s, t in tables.items() if s != LIAR}
        without = fit(case, federation(honest, [], "none", case)[0], test)
        costs.append(without - fit(case, federation(tables, [LIAR], kind, case)[0], test))
    return float(np.mean(costs))


def outcome(case: str, kind: str, *, as_bytes: bool) -> str:
    """Return what came of a lie: rejected, out-voted, or what else."""
    fed, told = federation(TABLES, [LIAR], kind, case, as_bytes=as_bytes)
    try:
        fit(case, fed)
    except FedcohortError as error:
        named = LIAR in str(error)
        return f"stopped{', named' if named else ''}"
    lies, refused = told(), [w for (_, s), w in fed.rejected.items() if s == LIAR and s in w]
    others = [s for _, s in fed.missing if s != LIAR]
    if others:
        return f"others missing: {sorted(set(others))}"
    if lies and len(refused) == lies:
        return "rejected"
    heard = f"heard ({len(refused)} of {lies} rejected"
    if case not in ROBUST:
        return f"{heard})"
    cost = loss(case, kind)
    return "out-voted" if cost <= SLACK else f"{heard}; costs {cost:.3f})"


def told_of(outcomes: Mapping[tuple[str, str, bool], str]) -> str:
    """Return how many lies of which kinds came to what, by strategy, kind and way."""

    def tally(what: str, kinds: Collection[str], cases: Collection[str], *good: str) -> str:
        some = [o for (case, kind, _), o in outcomes.items() if kind in kinds and case in cases]
        return f"{what} {sum(o in good for o in some)} of {len(some)} {' or '.join(good)}"

    others = set(CASES) - set(ROBUST)
    heard = [k for k, o in outcomes.items() if o not in ("rejected", "out-voted")]
    large = sum(kind in LARGE for _, kind, _ in heard)
    flips = sum(kind in PLAUSIBLE and case in others for case, kind, _ in heard)
    return "; ".join(
        (
            tally(f"{len(IMPOSSIBLE)} impossible kinds:", IMPOSSIBLE, CASES, "rejected"),
            tally("scaled and constant:", LARGE, CASES, "rejected", "out-voted"),
            tally("flips under robust aggregations:", SAME, ROBUST, "rejected", "out-voted"),
            tally("flips where there is no vote:", SAME, others, "rejected"),
            f"{len(heard)} lies heard: {flips} flips where there is no vote, which no check tells "
            f"from other patients, {large} scaled or constant, {len(heard) - flips - large} others",
        )
    )


def measure() -> tuple[str, bool]:
    """Tell every lie under every strategy, in one process and in bytes."""
    logging.disable(logging.WARNING)
    outcomes: dict[tuple[str, str, bool], str] = {}
    for case in CASES:
        for kind in KINDS:
            for as_bytes in (False, True):
                if as_bytes if kind in SAME else (kind == "stale reply" and not as_bytes):
                    continue
                found = outcomes[case, kind, as_bytes] = outcome(case, kind, as_bytes=as_bytes)
                if found not in ("rejected", "out-voted"):
                    way = "bytes" if as_bytes else "in process"
                    print(f"{case}, {kind}, {way}: {found}", file=sys.stderr)
    text = (
        f"{len(CASES)} strategies and aggregations, {len(outcomes)} lies in one process and in "
        f"bytes, {sum(o == 'rejected' for o in outcomes.values())} rejected with the site named "
        f"and the fit finished; {told_of(outcomes)}"
    )
    return text, all(o == "rejected" for o in outcomes.values())


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
