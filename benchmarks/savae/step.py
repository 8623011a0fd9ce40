"""Time of a training step of `savae` beside one of `vae`, measured in turns.

    python benchmarks/savae/step.py

686 rows of 12 columns, 5 % of the entries missing; both networks with q = 5 and one hidden layer of
32. `mixed`: the seven likelihoods in turn; `normal`: all columns normal. `all` takes all rows in a
step, `64` batches of 64. Nine turns of 60 or 110 steps each, in CPU time of one thread; the ratio
is the median of the turns' ratios. Without dropout, as `vae` has none; `dropout` is `savae`'s
default of 0.2.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedcohort.data.prepare import Head, plain_heads
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial
from fedcohort.models.objectives import Elbo, lifted
from fedcohort.models.savae import Savae
from fedcohort.models.vae import Vae
from fedcohort.training.networks.local import train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import rows_of

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

ROWS, COLUMNS, TURNS = 686, 12, 9
KINDS = ("normal", "lognormal", "bernoulli", "poisson", "negbinomial", "categorical", "ordinal")


def table_of(kinds: tuple[str, ...]) -> tuple[SurvivalTable, tuple[Head, ...]]:
    """Return a table of columns of these kinds in turn, and their heads."""
    rng = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    heads: list[Head] = []
    for i in range(COLUMNS):
        kind, start = kinds[i % len(kinds)], sum(part.shape[1] for part in parts)
        shift, scale = 0.0, 1.0
        if kind in ("categorical", "ordinal"):
            x = np.eye(3)[rng.integers(0, 3, ROWS)][:, 1:]
        elif kind == "bernoulli":
            x = (rng.random((ROWS, 1)) < 0.5).astype(float)
        else:
            v = {"normal": rng.normal(size=ROWS), "lognormal": np.exp(rng.normal(size=ROWS))}.get(
                kind, rng.poisson(3.0, ROWS).astype(float)
            )
            shift, scale = float(v.mean()), float(v.std())
            x = ((v - shift) / scale)[:, None]
        x[rng.random(ROWS) < 0.05] = np.nan
        parts.append(x)
        at = tuple(range(start, start + x.shape[1]))
        heads.append(Head(name=f"c{i}", kind=kind, at=at, shift=shift, scale=scale))
    t, event = rng.weibull(1.4, ROWS) + 1e-3, rng.random(ROWS) < 0.6
    return SurvivalTable(np.hstack(parts), t, event), tuple(heads)


def stepper(spec: str, loss: str, table: SurvivalTable, batch: int) -> Callable[[], float]:
    """Return a function that trains for one turn, and returns the seconds of a step."""
    epochs = 10 if batch else 60
    plan = Plan(network=spec, loss=loss, epochs=epochs, batch_size=batch)
    rows, theta = rows_of(table, plan, (1, 2)), initial(spec, 0)
    steps = epochs * plan.parts(ROWS)

    def turn() -> float:
        start = time.process_time()
        train(theta, rows, plan, 1e-3, (1, 2, 3))
        return (time.process_time() - start) / steps

    turn()
    return turn


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asks_out(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, dict[str, float]] = {}
    for name, kinds in (("mixed", KINDS), ("normal", ("normal",))):
        rows, heads = table_of(kinds)
        given: dict[str, Any] = {
            "inputs": rows.x.shape[1], "latent": 5, "hidden": (32,), "heads": plain_heads(heads),
        }  # fmt: skip
        loss = f"{lifted(10.0, 1.0, 0.0)} 1.0"
        for batch in (0, 64):
            turns = {
                "vae": stepper(Vae(**given).spec, Elbo().spec, rows, batch),
                "savae": stepper(Savae(**given).spec, loss, rows, batch),
                "dropout": stepper(Savae(**given, dropout=0.2).spec, loss, rows, batch),
            }
            found = np.array([[turn() for turn in turns.values()] for _ in range(TURNS)])
            micro, ratio = 1e6 * np.median(found, axis=0), np.median(found / found[:, :1], axis=0)
            row = {f"{k}_us": float(v) for k, v in zip(turns, micro, strict=True)}
            row |= {"savae": float(ratio[1]), "dropout": float(ratio[2])}
            case = f"step_{name}_{batch or 'all'}"
            table[case] = row
            print(case, " ".join(f"{k} {v:.3f}" for k, v in row.items()), flush=True)
    keep(args.out, table)


if __name__ == "__main__":
    main()
