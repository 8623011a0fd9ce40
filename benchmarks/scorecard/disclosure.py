"""Small cells and single patients: what questions, differences, curves and leaves give away.

    python benchmarks/scorecard/disclosure.py [--json FILE]

    queries   500 random questions of twelve methods to random cohorts (`tests/queries.py`), with
              columns made to single patients out: counts of 1 to 4 that are published or told,
              and patients' covariates among differences and ratios of sums (`overheard.py`)
    tables    of 60 cohorts every table by group: counts of 1 to 4 that linear programs over all
              that is published pin down (`described.py`)
    pairs     100 pairs of studies at one site, of which 60 differ in 1 to 4 patients: pairs that
              the cohort ledger lets through or refuses wrongly, and patients whose rows follow
    KM        curves of `kaplan_meier` by group and of risk groups, read by the linkage audit
    Cox       the attack on consecutive risk-set sums, on the protected grid; at exact times it must
              find patients, or it would be no attack
    leaves    logistic trees grown under `may_split`: leaf sums, and differences of nested ones, of
              fewer than ten patients; labels that a sum of g = p − y tells where nothing is held

Histogram cells and pooled levels of preprocessing are not looked at: docs/disclosure.md says so.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
import pandas as pd
from sheet import main

import fedcohort as fc
from described import Attack, cohort, random_sites
from fedcohort.audit.linkage import Published, linkage, thin_intervals
from fedcohort.metrics.survival.kaplan_meier import round_times
from fedcohort.metrics.survival.published_curves import published_at_risk, published_curve
from fedcohort.network.state.cohorts import Cohorts, digests
from fedcohort.privacy.disclosure.models import LEAF, may_split
from fedcohort.protocol import Refused
from overheard import listen, recovered
from queries import ask

ITEM = "disclosure: 500 queries + 100 differencing pairs + KM/Cox/leaf cases"
TARGET = "0 cells of 1–4, 0 recoveries"
QUERIES, TABLES, PAIRS, CURVES, TREES = 500, 60, 100, 60, 100


class Patch:
    """What `overheard.listen` needs of pytest's monkeypatch."""

    def setattr(self, owner, name, value):
        """Replace what is called `name`."""
        setattr(owner, name, value)


def measure() -> tuple[str, bool]:
    """Run all cases; return what was found, and whether it was nothing."""
    warnings.simplefilter("ignore")
    heard = listen(Patch())
    cells, patients, answered = queries(heard)
    small, pinned, shown = tables()
    wrong, rows, unheld = pairs()
    curves, thin = kaplan_meier()
    exact, grid = cox(heard)
    free, held, trees = leaves()
    text = (
        f"{QUERIES} queries ({answered} answered): {cells} cells of 1–4, {patients} patients; "
        f"{small} small counts in tables by group: {shown} shown, {pinned} recovered; "
        f"{PAIRS} pairs: {wrong} judged wrongly, {rows} recovered ({unheld} without the ledger); "
        f"{curves} curves: {thin} steps of 1–4; Cox: {grid} of 240 on the grid ({exact} at exact "
        f"times); {trees} trees: {held} sums of 1–9 ({free} labels told without the rule)"
    )
    nothing = not (cells + patients + pinned + shown + wrong + rows + thin + grid + held)
    return text, nothing and exact > 60 and free > 0 and unheld > 0 and answered > QUERIES / 2


def queries(heard) -> tuple[int, int, int]:
    """Return cells of few, patients recovered, and how many questions were answered."""
    cells = patients = answered = 0
    for seed in range(QUERIES):
        given = ask(10_000 + seed, heard)
        cells += len(given.published) + len(given.told)
        patients += given.patients
        answered += not given.refused
    return cells, patients, answered


def tables() -> tuple[int, int, int]:
    """Return the counts of 1 to 4 in tables by two columns, those recovered, and those shown."""
    small = pinned = shown = 0
    for seed in range(20_000, 20_000 + TABLES):
        frames = random_sites(seed)
        fed, attack = cohort(frames), Attack(frames)
        for by in ("a", "b"):
            model = fc.fit("describe", fed, by=by, correlation=False).model
            shown += sum(0 < (line["count"] or 0) < 5 for line in model.table)
            attack.read(model)
        n, found = attack.recovered()
        small, pinned = small + n, pinned + found
    return small, pinned, shown


def pairs() -> tuple[int, int, int]:
    """Return pairs that the ledger judged wrongly, and patients that follow with and without it."""
    wrong = rows = unheld = 0
    for seed in range(PAIRS):
        rng = np.random.default_rng((seed, 41))
        table = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"))
        order = rng.permutation(400)
        n = int(rng.integers(50, 300))
        apart = int(rng.integers(1, 5)) if seed % 5 < 3 else int(rng.choice([0, 5, 6, 20, 60]))
        out = int(rng.integers(0, apart + 1))
        first, second = order[:n], np.r_[order[out:n], order[n : n + apart - out]]
        rng.shuffle(second)
        with tempfile.TemporaryDirectory() as folder:
            ledger = Cohorts(Path(folder), "patients", 5)
            marks = digests(table, ledger.key)
            ledger.note("a", "first", [marks[i] for i in first], {"analysed": np.arange(n)})
            sets = {"analysed": np.arange(len(second))}
            try:
                ledger.note("b", "second", [marks[i] for i in second], sets)
                released = True
            except Refused:
                released = False
        wrong += released == (0 < apart < 5)
        gap = table.iloc[second].sum().to_numpy() - table.iloc[first].sum().to_numpy()
        near = [np.abs(table.to_numpy() - sign * gap).max(axis=1) < 1e-9 for sign in (1, -1)]
        hit = int(np.any(near, axis=0).sum())
        unheld, rows = unheld + hit, rows + hit * released
    return wrong, rows, unheld


