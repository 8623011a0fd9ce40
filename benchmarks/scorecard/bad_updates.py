"""Bad updates: what one of seven sites says in every round, under each strategy and aggregation.

    python benchmarks/scorecard/bad_updates.py [--json FILE]

Each of 14 kinds of lie (`benchmarks/robust/attacks.py`; a scaled update is one kind, at ×10 and at
×1000) is told by a liar in one process, and, but for flips, in the bytes of its replies,
to DeepCox on the packaged sample gbsg2 with a quorum of a half and no masks. Three outcomes count:

    rejected    every lie was rejected with the site named, and the fit was finished without it
    out-voted   it was finished with the lie, by an aggregation other than mean, and the C-index is
                within 0.02 of that without the liar, in the mean over five splits
    heard       it was finished with the lie

Ten kinds are impossible for an honest site and must be rejected under every strategy; scaled and
constant updates as well, but for constant sums of `exact`, which have no bound (nor have its
scaled sums: these are heard, and the row says that the target is not met); flips of labels and
signs, which a hospital with other patients could have sent, must be out-voted by every robust
aggregation, and are heard by all else. A stale reply is told in bytes alone: in one process there
is no call to forge.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sheet import main

sys.path.append(str(Path(__file__).parents[1] / "robust"))
from attacks import IMPOSSIBLE, KINDS, LARGE, PLAUSIBLE, federation, sample, sites_of, some

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.metrics.concordance import harrell
from fedcohort.models.network import initial, network
from fedcohort.protocol import FedcohortError, Task
from fedcohort.training import strategies
from fedcohort.training.server import RULES

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
    if adagrad:  # a rule of `training.server` that DeepCox does not offer
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


def expected(case: str, kind: str) -> tuple[str, ...]:
    """Return the outcomes that meet the target; () where no check can."""
    if kind in IMPOSSIBLE:
        return ("rejected",)
    if kind in LARGE:
        return () if (case, kind) == ("exact", "constant") else ("rejected", "out-voted")
    return ("rejected", "out-voted") if case in ROBUST else ()


def measure() -> tuple[str, bool]:
    """Tell every lie under every strategy, in one process and in bytes."""
    logging.disable(logging.WARNING)
    counts: dict[str, int] = {}
    wrong: list[str] = []
    beyond: list[str] = []
    for case in CASES:
        for kind in KINDS:
            for as_bytes in (False, True):
                if as_bytes if kind in SAME else (kind == "stale reply" and not as_bytes):
                    continue
                found = outcome(case, kind, as_bytes=as_bytes)
                word = found.split(" (")[0]
                counts[word] = counts.get(word, 0) + 1
                wanted = expected(case, kind)
                where = f"{case}, {kind}, {'bytes' if as_bytes else 'in process'}: {found}"
                if wanted and found not in wanted:
                    wrong.append(where)
                elif not wanted and found not in ("rejected", "out-voted"):
                    beyond.append(where)
    for line in (*wrong, *beyond):
        print(line, file=sys.stderr)
    told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    return (
        f"{len(CASES)} strategies and aggregations, in one process and in bytes: {told}; of the "
        f"{len(IMPOSSIBLE)} impossible kinds all but {_of(wrong, IMPOSSIBLE)} rejected with the "
        f"site named and the fit finished; {len(wrong)} lies were heard that should not be, "
        f"{len(beyond)} that no check tells from other patients (flips under mean, sequential, "
        f"ensemble and exact; constant sums of exact)",
        not wrong,
    )


def _of(lines: list[str], kinds: Any) -> int:
    """Return how many lines are about these kinds."""
    return sum(any(f", {kind}, " in line for kind in kinds) for line in lines)


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
