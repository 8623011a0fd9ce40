"""How often R of the sites' models is above its level, on validation rows of the coordinator.

python benchmarks/heterogeneity/models.py [--runs N] [--out FILE]

Federated averaging as in `run.py`, over four sites of 200 rows, with 200 rows of the coordinator
from the same mixture: all for validation ("cold"), or half of them for a first model before round 1
("warm"). Nothing is accepted or refused: the level of R is a convention (`networks.validated`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from run import MODELS, P, population

from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import OwnRows, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.settings import ValidatedSettings
from fedcohort.training.networks.validated import CoordinatorRows, Validated

SITES, ROWS, OWN = 4, 200, 200


def tables(seed: int, split: str, model: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the sites' tables, and the halves of the coordinator's, of one mixture."""
    rng = np.random.default_rng(seed)
    total = SITES * ROWS
    x, eta, k = population(rng, split, SITES, 4 * total)
    event = None
    if model == "cox":
        death, leave = rng.exponential(np.exp(-np.clip(eta, -4, 4))), rng.exponential(2.0, len(x))
        y, event = np.minimum(death, leave), death <= leave
    else:
        y = (rng.random(len(x)) < 1 / (1 + np.exp(-eta))).astype(float)
    order = rng.permutation(len(x))
    own, rest = order[:OWN], order[OWN:]
    parts = np.array_split(rest, SITES)
    if split == "labels":
        parts = np.array_split(rest[np.argsort(y[rest], kind="stable")], SITES)
        parts = [rng.permutation(part) for part in parts]
    elif split != "iid":
        parts = [rest[k[rest] == j] for j in range(SITES)]

    def table(rows: Any) -> Any:
        if event is not None:
            return SurvivalTable(x[rows], y[rows], event[rows])
        return LabelledTable(x[rows], y[rows])

    return {f"s{j}": table(rows[:ROWS]) for j, rows in enumerate(parts)}, [
        table(own[: OWN // 2]), table(own[OWN // 2 :]), table(own)
    ]  # fmt: skip


def one(model: str, seed: int, split: str, *, warm: bool, rounds: int) -> list[float]:
    """Train once; return R after each round from the third."""
    data, (first, judging, all_own) = tables(seed, split, model)
    loss, hidden = MODELS[model]
    net = Mlp(inputs=P, hidden=hidden, intercept=model != "cox").spec
    plan = Plan(network=net, loss=loss, epochs=3, optimiser="sgd")
    rows = OwnRows(first, judging) if warm else OwnRows(None, all_own)
    own = CoordinatorRows.of(Task(kind="", features=(), seed=seed, own=rows), plan)
    assert own is not None
    fed = local([Host(n, t, strategies.STEPS, seed) for n, t in data.items()])
    schedule = Schedule(rounds=rounds, learning_rate=0.1, lr_rule="constant")
    theta = own.start(initial(net, seed), schedule)
    strategies.averaging(
        fed, plan, schedule, fedavg, Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3),
        lambda _: 0.0, watch=Validated(own, np.inf),
    )  # fmt: skip
    return [row["R_models"] for row in fed.history if "R_models" in row]


def main() -> None:
    """Run all and write a line for each setting."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=100)
    ask.add_argument("--rounds", type=int, default=12)
    ask.add_argument("--out", type=Path)
    given = ask.parse_args()
    level = ValidatedSettings().alarm
    lines: list[dict[str, Any]] = []
    for model in ("logistic", "network", "cox"):
        for warm in (False, True):
            for split in ("iid", "disjoint", "labels", "effects"):
                runs = [
                    one(model, 1000 + s, split, warm=warm, rounds=given.rounds)
                    for s in range(given.runs)
                ]
                lines.append(
                    {"model": model, "start": "warm" if warm else "cold", "split": split}
                    | {"alarms": sum(max(r) > level for r in runs) / len(runs)}
                    | {"at the end": sum(r[-1] > level for r in runs) / len(runs)}
                    | {"median R at the end": round(float(np.median([r[-1] for r in runs])), 2)}
                )
                print(*lines[-1].values(), sep="\t", flush=True)
    if given.out:
        given.out.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
