"""What a coordinator can work out from all that boosting's sums tell, and what sites refuse.

The attacker keeps every sum. It reads single sums and differences of a node and its child
(`groups`); it solves for the number of rows in each cell of bins and class by the equations of all
trees together, in which it knows each cell's gradient (`equations`); and, if it knew the sampled
rows, for each row by its position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import Bounds, LinearConstraint, milp

from algorithms.boosting_cases import KINDS, simulated, table
from algorithms.cox_cases import Overheard
from examples import examples
from fedcohort.algorithms import boosting
from fedcohort.algorithms.boosting import steps
from fedcohort.algorithms.boosting.objectives import Outcome, pulls
from fedcohort.algorithms.boosting.settings import OBJECTIVES
from fedcohort.numerics.trees import histogram
from fedcohort.protocol import DataError, NothingToLearn, Refused, Site, Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local

LEVELS = {"binary": ("no", "yes"), "category": ("a", "b", "c")}


class Call(NamedTuple):
    """One sum that the coordinator is told."""

    step: str
    asked: dict[str, Any]
    told: Any


class Heard(Overheard):
    """A federation that keeps all sums in order."""

    def only(self, names):
        return Heard(self._fed.only(names), self.seen)

    def awaiting(self, fewest=None):
        return Heard(self._fed.awaiting(fewest), self.seen)

    def sum(self, step, **asked):
        told = self._fed.sum(step, **asked)
        if step is steps.sum_cells and not asked["counted"]:  # the rows are known from the count
            told = steps.Sums(np.column_stack([told.cells, self.rows(asked["ends"])]))
        self.seen.setdefault("calls", []).append(Call(step.name, asked, told))
        return told

    def rows(self, wider):
        """Return the rows of groups that the count before told, in narrower ones."""
        _, asked, told = self.seen["calls"][-1]
        out, cells = [], iter(told.cells)
        for narrow, wide in zip(asked["ends"].ravel(), wider.ravel(), strict=True):
            assert narrow or not wide
            out.append(next(cells) if narrow else 0)
        return np.add.reduceat(out, np.r_[0, np.flatnonzero(wider.ravel())[:-1] + 1])


def overhear(x, y, outcome, *, min_cell=5, seed=0, **more) -> list[Call]:
    """Return all sums of a fit over three sites."""
    parts = np.array_split(np.arange(len(x)), 3)
    hosts = [
        Host(f"site-{i}", table(x, y, part), boosting.METHOD.steps, seed)
        for i, part in enumerate(parts)
    ]
    fed = Heard(local(hosts))
    task = Task(
        kind=KINDS[outcome], features=tuple(f"x{j}" for j in range(x.shape[1])), outcome=outcome,
        levels=LEVELS.get(outcome, ()), min_cell=min_cell, seed=seed,
    )  # fmt: skip
    boosting.METHOD.fit(fed, boosting.METHOD.configure(more), task)
    return fed.seen["calls"]


# single sums, and differences of a node and its child ------------------------------------


def groups(calls: list[Call]):
    """Yield Σg, Σh (whole numbers) and rows of every group of bins of every node, (G, 3).

    Of the two children of a node one is told; the other is the difference.
    """
    known: dict[tuple[int, int], list[dict[int, np.ndarray]]] = {}
    parent: dict[tuple[int, int], tuple[int, int]] = {}
    for call in calls:
        if call.step == "pull_rows":
            known, parent = {}, {}
            ends, asked = call.asked["ends"], [(k, 0) for k in range(len(call.asked["ends"]))]
        elif call.step in ("count_cells", "sum_cells"):
            for k, node, _, _, _, left in call.asked["moves"].tolist():
                parent[k, left] = parent[k, left + 1] = k, node
            ends, asked = call.asked["ends"], list(map(tuple, call.asked["asked"].tolist()))
        if call.step not in ("pull_rows", "sum_cells"):
            continue
        cells = iter(call.told.cells)
        for place, own in zip(asked, ends, strict=True):
            known[place] = []
            for row in own:
                total = np.zeros(3, np.int64)
                known[place].append({})
                for b in np.flatnonzero(row).tolist():
                    total = total + next(cells)
                    known[place][-1][b] = total
            if place in parent:
                k, node = place
                other = k, node + 1 if node % 2 else node - 1  # siblings are 1 and 2, 3 and 4, …
                known[other] = [
                    {b: above[b] - mine[b] for b in mine}
                    for above, mine in zip(known[parent[place]], known[place], strict=True)
                ]
        for prefixes in known.values():
            for one in prefixes:
                yield np.diff([np.zeros(3, np.int64), *(one[b] for b in sorted(one))], axis=0)


@settings(max_examples=examples(30), deadline=None)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(60, 160),
    outcome=st.sampled_from(["binary", "category", "survival", "continuous"]),
    least=st.integers(2, 7),
    more=st.fixed_dictionaries(
        {},
        optional={
            "subsample": st.just(0.7), "colsample": st.just(0.5), "patience": st.just(2),
            "max_bins": st.sampled_from([3, 8]),
        },
    ),
)  # fmt: skip
def test_no_group_of_a_node_nor_of_its_sibling_has_few_rows(seed, n, outcome, least, more):
    x, outcomes = simulated(seed, n)
    try:
        calls = overhear(
            x, outcomes[outcome], outcome, min_cell=least, rounds=3, min_child_weight=0.0, **more
        )
    except NothingToLearn:
        return
    found = np.concatenate([*groups(calls)])[:, 2]
    assert found.min() >= 0
    assert not ((found > 0) & (found < max(least, 10))).any()


def test_with_a_min_cell_of_1_the_same_attack_finds_single_rows_and_their_classes():
    x, outcomes = simulated(0, 100)
    for least, few in ((1, True), (5, False)):
        calls = overhear(x, outcomes["binary"], "binary", min_cell=least, rounds=2)
        found = np.concatenate([*groups(calls)])
        # of one row the sign of the gradient is the class
        assert (found[:, 2] == 1).any() == few


@pytest.mark.parametrize(("min_cell", "sums"), [(1, 3), (5, 5)])
def test_a_level_takes_one_sum_and_with_groups_of_enough_rows_two(min_cell, sums):
    """Of depth 3: the roots, and two levels below."""
    x, outcomes = simulated(1, 300)
    calls = overhear(x, outcomes["binary"], "binary", min_cell=min_cell, rounds=3, max_depth=3)
    begun = [i for i, call in enumerate(calls) if call.step == "pull_rows"]
    assert begun[-1] - begun[-2] == sums


def test_the_first_tree_tells_how_many_of_each_group_are_of_the_class():
    # TimberStrike: at one margin, p − y adds up to a number of rows and one of ones
    x, outcomes = simulated(1, 300, gaps=0.0)
    y = outcomes["binary"]
    calls = overhear(x, y, "binary", rounds=1, max_depth=1, max_bins=6)
    (told,) = (c for c in calls if c.step == "sum_cells")
    bits = next(c.asked["bits"] for c in calls if c.step == "pull_rows" and c.asked["bits"] > 0)
    (edges,) = (c.asked["edges"] for c in calls if c.step == "begin")
    bins = histogram.numbered(x, edges)
    ends, cells = told.asked["ends"][0], iter(told.told.cells)
    for j in range(x.shape[1]):
        begin = -1
        for end in np.flatnonzero(ends[j]):
            g, _, rows = next(cells)
            ones = rows * y.mean() - g * 2.0**-bits
            assert abs(ones - y[(bins[:, j] > begin) & (bins[:, j] <= end)].sum()) < 1e-5
            begin = end


# the equations of all trees together ------------------------------------------------------


def equations(calls: list[Call], classes: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cells of bins (L, p), and A, b of A n = b for rows n (L · classes,) of each and class.

    All that stands in A follows from the splits and leaves that the coordinator itself has sent.
    """
    edges = next(c.asked["edges"] for c in calls if c.step == "begin")
    sizes = np.isfinite(edges).sum(axis=1) + 1
    cells = np.array(list(np.ndindex(*sizes))) + 1
    trees = 1 if classes == 2 else classes
    margin, node = np.zeros((len(cells), trees)), np.zeros((len(cells), trees), int)
    objective, bits = "logistic" if trees == 1 else "softmax", 0
    left: list[np.ndarray] = []
    right: list[float] = []
    g = h = np.zeros((classes, len(cells), trees))
    for step, asked, told in calls:
        if step not in ("pull_rows", "count_cells", "sum_cells"):
            continue
        before = node.copy()
        for k, at, j, cut, _, child in asked["moves"].tolist():
            own = before[:, k] == at
            node[own, k] = child + (cells[own, j] > cut)
        if step == "pull_rows":
            if asked["values"].size:
                margin += np.take_along_axis(asked["values"], node.T, axis=1).T
            node[:], bits = 0, asked["bits"]
            each = [
                pulls(objective, margin, Outcome(np.full(len(cells), y), classes=trees),
                      np.ones(len(cells)))
                for y in range(classes)
            ]  # fmt: skip
            g, h = (np.stack([one[i] for one in each]) for i in (0, 1))
        places = asked.get("asked", [(k, 0) for k in range(len(asked["ends"]))])
        sums = map(np.atleast_1d, told.cells)
        for (k, at), ends in zip(places, asked["ends"], strict=True):
            for j, row in enumerate(ends):
                begin = -1
                for end in np.flatnonzero(row):
                    own = (node[:, k] == at) & (cells[:, j] > begin) & (cells[:, j] <= end)
                    begin, (*both, rows) = end, next(sums)
                    left.append(np.repeat(own, classes).astype(float))
                    right.append(float(rows))
                    for factor, value in zip((g, h), both, strict=False):
                        left.append((own * factor[..., k]).T.ravel())
                        right.append(value * 2.0**-bits)
    both = np.unique(np.column_stack([left, right]).round(9), axis=0)
    return cells, both[:, :-1], both[:, -1]


