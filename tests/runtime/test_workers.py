"""Sites divided among processes leave what the local runtime leaves, and no process behind."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from command_line import interruptible
from fedcohort.arrays import Array
from fedcohort.protocol import Site, SiteFailed, SiteUnavailable, gathered, message, summed
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.errors import Refused, WorkerLost
from fedcohort.protocol.host import Call
from fedcohort.runtime import team
from fedcohort.runtime import workers as module
from fedcohort.runtime.arena import LARGE, Arena, Laid, unpack
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport, local
from fedcohort.runtime.workers import DividedTransport, divided, divided_by

SITES = tuple("abcdefg")


@message(parameters=["theta"])
class Model:
    """Some parameters, as many as the site is asked for, and one number."""

    theta: Array
    fine: Array
    rows: Array


@message
class Count:
    """Whole numbers at some sites, real ones at others."""

    many: Array


@summed
def part(site: Site[float, None], *, near: Array) -> Model:
    """Reply numbers around `near`, more than go through a pipe."""
    noise = site.rng.normal(size=near.shape)
    return Model(near + noise, np.pi * noise[:5000], np.array(site.data))


@gathered
def own(site: Site[float, None], *, near: Array) -> Model:
    """Reply the same by itself."""
    return part.run(site, near=near)


@summed
def count(site: Site[float, None], *, size: int) -> Count:
    """Reply whole numbers where the site's is whole."""
    whole = site.data == int(site.data)
    return Count(np.full(size, int(site.data) if whole else site.data))


@summed
def broken(site: Site[float, None]) -> Count:
    """Break at two sites."""
    if site.name in "be":
        raise ValueError(site.name)
    return Count(np.ones(2))


@summed
def vast(site: Site[float, None]) -> Count:
    """Reply a number beyond the range of an exact sum."""
    return Count(np.full(9000, 1e300 if site.name in "cd" else 1.0))


STEPS = (part, own, count, broken, vast)


def hosts(values: dict[str, float] | None = None) -> list[Any]:
    """Return sites that hold one number each."""
    return toys.hosts(values or {name: float(i) for i, name in enumerate(SITES)}, STEPS)


@contextlib.contextmanager
def split(
    given: list[Any], n: int = 3, start: float = -math.inf, **options: Any
) -> Iterator[tuple[Coordinator, DividedTransport]]:
    """Give sites divided among n processes, and their transport."""
    transport = DividedTransport(given, workers=n, start=start)
    try:
        yield Coordinator(transport, **options), transport
    finally:
        transport.close()


def same(one: Any, other: Any) -> None:
    """Two messages are the same bytes."""
    for name in type(one).__dataclass_fields__:
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("size", [10, 9000, LARGE])
def test_sums_and_replies_of_any_size_are_the_local_runtimes_to_the_last_bit(n, size):
    here = local(hosts())
    with split(hosts(), n) as (fed, transport):
        for _ in range(3):
            near = np.random.default_rng(size).normal(size=size)
            same(fed.sum(part, near=near), here.sum(part, near=near))
            heavy = {name: 0.1 + i for i, name in enumerate(SITES)}
            found = fed.weighted(heavy).sum(part, near=near)
            same(found, here.weighted(heavy).sum(part, near=near))
            replies = here.gather(own, near=near)
            for name, reply in fed.gather(own, near=near).items():
                same(reply, replies[name])
        assert len(transport.workers) == n
        assert fed.answered == here.answered == SITES
    assert fed.ledger.lines == here.ledger.lines


def test_replies_that_fill_the_shared_memory_go_through_the_pipe(monkeypatch):
    monkeypatch.setattr("fedcohort.runtime.team.ROOM", LARGE + 4096)
    near = np.arange(LARGE / 4)
    replies = local(hosts()).gather(own, near=near)
    with split(hosts(), 2) as (fed, _):
        for name, reply in fed.gather(own, near=near).items():
            same(reply, replies[name])


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("reals", ["a", "g", "bcd"])
def test_what_is_whole_at_one_site_and_real_at_another_adds_to_the_local_sum(size, reals):
    values = {name: i + 0.25 * (name in reals) for i, name in enumerate(SITES)}
    with split(hosts(values)) as (fed, _):
        same(fed.sum(count, size=size), local(hosts(values)).sum(count, size=size))


def test_an_error_is_that_of_the_first_site_and_the_next_call_is_answered():
    near = np.zeros(10)
    with split(hosts()) as (fed, transport):
        for _ in range(2):
            with pytest.raises(SiteFailed, match=r"^site 'b' failed in step broken"):
                fed.sum(broken)
            with pytest.raises(Refused, match=r"^site 'c': field 'many' holds a number"):
                fed.sum(vast)
        here = local(hosts())
        here._run.call = fed._run.call  # the draws of a site hang on the call's number
        same(fed.sum(part, near=near), here.sum(part, near=near))
        assert len(transport.workers) == 3


