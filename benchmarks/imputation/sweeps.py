"""Whether the chains of `mice` settle, by the number of sweeps.

Tables, hospitals and hidden entries are those of `run.py`, one seed. `drift` is about 1 where
chains have settled, and `limit` is the largest that the fit takes for settled (`algorithms.mice`).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from run import HIDDEN, errors, hidden, tables

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
import book

SWEEPS = (5, 10, 20, 40)


def measured(table: pd.DataFrame, way: str, sweeps: int) -> dict[str, float]:
    """Return drift, its limit, and the mean square of imputed entries after some sweeps."""
    hide = hidden(table, way, np.random.default_rng((0, HIDDEN.index(way))))
    order = np.argsort(np.arange(len(table)) % 3, kind="stable")
    parts = [table.mask(hide).iloc[k::3].reset_index(drop=True) for k in range(3)]
    kinds = {"variables": {c: {"type": "number"} for c in table}}
    fed = fc.simulate({f"h{k}": p for k, p in enumerate(parts)}, dictionary=kinds, seed=0)
    fit = fc.fit("mice", fed, sweeps=sweeps)
    said = pd.concat([fit.impute(part) for part in parts])[list(table)].to_numpy(float)
    found = errors(table.iloc[order], hide[order], said)
    model = fit.model
    return {"drift": round(model.drift, 3), "limit": round(model.limit, 3),
            "mse": round(found["mse"], 4)}  # fmt: skip


def main() -> None:
    """Print drift and error by table, way of hiding and sweeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", nargs="*", type=int, default=list(SWEEPS))
    parser.add_argument("--tables", nargs="*", default=["wine", "diabetes", "breast"])
    parser.add_argument("--ways", nargs="*", default=["mcar 20", "mcar 50", "view 33"])
    parser.add_argument("--lines", type=Path, required=True, help="finished fits, to go on from")
    book.asks_out(parser)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines, known = book.Book(asked.lines), tables(None, 0)
    figures: dict[str, dict[str, float]] = {}
    for name in asked.tables:
        for way in asked.ways:
            for sweeps in asked.sweeps:
                of = {"table": name, "hidden": way, "sweeps": sweeps}
                if lines.lacks(of):
                    lines.write(of, measured(known[name], way, sweeps))
                found = lines.rows(**of)[0]
                group = figures.setdefault(f"sweeps_{name}_{way.replace(' ', '_')}", {})
                group |= {f"{key}_{sweeps}": value for key, value in found.items()}
    book.keep(asked.out, figures)


if __name__ == "__main__":
    main()