def small(x, y, calls, cells, classes: int = 2) -> np.ndarray:
    """Return the number of rows of each cell and class (L, classes)."""
    (edges,) = (c.asked["edges"] for c in calls if c.step == "begin")
    found = np.zeros((len(cells), classes))
    for row, one in zip(histogram.numbered(x, edges).astype(int), y.astype(int), strict=True):
        found[np.flatnonzero((cells == row).all(axis=1)), one] += 1
    return found


def certain(a: np.ndarray, b: np.ndarray, cell: int, classes: int = 2) -> np.ndarray | None:
    """Return how many of each class a cell has, if no other whole numbers solve A n = b."""
    found: list[float] = []
    for k in range(cell * classes, (cell + 1) * classes):
        cost = np.zeros(a.shape[1])
        cost[k] = 1.0
        both = [
            milp(
                sign * cost, constraints=LinearConstraint(a, b - 1e-4, b + 1e-4),
                integrality=np.ones(len(cost)), bounds=Bounds(0, 200), options={"time_limit": 5},
            )
            for sign in (1, -1)
        ]  # fmt: skip
        if any(one.status for one in both) or round(both[0].fun) != round(-both[1].fun):
            return None
        found.append(round(both[0].fun))
    return np.array(found)


def named(x, y, calls, classes: int = 2) -> tuple[int, int]:
    """Return how many cells of 1 to 4 rows are known for certain, and how many there are.

    The truth must solve the equations, and every claim must be true.
    """
    cells, a, b = equations(calls, classes)
    true = small(x, y, calls, cells, classes)
    np.testing.assert_allclose(a @ true.ravel(), b, atol=1e-6)
    few = np.flatnonzero((true.sum(axis=1) > 0) & (true.sum(axis=1) < 5))
    hits = 0
    for cell in few:
        found = certain(a, b, int(cell), classes)
        if found is not None:
            assert_array_equal(found, true[cell])
            hits += 1
    return hits, len(few)