def test_a_call_that_was_left_half_read_does_not_disturb_the_next():
    with split(hosts()) as (fed, transport):
        given = Arguments({"near": np.zeros(LARGE)}, SITES)
        half = transport.ask(Call(99, own, "gather", None, given), SITES)
        assert next(half)[0] == "a"
        replies, here = fed.gather(own, near=np.ones(LARGE)), local(hosts())
        for name, reply in here.gather(own, near=np.ones(LARGE)).items():
            same(replies[name], reply)


def test_sites_that_do_not_answer_are_missing_as_in_one_process():
    def absent(call: int, site: str) -> bool:
        return (call + ord(site)) % 5 == 0

    near = np.ones(9000)
    here = local(hosts(), absent=absent, quorum=0.5)
    transport = DividedTransport(hosts(), None, absent, workers=3, start=-math.inf)
    fed = Coordinator(transport, quorum=0.5)
    for _ in range(5):
        same(fed.sum(part, near=near), here.sum(part, near=near))
    transport.close()
    assert fed.missing == here.missing
    lost = Coordinator(DividedTransport(hosts(), None, absent, workers=3, start=-math.inf))
    with pytest.raises(SiteUnavailable, match=r"6 of 7 sites answered part, .* missing: d\."):
        for _ in range(5):
            lost.sum(part, near=near)


def test_workers_that_are_started_in_the_middle_go_on_with_the_sites_states(tmp_path):
    whole = toys.lasso(local(toys.hosts(toys.regressions(), toys.ADMM)), penalty=10.0, rounds=6)
    with split(toys.hosts(toys.regressions(), toys.ADMM), start=math.inf) as (fed, transport):

        def observe(progress: Any) -> None:
            if progress.call == 4:
                transport._start = -math.inf

        fed._run.observer = observe
        found = toys.lasso(fed, penalty=10.0, rounds=6)
        assert transport.workers
    assert found.z.tobytes() == whole.z.tobytes()
    assert found.residuals.tobytes() == whole.residuals.tobytes()


@summed
def scratch(site: Site[Array, None]) -> Model:
    """Reply memory that the next site's step writes over."""
    site.data[:] += 1.0
    return Model(site.data, site.data[:9000], np.array(1.0))


@pytest.mark.parametrize("secure", ["auto", "true", "false"])
def test_sites_may_reply_one_and_the_same_memory_however_sums_are_formed(secure):
    """1 + 2 + … + 7 = 28: each reply has been read before the next site's step runs."""
    shared = np.zeros(20_000)
    fed = local(toys.hosts(dict.fromkeys(SITES, shared), (scratch,)), secure=secure)
    total = fed.sum(scratch)
    assert set(total.theta.tolist()) == set(total.fine.tolist()) == {28.0}


# when -----------------------------------------------------------------------------------


@summed
def slow(site: Site[float, None]) -> Count:
    """Take the site's seconds."""
    time.sleep(site.data)
    return Count(np.ones(2))


def test_a_fit_of_small_calls_stays_in_this_process():
    given = toys.hosts(dict.fromkeys("abcd", 0.001), (slow,))
    with split(given, 2, module.START) as (fed, transport):
        for _ in range(50):
            fed.sum(slow)
        assert not transport.workers


def test_a_fit_that_asks_one_site_after_the_other_stays_in_this_process():
    given = toys.hosts(dict.fromkeys("abcd", 0.1), (slow,))
    with split(given, 2, module.START) as (fed, transport):
        for name in "abcd":
            fed.only([name]).sum(slow)
        assert not transport.workers


def test_long_calls_are_divided_and_take_the_time_of_the_longest_share():
    given = toys.hosts(dict.fromkeys("abcd", 0.1), (slow,))
    with divided(given, workers=2) as fed:
        fed.sum(slow)
        began = time.perf_counter()
        fed.sum(slow)
        taken = time.perf_counter() - began
        assert len(fed._run.transport.workers) == 2
        pids = fed._run.transport.workers
    assert 0.2 <= taken < 0.38
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_one_worker_is_the_local_runtime():
    with divided(hosts(), workers=1) as fed:
        assert not isinstance(fed._run.transport, DividedTransport)


