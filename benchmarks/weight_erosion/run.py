"""Weight Erosion on the Titanic's passengers, as in its paper.

    python benchmarks/weight_erosion/run.py --data titanic3.csv --out DIR [--seeds 5] [--start 0]

--data: the 1309 passengers of titanic3. Four agents by age: AGE_STRICT has those up to 20 years, 21
to 35, 36 and more, and of unknown age; AGE_SOME the same, but that the first two are mixed and
halved. Each agent is the user once: the first 1 + ⌊n/2⌋ of its shuffled rows are the test, the rest
its rows to train on; the others have all of theirs. Logistic regression, which from a start at 0 is
the paper's linear layer of two outputs with log-softmax; penalty 1e-3; 30 rounds of one batch each.

Arms, with the paper's learning rates: Global (p_d = 0, 0.07; and with 3, to tell what the rate
does), Local (the user alone, 3), Erosion (p_d = 0.01, p_s = 0.2, 3), and the latter with the labels
of the agent after the user flipped. Writes DIR/runs.jsonl, a line per split, user, seed and arm,
with accuracy and α by round, after those that are there; `show.py` makes tables of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training import erosion
from fedcohort.training.plan import Plan

AGENTS = ("agent0", "agent1", "agent2", "agent3")
BATCH = {"AGE_STRICT": 161, "AGE_SOME": 132}
ROUNDS, UNKNOWN_MINOR = 30, 0.201
#: Learning rate and p_d of each arm.
ARMS = {
    "Global": (0.07, 0.0),
    "Global, rate 3": (3.0, 0.0),
    "Local": (3.0, 0.0),
    "Erosion": (3.0, 0.01),
    "Erosion, flipped": (3.0, 0.01),
}


def standardised(x: Array) -> Array:
    return (x - x.mean()) / x.std()


def features(raw: pd.DataFrame) -> Array:
    """Return fare, sex, ports C and Q, alone, classes 1 and 2, age, minor: (1309, 9)."""
    age = raw.age.to_numpy(float)
    fare = raw.fare.fillna(raw.fare.median()).to_numpy(float)
    return np.column_stack([
        standardised(fare), raw.sex == "female", raw.embarked == "C", raw.embarked == "Q",
        raw.sibsp + raw.parch == 0, raw.pclass == 1, raw.pclass == 2,
        standardised(np.where(np.isnan(age), np.nanmedian(age), age)),
        np.where(np.isnan(age), UNKNOWN_MINOR, age < 17),
    ]).astype(float)  # fmt: skip


def agents(age: Array, split: str, rng: np.random.Generator) -> list[Array]:
    """Return the rows of each agent, by number, shuffled."""
    unknown = np.isnan(age)
    groups = [age < 21, (age >= 21) & (age < 36), age >= 36, unknown]
    rows = [rng.permutation(np.flatnonzero(g)) for g in groups]
    if split == "AGE_SOME":
        young = rng.permutation(np.concatenate(rows[:2]))
        rows[:2] = np.array_split(young, 2)
    return rows


def run(
    tables: Mapping[str, LabelledTable], user: str, test: LabelledTable, arm: str, batch: int,
    seed: int,
) -> dict[str, object]:  # fmt: skip
    """Return accuracy after each round, and each agent's α by round."""
    rate, p_d = ARMS[arm]
    plan = Plan(
        network=Mlp(inputs=test.x.shape[1], hidden=()).spec, loss="logistic", epochs=1,
        batch_size=batch, optimiser="sgd", l2=1e-3,
    )  # fmt: skip
    right: list[float] = []

    def judge(theta: Array) -> None:
        found = test.x @ theta[:-1] + theta[-1] > 0
        right.append(float((found == (test.y > 0)).mean()))

    fed = local([Host(name, table, erosion.STEPS, seed) for name, table in tables.items()])
    found = erosion.train_eroding(
        fed, user, np.zeros(test.x.shape[1] + 1), plan, ROUNDS, rate, visit="batch",
        by=erosion.Erosion(distance=p_d, size=0.2), min_cell=5, after=judge,
    )  # fmt: skip
    history = fed.history
    alphas = {a: [row.get(f"alpha {a}", 1.0) for row in history] for a in tables if a != user}
    return {"accuracy": right, "alpha": alphas, "theta": found.theta.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    raw = pd.read_csv(given.data)
    x, y, age = features(raw), raw.survived.to_numpy(float), raw.age.to_numpy(float)
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "runs.jsonl").open("a") as out:
        for seed in range(given.start, given.start + given.seeds):
            for split, batch in BATCH.items():
                rows = agents(age, split, np.random.default_rng((278, seed)))
                for k, user in enumerate(AGENTS):
                    cut = 1 + len(rows[k]) // 2
                    test = LabelledTable(x[rows[k][:cut]], y[rows[k][:cut]])
                    own = {**dict(zip(AGENTS, rows, strict=True)), user: rows[k][cut:]}
                    tables = {a: LabelledTable(x[r], y[r]) for a, r in own.items()}
                    after = AGENTS[(k + 1) % len(AGENTS)]
                    for arm in ARMS:
                        seen = {user: tables[user]} if arm == "Local" else dict(tables)
                        if arm == "Erosion, flipped":
                            seen[after] = LabelledTable(seen[after].x, 1.0 - seen[after].y)
                        of = {"split": split, "user": user, "seed": seed, "arm": arm}
                        sizes = {"rows": [len(r) for r in rows], "flipped": after}
                        out.write(json.dumps(of | sizes | run(seen, user, test, arm, batch, seed)))
                        out.write("\n")
                        out.flush()
            print(f"seed {seed} done", flush=True)


if __name__ == "__main__":
    main()