def pairs(seed: int, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return two covariates, and classes that follow the first."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    risk = x[:, 0] + 0.7 * rng.normal(size=n)
    return x, {"binary": (risk > 0).astype(float), "category": np.clip(risk // 1 + 1, 0, 2)}


@pytest.mark.parametrize(("outcome", "classes"), [("binary", 2), ("category", 3)])
def test_all_sums_of_one_round_name_no_cell_of_few_rows_and_with_a_min_cell_of_1_they_do(
    outcome, classes
):
    # the trees of all classes share one round's gradients, and their nodes overlap
    x, outcomes = pairs(0, 60)
    y, hits = outcomes[outcome], {}
    for least in (1, 5):
        calls = overhear(x, y, outcome, min_cell=least, rounds=1, max_bins=4, max_depth=3)
        hits[least], few = named(x, y, calls, classes)
    assert few > 5
    assert hits[1] > 0
    assert hits[5] == 0


def test_exact_sums_of_many_rounds_name_cells_of_few_rows_though_each_sum_is_of_enough():
    # What remains, a limit that docs/disclosure.md states. Each round weighs the rows anew, so the
    # sums together have one solution in more and more cells. Only noise would stop this.
    x, outcomes = pairs(0, 60)
    calls = overhear(x, outcomes["binary"], "binary", rounds=20, max_bins=4, max_depth=3)
    assert named(x, outcomes["binary"], calls)[0] > 0


# rows drawn at the sites ------------------------------------------------------------------


def solved(x, calls: list[Call], seed: int, share: float) -> int:
    """Return how many rows' bins of the first covariate follow from sums over drawn rows.

    The attacker knows the study's seed and the sites' numbers of rows: the drawn positions too, if
    the draw depends on nothing else.
    """
    (edges,) = (c.asked["edges"] for c in calls if c.step == "begin")
    parts = np.array_split(np.arange(len(x)), 3)
    drawn: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    for number, (step, asked, told) in enumerate(calls):
        if step == "pull_rows":
            used = [
                np.random.default_rng(entropy(seed, f"site-{i}", number)).random(len(rows)) < share
                for i, rows in enumerate(parts)
            ]
        if step == "count_cells" and not len(asked["moves"]) and not asked["asked"].any():
            drawn.append(np.concatenate(used))
            sums.append(told.cells[: np.isfinite(edges[0]).sum() + 2])
    found, *_ = np.linalg.lstsq(np.array(drawn, float), np.array(sums, float), rcond=None)
    own = histogram.numbered(x, edges)[:, 0]
    return int((np.abs(found - np.eye(found.shape[1])[own]) < 1e-6).all(axis=1).sum())


def test_rows_that_a_round_draws_are_not_known_from_the_seed(monkeypatch):
    x, outcomes = pairs(3, 60)
    more = {"rounds": 80, "max_depth": 1, "max_bins": 3, "subsample": 0.5, "seed": 7}
    assert solved(x, overhear(x, outcomes["binary"], "binary", **more), 7, 0.5) == 0
    # the attack at work: if the draw followed from the seed, sums would be solved for every row
    monkeypatch.setattr(steps, "draws", lambda site: site.rng)
    assert solved(x, overhear(x, outcomes["binary"], "binary", **more), 7, 0.5) == 60


def test_too_few_drawn_rows_grow_no_tree():
    x, outcomes = pairs(0, 30)
    with pytest.raises(NothingToLearn, match=r"fewer than 10 records .* Raise 'subsample'"):
        overhear(x, outcomes["binary"], "binary", subsample=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_with_rows_held_out_enough_leave_in_each_interval_of_time(seed):
    x, outcomes = simulated(seed, 80)
    calls = overhear(x, outcomes["survival"], "survival", patience=2, rounds=3)
    first, *later = [c.told.leaving for c in calls if c.step == "sum_risks"]
    assert (first[first > 0] < 5).any()
    assert later
    for leaving in later:
        assert leaving.min() >= 5
        assert leaving.sum() == first.sum()


# arguments of a coordinator's own choosing ------------------------------------------------

X, OUTCOMES = simulated(5, 40)
EDGES = np.tile(np.array([2.5, 5.5, 8.5], np.float32), (4, 1))
BEGIN = {"edges": EDGES, "objective": "logistic", "classes": 1, "kinds": 2, "held_out": 0.0}
ENDS = np.ones((1, 4, 5), bool)
NOTHING = np.zeros(0)
PULL = {
    "moves": np.zeros((0, 6), np.int64), "values": np.zeros((1, 1)), "objective": "logistic",
    "sigma": 1.0, "class_weight": NOTHING, "times": NOTHING, "together": False, "hazard": NOTHING,
    "squares": NOTHING, "share": 1.0, "bits": 30, "ends": ENDS,
}  # fmt: skip
COUNT = {"moves": PULL["moves"], "asked": np.array([[0, 0]]), "ends": ENDS}
SUM = COUNT | {"counted": True}
USUAL = {steps.pull_rows: PULL, steps.count_cells: COUNT, steps.sum_cells: SUM}
MOVE = np.array([[0, 0, 1, 2, 1, 1]])


def answered(step, state=None, **asked):
    return step.run(Site("h", table(X, OUTCOMES["binary"], slice(None)), state, (1, 2, 3)), **asked)


def begun():
    return answered(steps.begin, **BEGIN).state


def changed(a, at, to):
    a = a.copy()
    a[at] = to
    return a


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edges", EDGES[:3]),
        ("edges", EDGES[0]),
        ("edges", EDGES[:, ::-1]),
        ("edges", changed(EDGES, (0, 1), np.nan)),
        ("edges", changed(EDGES, (0, 0), -np.inf)),
        ("edges", changed(EDGES, (0, 1), 2.5)),
        ("edges", EDGES.astype(int)),
        ("edges", np.tile(np.arange(5000.0), (4, 1))),
        ("objective", "mine"),
        ("classes", -1),
        ("classes", 10**9),
        ("kinds", -2),
        ("held_out", 0.999),
        ("held_out", np.nan),
    ],
)
def test_a_site_refuses_an_impossible_beginning(name, value):
    with pytest.raises((DataError, Refused), match=r"^site 'h': .*(grid|argument)") as error:
        answered(steps.begin, **BEGIN | {name: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        *((step, "moves", value) for step in (steps.pull_rows, steps.sum_cells, steps.count_cells)
          for value in (
              MOVE[:, :5], MOVE[0], MOVE.astype(float), np.vstack([MOVE, MOVE]),
              changed(MOVE, (0, 0), 1), changed(MOVE, (0, 1), -1), changed(MOVE, (0, 1), 2**40),
              changed(MOVE, (0, 2), 4), changed(MOVE, (0, 3), 5), changed(MOVE, (0, 4), 2),
              changed(MOVE, (0, 5), 2**17))),
        *((steps.pull_rows, "values", value) for value in (
            np.ones((5000, 1)), np.ones((1, 1, 1)), np.ones(3), np.full((1, 1), np.nan),
            np.full((1, 1), 1e39), np.ones((1, 1), int))),
        (steps.pull_rows, "objective", "mine"),
        *((steps.pull_rows, "sigma", value) for value in (0.0, -1.0, np.inf, np.nan)),
        *((steps.pull_rows, "share", value) for value in (0.0, -1.0, 1.5, np.nan)),
        *((steps.pull_rows, "class_weight", value) for value in (
            np.ones(3), np.array([1.0, -1.0]), np.array([1.0, np.inf]), np.ones((2, 1)))),
        *((steps.pull_rows, "bits", value) for value in (41, 1000, -2000)),
        (steps.pull_rows, "times", np.array([2.0, 1.0])),
        (steps.pull_rows, "hazard", np.ones(3)),
        *((steps.pull_rows, "ends", value) for value in (
            np.ones((2, 4, 5), bool), np.ones((1, 4, 99), bool), np.ones((1, 4, 5)),
            changed(ENDS, (0, 2, 4), False))),
        *((step, "asked", value) for step in (steps.sum_cells, steps.count_cells) for value in (
            np.array([[1, 0]]), np.array([[0, -1]]), np.array([[0, 2**40]]), np.array([0, 0]),
            np.array([[0.0, 0.0]]), np.array([[0, 0], [0, 0]]))),
        *((step, "ends", value) for step in (steps.sum_cells, steps.count_cells) for value in (
            ENDS[:0], ENDS[:, :3], np.ones((1, 4, 6), bool), ENDS.astype(int),
            np.zeros((1, 4, 5), bool))),
    ],
)  # fmt: skip
def test_a_site_refuses_impossible_splits_sums_and_values(step, name, value):
    usual = USUAL[step]
    with pytest.raises(Refused, match=r"^site 'h': argument '\w+' of boosting") as error:
        answered(step, begun(), **usual | {name: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [3e38, -3e38])
@pytest.mark.parametrize("outcome", ["binary", "continuous", "count", "category"])
def test_huge_values_of_leaves_give_finite_sums_or_a_refusal(outcome, value):
    objective = OBJECTIVES[outcome][0]
    k = 3 if outcome == "category" else 1
    data = table(X, OUTCOMES[outcome], slice(None))
    first = BEGIN | {"objective": objective, "classes": k, "kinds": 0}
    state = steps.begin.run(Site("h", data, None, (1,)), **first).state
    asked = PULL | {
        "objective": objective, "values": np.full((k, 1), value), "ends": np.repeat(ENDS, k, axis=0)
    }  # fmt: skip
    try:
        told = steps.pull_rows.run(Site("h", data, state, (1,)), **asked).reply
    except Refused as error:
        assert "'bits'" in str(error)
    else:
        assert np.abs(told.cells).max() < 2**52


def test_nodes_that_do_not_exist_have_no_rows_and_no_nodes_no_sums():
    state = begun()
    for step in (steps.sum_cells, steps.count_cells):
        told = answered(step, state, **USUAL[step] | {"asked": np.array([[0, 77]])}).reply
        assert not told.cells.any()
        none = {"asked": np.zeros((0, 2), np.int64), "ends": ENDS[:0]}
        assert not len(answered(step, state, **USUAL[step] | none).reply.cells)