def survivors(n: int, seed: int) -> pd.DataFrame:
    """Return simulated patients at four sites, whose times do not tie."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    death, leave = rng.exponential(np.exp(-x @ [0.5, -0.3, 0.0])), rng.exponential(1.5, n)
    return pd.DataFrame(x, columns=list("abc")).assign(
        time=np.minimum(death, leave),
        event=(death <= leave).astype(float),
        site=rng.choice(list("pqrs"), n),
        arm=rng.choice(["x", "y"], n),
    )


def of_rows(rows: Sequence[Mapping[str, Any]], value: str = "survival") -> list[Published]:
    """Return the curves in the rows of `fit.curves()`, by group; numbers that are hidden left out.

    Parameters
    ----------
    rows : each with a time, `value` and followed; a group, or None.
    """
    names = list(dict.fromkeys(row.get("group") for row in rows))
    out: list[Published] = []
    for name in names:
        mine = [row for row in rows if row.get("group") == name]
        curve = np.array([[r["time"], r[value]] for r in mine], float)
        shown = [r for r in mine if r.get("followed") is not None]
        at = np.array([[r["time"], r["followed"]] for r in shown], float).reshape(-1, 2)
        out.append(Published(str(name), curve[:, 0], curve[:, 1], at[:, 0], at[:, 1]))
    return out


def kaplan_meier() -> tuple[int, int]:
    """Return how many curves were read, and their intervals that are of 1 to 4 patients."""
    curves = thin = 0
    for seed in range(CURVES):
        table = survivors(60 + 4 * seed, (seed, 5))
        outcome = fc.Survival("time", "event")
        fed = fc.simulate(table[["time", "event", "arm", "site"]], sites="site", outcome=outcome)
        for one in of_rows(fc.fit("kaplan_meier", fed, by="arm").model.curves()):
            curves, thin = curves + 1, thin + len(thin_intervals(one, 5))
        time, event = table["time"].to_numpy(), table["event"].to_numpy(bool)
        group = (table["a"] > table["a"].median()).to_numpy(int)
        at, left = published_at_risk(group, time, round_times(0.0, float(time.max()), 8), 5, event)
        shown = [
            {
                "label": str(g),
                "curve": np.stack(
                    published_curve(time[group == g], event[group == g], 5), 1
                ).tolist(),
                "at_risk": np.c_[at, left[:, g]].tolist(),
            }
            for g in (0, 1)
        ]
        found = linkage({"risk_groups": [{"arm": "a", "scenario": "s", "groups": shown}]})
        curves, thin = curves + found.lines[0]["curves"], thin + found.lines[0]["of few"]
    return curves, thin


def cox(heard) -> tuple[int, int]:
    """Return how many of 240 patients the attack finds at exact times, and on the grid."""
    table = survivors(240, 0).drop(columns="arm")
    fed = fc.simulate(table, sites="site", outcome=fc.Survival("time", "event"))
    found: list[int] = []
    for rule in ("exact", "protected"):
        heard.clear()
        fc.fit("cox", fed, time_grid=rule)
        found.append(int(recovered(heard, table[list("abc")].to_numpy()).sum()))
    return found[0], found[1]


def leaves() -> tuple[int, int, int]:
    """Return labels told by leaves of one patient, sums of few under the rule, and trees grown."""
    free = held = 0
    for seed in range(TREES):
        rng = np.random.default_rng((seed, 17))
        x = rng.normal(size=(int(rng.integers(15, 200)), 3))
        y = (rng.random(len(x)) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)
        g = 0.5 - y  # the first tree of a boosting: p is 1/2 for all
        for rule in (False, True):
            told = grown(x, np.arange(len(x)), rng, 5, rule)
            for small in nested(told):
                if rule:
                    held += len(small) < LEAF
                elif len(small) == 1:
                    free += 0.5 - g[small].sum() == y[small[0]]
    return free, held, TREES


def grown(x, rows, rng, depth, rule):
    """Return the rows of every node of a random tree, the root first."""
    told = [rows]
    if depth == 0 or len(rows) < 2:
        return told
    column = x[rows, rng.integers(x.shape[1])]
    low = column <= rng.choice(column)
    if not low.all() and (not rule or may_split(int(low.sum()), int((~low).sum()))):
        told += grown(x, rows[low], rng, depth - 1, rule)
        told += grown(x, rows[~low], rng, depth - 1, rule)
    return told


def nested(told):
    """Yield the rows of every node, and of every node less one within it."""
    for a in told:
        yield a
        for b in told:
            if len(b) < len(a) and np.isin(b, a).all():
                yield np.setdiff1d(a, b)


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
