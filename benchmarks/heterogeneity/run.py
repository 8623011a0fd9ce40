"""How often R alarms: trainings over sites that are alike, and over sites that are not.

python benchmarks/heterogeneity/run.py [--runs N] [--rounds T] [--models NAME …] [--sizes NAME …]
                                       [--out FILE]

Each run is a federated averaging of a logistic regression (or of a network, or of a Cox model) over
the in-process runtime, watched from its first round on (`training.heterogeneity`). The table is a
mixture of populations with other covariates, other outcomes and other effects. "iid" deals its rows
at random; "disjoint" gives each site populations of its own; "labels" sorts by the outcome;
"effects" gives all sites the same covariates and outcomes, and half of them effects of the other
sign. Methods (`METHODS`) are fitted as a study does, with their setting `monitor`, over the same
tables. Accepted: alarms in at most 5 % of the iid runs (up to 8.5 % of one setting's 200, which
chance gives in one of a hundred), and in at least 95 % of the disjoint ones, of gradients. The loss
as a trajectory is told beside it. A share has its exact 95 % interval (Clopper & Pearson, 1934),
with the runs as independent draws. `--out` adds each finished line to a file, as a group of figures
named by model, sites, split, trajectory and rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from fedcohort.algorithms import autoencoders, deep_clustering, personal
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import Method, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training import heterogeneity
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

P = 5
#: Models: loss, hidden units.
MODELS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "logistic": ("logistic", ()),
    "network": ("logistic", (8,)),
    "linear": ("linear", ()),
    "cox": ("cox", ()),
}
#: Rows of the sites of a run.
SIZES: Mapping[str, tuple[int, ...]] = {
    "4 x 200": (200,) * 4,
    "2 x 200": (200,) * 2,
    "8 x 100": (100,) * 8,
    "4 unequal": (60, 120, 240, 480),
}
SPLITS = ("iid", "disjoint", "labels", "effects")
#: Methods: task, settings. Each is watched for 12 rounds of 3 local steps.
METHODS: Mapping[str, tuple[Method, str, Mapping[str, Any]]] = {
    "personal": (personal.METHOD, "classification", {"way": "global", "learning_rate": 0.1}),
    "vae": (autoencoders.VAE, "latent", {"q": 2, "hidden": (4,), "learning_rate": 0.01}),
    "deep_clustering": (
        deep_clustering.METHOD,
        "clustering",
        {"n_clusters": 2, "architecture": (8, 2), "output": "linear", "batch_size": 0}
        | {"cluster_rounds": 1, "restarts": 2, "learning_rate": 0.01},
    ),
}


def population(rng: np.random.Generator, split: str, sites: int, n: int) -> tuple[Array, ...]:
    """Return covariates (n, P), linear predictors (n,) and populations (n,) of a table."""
    k = rng.integers(sites, size=n)
    effects = np.linspace(1.2, -0.8, P)
    if split == "effects":
        x = rng.normal(size=(n, P))
        return x, np.where(k % 2, 1.0, -1.0) * (x @ effects), k
    centres, own = rng.normal(size=(sites, P)), effects + rng.normal(size=(sites, P))
    x = centres[k] + rng.normal(size=(n, P))
    return (x - x.mean(axis=0)) / x.std(axis=0), np.einsum("ij,ij->i", x, own[k]), k


def tables(seed: int, split: str, model: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the sites of a run; an iid split is of the same mixture as a disjoint one."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    x, eta, k = population(rng, split, len(sizes), 4 * total)
    if model == "cox":
        death, leave = rng.exponential(np.exp(-np.clip(eta, -4, 4))), rng.exponential(2.0, len(x))
        y, event = np.minimum(death, leave), death <= leave
    elif model == "linear":
        y, event = eta + rng.normal(size=len(x)), None
    else:
        y, event = (rng.random(len(x)) < 1 / (1 + np.exp(-eta))).astype(float), None
    if split == "labels":
        rank = np.argsort(y + 1e-9 * rng.random(len(x)), kind="stable")
        parts = [p[rng.permutation(len(p))] for p in np.array_split(rank, len(sizes))]
    elif split == "iid":
        parts = np.array_split(rng.permutation(len(x)), len(sizes))
    else:
        parts = [np.flatnonzero(k == j) for j in range(len(sizes))]
    out: dict[str, Any] = {}
    for j, (rows, n) in enumerate(zip(parts, sizes, strict=True)):
        own = rows[:n]
        if event is None:
            out[f"s{j}"] = LabelledTable(x[own], y[own])
        else:
            out[f"s{j}"] = SurvivalTable(x[own], y[own], event[own])
    return out


def one(
    model: str, seed: int, split: str, size: str, kind: str, rounds: int = 12
) -> dict[str, float]:
    """Train once; return whether and when there was an alarm, and R at the end of a lap."""
    data = tables(seed, split, model, SIZES[size])
    loss, hidden = MODELS[model]
    net = Mlp(inputs=P, hidden=hidden, intercept=model != "cox").spec
    plan = Plan(network=net, loss=loss, epochs=3, optimiser="sgd")
    hosts = [Host(n, t, (*strategies.STEPS, *heterogeneity.STEPS), seed) for n, t in data.items()]
    fed = local(hosts)
    theta = initial(net, seed)
    seen = heterogeneity.Watch(fed, plan, kind, least=5)
    strategies.averaging(
        fed, plan, Schedule(rounds=rounds, learning_rate=0.1, lr_rule="constant"), fedavg,
        Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3), lambda _: 0.0, watch=seen,
    )  # fmt: skip
    rs = [row["R"] for row in fed.history if "R" in row]
    fired = seen.fired is not None
    return {"alarm": float(fired), "rounds": float(seen.fired or 0), "r": max(rs, default=0.0)}


def fitted(name: str, seed: int, split: str, size: str, kind: str, rounds: int) -> dict[str, float]:
    """Fit a method once; return the same."""
    method, task, given = METHODS[name]
    data = tables(seed, split, "logistic", SIZES[size])
    if task != "classification":
        data = {n: FeatureTable(t.x) for n, t in data.items()}
    more = {"rounds": rounds, "internal_epochs": 3, "monitor": kind}
    outcome = "binary" if task == "classification" else ""
    features = tuple(f"x{j}" for j in range(P))
    asked = Task(kind=task, features=features, seed=seed, outcome=outcome, min_cell=5)
    fed = local([Host(n, t, method.steps, seed) for n, t in data.items()])
    method.fit(fed, method.configure({**given, **more, **user(name)}), asked)
    looks = [(i, row["R"], row["R_alarm"]) for i, row in enumerate(fed.history) if "R" in row]
    after = [i for i, r, alarm in looks if r > alarm]
    r = max((r for _, r, _ in looks), default=0.0)
    return {"alarm": float(bool(after)), "rounds": float(min(after, default=0)), "r": r}


def user(name: str) -> dict[str, str]:
    """Return for whom a method's model is, where it must be said."""
    return {"user": "s0"} if name == "personal" else {}


