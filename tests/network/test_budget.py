"""A privacy budget is never under-counted and never passed, whatever crashes and in what order."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fedcohort.network.state import budget as module
from fedcohort.network.state.budget import Budget
from fedcohort.network.state.policy import Allowance
from fedcohort.protocol.errors import Refused

THREE = Allowance(Decimal(3), Decimal("1e-5"))


def store(folder, allowed=THREE, dataset="patients"):
    return Budget(Path(folder) / "budget.sqlite", dataset, allowed)


def test_what_is_reserved_counts_until_it_is_released(tmp_path):
    budget = store(tmp_path)
    budget.reserve("a", "fit", 2.0, 1e-6)
    with pytest.raises(Refused, match="less left"):
        budget.reserve("b", "fit", 1.5, 1e-6)
    budget.release("a", "fit")
    budget.reserve("b", "fit", 1.5, 1e-6)
    budget.commit("b", "fit")
    found = budget.account()
    assert found.spent.epsilon == Decimal("1.5")
    assert found.left.epsilon == Decimal("1.5")
    assert [s[0] for s in found.studies] == ["b"]


def test_delta_is_held_to_its_limit_as_epsilon_is(tmp_path):
    budget = store(tmp_path)
    budget.reserve("a", "fit", 0.1, 9e-6)
    with pytest.raises(Refused, match="less left"):
        budget.reserve("b", "fit", 0.1, 2e-6)


def test_thirty_tenths_fit_three_and_no_more(tmp_path):
    budget = store(tmp_path)
    for i in range(30):
        budget.reserve("a", str(i), 0.1, 0.0)
    assert budget.account().left.epsilon == 0
    with pytest.raises(Refused):
        budget.reserve("a", "31", 1e-9, 0.0)


def test_amounts_are_rounded_up_so_that_none_is_free(tmp_path):
    budget = store(tmp_path)
    budget.reserve("a", "fit", 1e-30, 1e-30)
    assert budget.account().reserved.epsilon > 0
    assert budget.account().reserved.delta > 0


def test_what_is_spent_cannot_be_released(tmp_path):
    budget = store(tmp_path)
    budget.reserve("a", "fit", 1.0, 0.0)
    budget.commit("a", "fit")
    budget.commit("a", "fit")
    with pytest.raises(Refused, match="nothing is reserved"):
        budget.release("a", "fit")
    with pytest.raises(Refused, match="nothing is reserved"):
        budget.commit("a", "other")


def test_the_same_reservation_counts_once_and_another_amount_is_refused(tmp_path):
    budget = store(tmp_path)
    budget.reserve("a", "fit", 1.0, 0.0)
    budget.reserve("a", "fit", 1.0, 0.0)
    assert budget.account().reserved.epsilon == 1
    with pytest.raises(Refused, match="another amount"):
        budget.reserve("a", "fit", 0.5, 0.0)


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf"), 1e300])
def test_an_amount_that_is_none_is_refused(tmp_path, amount):
    with pytest.raises(Refused):
        store(tmp_path).reserve("a", "fit", amount, 0.0)
    with pytest.raises(Refused):
        store(tmp_path).reserve("a", "fit", 0.0, amount)


def test_without_a_budget_nothing_can_be_spent_and_the_account_says_so(tmp_path):
    budget = store(tmp_path, allowed=None)
    assert budget.account().left is None
    with pytest.raises(Refused, match="has set no privacy budget"):
        budget.reserve("a", "fit", 0.1, 0.0)


def test_data_sets_have_budgets_of_their_own(tmp_path):
    store(tmp_path, dataset="one").reserve("a", "fit", 3.0, 0.0)
    store(tmp_path, dataset="two").reserve("a", "fit", 3.0, 0.0)
    with pytest.raises(Refused):
        store(tmp_path, dataset="one").reserve("b", "fit", 0.1, 0.0)


def test_twenty_threads_do_not_pass_the_budget_together(tmp_path):
    got = []

    def work(i):
        try:
            store(tmp_path).reserve(f"study-{i}", "fit", 0.4, 0.0)
            got.append(i)
        except Refused:
            pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 7  # 7 × 0.4 ≤ 3 < 8 × 0.4
    assert store(tmp_path).account().reserved.epsilon == Decimal("2.8")


class Crash(BaseException):
    """The process dies here: nothing behind this point runs."""


class Dying:
    """A connection to SQLite of a process that dies before or after its n-th statement.

    Its end is what the operating system makes of it: an open transaction is not committed.
    """

    def __init__(self, real, dies):
        self._real, self._dies, self.dead = real, dies, False

    def execute(self, text, values=()):
        if self.dead:
            return self._real.execute("SELECT 1 WHERE 0")
        if self._dies["left"] == 0:
            self._die()
        self._dies["left"] -= 1
        found = self._real.execute(text, values)
        if self._dies["left"] == 0 and self._dies["after"]:
            self._die()
        return found

    def _die(self):
        self.dead = True
        self._real.close()
        self._real = sqlite3.connect(":memory:")
        raise Crash

    def close(self):
        self._real.close()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "commit", "release"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["fit", "again"]),
        st.sampled_from([0.3, 0.7, 1.1, 2.9]),
        st.sampled_from([0.0, 1e-6, 4e-6]),
        st.none() | st.tuples(st.integers(0, 7), st.booleans()),
    ),
    max_size=14,
)


@given(OPERATIONS)
@settings(max_examples=examples(200))
def test_no_interleaving_with_crashes_is_under_counted_or_passes(tmp_path_factory, operations):
    """The world: amounts whose noise was sent. Each was reserved to its end before it was sent."""
    folder = tmp_path_factory.mktemp("budget")
    sent: dict[tuple[str, str], tuple[Fraction, Fraction]] = {}
    held: dict[tuple[str, str], tuple[float, float]] = {}
    connect = sqlite3.connect
    for what, study, part, epsilon, delta, crash in operations:
        budget, key = store(folder), (study, part)
        dies = {"left": -1, "after": False}
        if crash is not None:
            dies = {"left": crash[0], "after": crash[1]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                module.sqlite3, "connect", lambda *a, _d=dies, **k: Dying(connect(*a, **k), _d)
            )
            try:
                if what == "reserve":
                    budget.reserve(study, part, epsilon, delta)
                    held[key] = (epsilon, delta)
                    # The promise is on disk: the noisy sum leaves now.
                    sent[key] = (Fraction(repr(epsilon)), Fraction(repr(delta)))
                elif what == "commit" and key in sent:
                    budget.commit(study, part)
                elif what == "release" and key not in sent:
                    budget.release(study, part)  # nothing left the site for it
            except (Refused, Crash):
                pass
        account = store(folder).account()
        counted = account.reserved.epsilon + account.spent.epsilon
        assert counted >= sum((s[0] for s in sent.values()), Fraction(0))
        assert counted <= THREE.epsilon
        deltas = account.reserved.delta + account.spent.delta
        assert deltas >= sum((s[1] for s in sent.values()), Fraction(0))
        assert deltas <= THREE.delta


CHILD = """
import sys
from decimal import Decimal
from pathlib import Path
from fedcohort.network.state.budget import Budget
from fedcohort.network.state.policy import Allowance
from fedcohort.protocol.errors import Refused
budget = Budget(Path(sys.argv[1]), "patients", Allowance(Decimal(1000), Decimal(1)))
for i in range(100000):
    budget.reserve(sys.argv[2], str(i), 0.001, 0.0)
    print(i, flush=True)
"""


def test_a_killed_process_leaves_all_that_it_was_promised(tmp_path):
    path = tmp_path / "budget.sqlite"
    promised = 0
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), f"study-{turn}"],
            stdout=subprocess.PIPE, env=os.environ,
        )  # fmt: skip
        try:
            lines = 0
            while lines < 5 + 3 * turn:
                assert child.stdout.readline()
                lines += 1
            os.kill(child.pid, signal.SIGKILL)
            lines += len(child.stdout.readlines())
        finally:
            child.kill()
            child.wait()
        promised += lines
        account = Budget(path, "patients", Allowance(Decimal(1000), Decimal(1))).account()
        counted = account.reserved.epsilon / Decimal("0.001")
        assert promised <= counted <= promised + turn + 1