@given(
    cost=st.dictionaries(st.sampled_from(SITES), st.floats(0, 1e6), min_size=1),
    n=st.integers(1, 9),
)
def test_every_site_is_in_one_share_and_no_share_is_twice_the_best_there_could_be(cost, n):
    """Graham (1969): the longest first is within 4/3 of the best; which is at least both bounds."""
    shares = divided_by(cost, n)
    assert sorted(s for share in shares for s in share) == sorted(cost)
    assert all(shares) or len(shares) > len(cost)
    longest = max(sum(cost[s] for s in share) for share in shares)
    best = max(sum(cost.values()) / len(shares), *cost.values(), 0.0)
    assert longest <= 2 * best + 1e-6


# processes ------------------------------------------------------------------------------


def started(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a long fit in a process of its own; return it, and its workers."""
    folder.mkdir(exist_ok=True)
    script = Path(__file__).with_name("divided.py")
    paths = os.pathsep.join([str(script.parents[1]), *sys.path])
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths}, preexec_fn=interruptible,
    )  # fmt: skip
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def gone(pids: list[int], within: float = 5.0) -> bool:
    """Return whether these processes end in so many seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not any(_runs(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    """Return whether a process is there and is no zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    process, _ = started(folder)
    assert process.wait(timeout=120) == 0
    return (folder / "result").read_bytes()


def resumed(folder: Path) -> bytes:
    process, _ = started(folder)
    assert process.wait(timeout=120) == 0
    return (folder / "result").read_bytes()


def test_workers_end_with_a_killed_parent_and_the_run_resumes_to_the_same_result(whole, tmp_path):
    process, pids = started(tmp_path)
    assert len(pids) == 2
    process.kill()
    process.wait()
    assert gone(pids)
    assert not (tmp_path / "result").exists()
    assert resumed(tmp_path) == whole


def test_a_killed_worker_is_one_line_and_the_run_resumes_to_the_same_result(whole, tmp_path):
    process, pids = started(tmp_path)
    os.kill(pids[0], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == "a worker process of a fit died (killed, or out of memory)\n"
    assert gone(pids)
    assert resumed(tmp_path) == whole


def test_an_interrupt_of_the_whole_group_ends_all_and_only_the_parent_speaks(tmp_path):
    process, pids = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1
    assert gone(pids)


def test_workers_end_their_products_where_the_parent_has_several_threads(tmp_path):
    """A fork has no other threads, and a product of matrices by PyTorch waited for them."""
    script = Path(__file__).with_name("threaded.py")
    paths = os.pathsep.join([str(script.parents[1]), *sys.path])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "4")
    done = subprocess.run(
        [sys.executable, str(script)], timeout=120, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": paths, **threads},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_nothing_listens_while_workers_run(tmp_path):
    process, pids = started(tmp_path)
    try:
        inodes = {
            os.readlink(link)[8:-1]
            for pid in (process.pid, *pids)
            for link in Path(f"/proc/{pid}/fd").iterdir()
            if link.is_symlink() and os.readlink(link).startswith("socket:")
        }
        assert inodes  # the lines
        tables = [Path(f"/proc/{pids[0]}/net/{kind}") for kind in ("tcp", "tcp6", "udp", "udp6")]
        rows = [row.split() for t in tables if t.exists() for row in t.read_text().splitlines()[1:]]
        assert not inodes & {row[9] for row in rows}
        unix = Path(f"/proc/{pids[0]}/net/unix").read_text().splitlines()[1:]
        named = {row.split()[6] for row in unix if len(row.split()) > 7}
        assert not inodes & named
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_lost_worker_is_an_error_of_the_operating_system_too():
    """So that a study's runner keeps what is finished, as with a full disk."""
    assert isinstance(WorkerLost("x"), OSError)


# shared memory --------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 20_000), max_size=6), room=st.integers(1, 400_000))
def test_what_is_laid_comes_back_whatever_fits(sizes, room):
    rng = np.random.default_rng(0)
    arrays = {str(i): rng.normal(size=n) for i, n in enumerate(sizes)}
    arena = Arena(room)
    back, meta = unpack(Laid.of(arrays, arena).record({"a": [1]}), arena)
    assert list(back) == list(arrays)
    assert meta == {"a": [1]}
    for name, a in arrays.items():
        assert back[name].tobytes() == a.tobytes()


def test_a_worker_whose_parent_closed_the_line_in_the_midst_of_a_call_says_nothing(capfd):
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    pid = os.fork()  # it ends its process
    if pid == 0:
        worker = team._Worker(
            LocalTransport(toys.hosts(toys.regressions(), toys.ADMM)),
            theirs,
            Arena(64),
            Arena(64),
            None,
        )
        worker._say({}, {"kind": "reply"})
        os._exit(7)
    theirs.close()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert capfd.readouterr().err == ""