def settings(models: list[str], sizes: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield model or method, sites, split and trajectory of each line."""
    for model in models:
        for size in sizes if model in MODELS else ("4 x 200",):
            some = SPLITS if size == "4 x 200" and model in MODELS else SPLITS[:2]
            yield from ((model, size, split, "gradient") for split in some)
    if "logistic" in models and "4 x 200" in sizes:
        yield from (("logistic", "4 x 200", split, "loss") for split in SPLITS)


def counted(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the alarms of some runs in percent, with their interval, and medians over runs."""
    after = [r["rounds"] for r in runs if r["alarm"]]
    low, high = binomtest(len(after), len(runs)).proportion_ci(0.95, "exact")
    return {
        "runs": len(runs),
        "alarms": len(after),
        "percent": 100 * len(after) / len(runs),
        "low": round(100 * float(low), 3),
        "high": round(100 * float(high), 3),
        "median_R": round(float(np.median([r["r"] for r in runs])), 2),
        "rounds": float(np.median(after)) if after else 0.0,
    }


def main() -> None:
    """Run all and write a line for each setting."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=200)
    ask.add_argument("--rounds", type=int, default=12)
    every = [*MODELS, *METHODS]
    ask.add_argument("--models", nargs="*", default=every, choices=every)
    ask.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    asks_out(ask)
    given = ask.parse_args()
    lines: list[dict[str, Any]] = []
    for model, size, split, kind in settings(given.models, given.sizes):
        train = one if model in MODELS else fitted
        runs = [train(model, 1000 + s, split, size, kind, given.rounds) for s in range(given.runs)]
        lines.append({"model": model, "sites": size, "split": split, "trajectory": kind})
        found = counted(runs)
        lines[-1] |= found
        print(*lines[-1].values(), sep="\t", flush=True)
        group = "-".join([model, size, split, kind, str(given.rounds)])
        keep(given.out, {group.replace(" ", "_"): found})
    most = 8.5 if given.runs <= 200 else 5.0
    held = [
        line["percent"] <= most if line["split"] == "iid" else line["percent"] >= 95
        for line in lines
        if line["trajectory"] == "gradient" and line["split"] in ("iid", "disjoint")
    ]
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
