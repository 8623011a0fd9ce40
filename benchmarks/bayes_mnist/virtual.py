"""MNIST over 100 clients by `bayes_net` with the strategy virtual: four curves by round.

    python benchmarks/bayes_mnist/virtual.py --data FILE --folder DIR [--split iid|label]
        [--private none|biases|last] [--rounds 50] [--seed 0] [--rows 60000]
        [--with '{"learning_rate": 0.003}'] [--out FILE]

GenoMed4All D6.2, section 4.3.2, after Corinzia, Beuret, Buhmann, arXiv:1906.06268: 784-100-100-10,
ReLU, 100 clients, of which 10 work in a round, 20 epochs each, batches of 20; D6.2 has 97.15 % of
the server and 96.94 % of the clients' mean, with no weights of the clients' own ("none"). The
program behind D6.2 takes SGD with steps of its own in natural parameters, and weighs the divergence
by 1e-5; here it is Adam, and the divergence has its full weight unless `--with` sets `temperature`.
The first round is of all clients, as of `bayes_net`.

Splits:

iid      rows in random order, 600 each
label    rows sorted by label, in 200 pieces of 300; each client gets two (McMahan et al. 2017)

Test rows are divided as the training rows are; curves, each accuracy and mean −ln p:

train    models of the clients that worked in the round, on their own training rows
server   the coordinator's model, on all test rows
clients  all clients, each by its own model after its last visit, on its own test rows
drawn    the same of those that worked in the round

Each round is written to `DIR/SPLIT-PRIVATE-SEED.csv` when it ends; the same command goes on from
there. A round's curve is missing if the program was killed while it was drawn. States of 100
clients take about 1 GB of memory, and as much of the disk. A visit of 600 rows takes 2.5 s of a
core, so a round some 30 s with judging, and the first, of all clients, 250 s.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

from fedcohort.algorithms.bayes_net import METHOD, BayesNetModel, aim_of, prior_of
from fedcohort.algorithms.bayes_net.program import Run
from fedcohort.algorithms.bayes_net.steps import places_of, posterior_at_start
from fedcohort.algorithms.bayes_net.virtual import joined, own_weights, refine_shared, shared_of
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.reply_store import StateStore

CLIENTS, DRAWN = 100, 10
SETTINGS: dict[str, Any] = {
    "strategy": "virtual", "sites_per_round": DRAWN, "hidden": [100, 100], "internal_epochs": 20,
    "batch_size": 20, "learning_rate": 0.001, "dtype": "float32", "samples": 10,
}  # fmt: skip
CURVES = ("train", "server", "clients", "drawn")
GOALS = {"server": 0.9715, "clients": 0.9694}


def dealt(y: Array, split: str, rng: np.random.Generator, pieces: Array) -> list[Array]:
    """Return the rows of each client.

    pieces : (100, 2), of 200 pieces of the rows sorted by label, those of each client.
    """
    order = rng.permutation(len(y))
    if split == "iid":
        return [order[k::CLIENTS] for k in range(CLIENTS)]
    parts = np.array_split(order[np.argsort(y[order], kind="stable")], 2 * CLIENTS)
    return [np.concatenate([parts[i] for i in mine]) for mine in pieces.tolist()]


def judged(model: BayesNetModel, x: Array, y: Array) -> tuple[float, float]:
    """Return the number of right rows, and the sum of −ln p."""
    p = model.predict(x)
    said = np.maximum(p[np.arange(len(y)), y.astype(int)], 1e-12)
    return float((p.argmax(axis=1) == y).sum()), float(-np.log(said).sum())


def mean(found: Sequence[tuple[float, float]], rows: int) -> tuple[float, float]:
    """Return accuracy and mean −ln p."""
    right, loss = np.sum(np.array(found).reshape(-1, 2), axis=0).tolist()
    return right / rows, loss / rows


class Study:
    """Clients, their rows, and the curves of a run."""

    def __init__(self, given: argparse.Namespace):
        held = np.load(given.data)
        rng = np.random.default_rng(given.seed)
        chosen = rng.permutation(len(held["y_train"]))[: given.rows]
        pieces = rng.permutation(2 * CLIENTS).reshape(CLIENTS, 2)
        self.train = self._parts(held["x_train"][chosen], held["y_train"][chosen], given, pieces)
        self.test = self._parts(held["x_test"], held["y_test"], given, pieces)
        self.names = [f"client-{k:03}" for k in range(CLIENTS)]
        settings = {**SETTINGS, "private_weights": given.private, "rounds": given.rounds}
        self.config = METHOD.configure({**settings, **json.loads(given.more)})
        self.task = Task(
            kind="classification", features=tuple(f"x{j}" for j in range(784)), outcome="category",
            levels=tuple("0123456789"), seed=given.seed, min_cell=1,
        )  # fmt: skip
        aim = aim_of(self.task, self.config.head)
        self.plan = self.config.plan(784, aim.loss, aim.outputs)

    def _parts(
        self, x: Array, y: Array, given: argparse.Namespace, pieces: Array
    ) -> list[LabelledTable]:
        x = x.reshape(len(x), -1) / 255.0
        rows = dealt(y, given.split, np.random.default_rng(given.seed + 1), pieces)
        return [LabelledTable(x[i], y[i].astype(float)) for i in rows]

    def model(self, theta: Array) -> BayesNetModel:
        """Return the model of a posterior's parameters (P,)."""
        return BayesNetModel(
            features=self.task.features, levels=self.task.levels, model="softmax",
            network=self.plan.network, thetas=theta[None], weights=np.ones(1), centre=0.0,
            scale=1.0, times=np.zeros(0), rounds=0, samples=self.config.samples,
            seed=self.task.seed, level=0.9,
        )  # fmt: skip

    def curves(self, hosts: Sequence[Host], drawn: Sequence[str], theta: Array) -> dict[str, float]:
        """Return accuracy and mean −ln p by curve after a round; no server without last layer."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in CURVES}
        rows: dict[str, int] = dict.fromkeys(CURVES, 0)
        for k, host in enumerate(hosts):
            assert host.state is not None
            own, test = self.model(host.state["theta"]), self.test[k]
            said = judged(own, test.x, test.y)
            for name in ("clients", "drawn") if host.name in drawn else ("clients",):
                found[name].append(said)
                rows[name] += len(test.x)
            if host.name in drawn:
                found["train"].append(judged(own, self.train[k].x, self.train[k].y))
                rows["train"] += len(self.train[k].x)
        if self.config.private_weights != "last":
            server = self.model(theta)
            found["server"] = [judged(server, test.x, test.y) for test in self.test]
            rows["server"] = sum(len(test.x) for test in self.test)
        out: dict[str, float] = {}
        for name in CURVES:
            if rows[name]:
                out[f"{name} accuracy"], out[f"{name} loss"] = mean(found[name], rows[name])
        return out


def main() -> int:
    parser = argparse.ArgumentParser(description="MNIST over 100 clients by bayes_net, virtual.")
    parser.add_argument("--data", type=Path, required=True, help="mnist.npz")
    parser.add_argument("--folder", type=Path, required=True, help="of curves, journal and states")
    parser.add_argument("--split", choices=("iid", "label"), default="iid")
    parser.add_argument("--private", choices=("none", "biases", "last"), default="none")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=60_000, help="training rows, drawn by the seed")
    parser.add_argument("--with", dest="more", default="{}", help="other settings, as JSON")
    asks_out(parser)
    given = parser.parse_args()
    study = Study(given)
    name = f"{given.split}-{given.private}-{given.seed}"
    given.folder.mkdir(parents=True, exist_ok=True)
    path, states = given.folder / f"{name}.csv", given.folder / f"{name}-states"
    tables = zip(study.names, study.train, strict=True)
    hosts = [Host(client, part, METHOD.steps, seed=given.seed) for client, part in tables]
    journal = Journal(given.folder / f"{name}.journal", f"{study.config} {given.rows} {given.seed}")
    fed = local(hosts, journal=journal, store=StateStore(states))
    spec, prior = study.plan.network, prior_of(study.config)
    own, at = own_weights(spec, given.private), places_of(spec)
    start = posterior_at_start(spec, given.seed)
    asked = {"plan": study.plan.text, "rate": study.config.learning_rate, "prior": prior.text}
    run = Run(fed, study.config, study.task, start, asked)
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        fields = [
            "round",
            "seconds",
            "processor",
            *(f"{c} {v}" for c in CURVES for v in ("accuracy", "loss")),
        ]
        book = csv.DictWriter(file, fields)
        if fresh:
            book.writeheader()
        began, used = time.perf_counter(), time.process_time()
        rounds = run.together(refine_shared, shared_of(start, own), private=given.private)
        for number, q in enumerate(rounds):
            seconds, processor = time.perf_counter() - began, time.process_time() - used
            if any(host.state is None for host in hosts):
                continue  # from the journal: its curve was drawn before
            theta = joined(q, prior.natural(len(own)), own).into(at)
            row = study.curves(hosts, fed.answered, theta)
            times = {"seconds": round(seconds, 2), "processor": round(processor, 2)}
            book.writerow({"round": number + 1, **times, **row})
            file.flush()
            shown = "  ".join(f"{c} {row[f'{c} accuracy']:.4f}" for c in CURVES
                              if f"{c} accuracy" in row)  # fmt: skip
            judging = time.process_time() - used - processor
            print(f"round {number + 1}: {seconds:.1f} s ({processor:.1f} s of the processor, and "
                  f"{judging:.1f} to judge)  {shown}", flush=True)  # fmt: skip
            began, used = time.perf_counter(), time.process_time()
    journal.close()
    with path.open() as file:
        last = list(csv.DictReader(file))[-1]
    figures = {key: float(value) for key, value in last.items() if value}
    keep(given.out, {name: figures | {f"{k} D6.2": v for k, v in GOALS.items()}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
