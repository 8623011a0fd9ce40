"""How all tests run: one thread each, the same examples every time, and programs compiled once."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Many tests start programs: compiled anew each time, they take twice as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nodes and coordinators force every note to the disk, which a loss of power is needed to notice:
# folders of tests are in memory where it has room. A run that failed leaves those of its failures.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * 1024**3:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# What is imported stays: a fifth of the time to collect it goes into looking for garbage there.
gc.disable()

import pytest  # noqa: E402 - after the threads are set
from hypothesis import HealthCheck, settings  # noqa: E402

import slow_list  # noqa: E402
from logs import caplog  # noqa: E402, F401 - a fixture

# As with pytest's own plugin, no line is printed for want of a handler.
logging.getLogger().addHandler(logging.NullHandler())

for _name, _examples in (("make test", 10), ("whole", 25)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("whole")

#: Folders whose files take seconds. They come last, so that no process waits long for another.
SHORT = ("metrics", "models", "numerics", "privacy", "protocol", "secure")


#: What `make test` leaves out, by file.
SLOW = slow_list.by_file(slow_list.read())

#: Of each test that was collected, whether it is slow.
COLLECTED = pytest.StashKey[dict[str, bool]]()


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples in `make test`, where a test does not say how many."""
    if config.option.markexpr == "not slow":
        settings.load_profile("make test")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files out of which all tests are slow, unless slow ones are asked for."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    try:
        file = collection_path.relative_to(slow_list.TESTS).as_posix()
    except ValueError:
        return None
    asked = any(collection_path == Path(word).resolve() for word in config.args)
    return True if not asked and any(line.is_file for line in SLOW.get(file, ())) else None


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the list, and put short files last."""
    collected = config.stash.setdefault(COLLECTED, {})
    for item in items:
        test = slow_list.test_of(item.nodeid)
        if any(line.has(test) for line in SLOW.get(test.partition("::")[0], ())):
            item.add_marker("slow")
        collected[test] = item.get_closest_marker("slow") is not None
    if slow_list.PAGES_DRAWN in os.environ:
        items[:] = [i for i in items if slow_list.has_a_page(slow_list.test_of(i.nodeid))]
    items.sort(key=lambda item: item.path.parent.name in SHORT)


@pytest.fixture(scope="session", autouse=True)
def _pages(pytestconfig: pytest.Config) -> Iterator[None]:
    """In `make test` write no page for a test that reads none, and draw only where tests look."""
    if pytestconfig.option.markexpr != "not slow" or slow_list.PAGES_DRAWN in os.environ:
        yield
        return
    from fedcohort import report

    write = report.write

    def as_read(dir: Path, out: Path | None = None) -> Path:
        if not slow_list.reads_a_page(slow_list.current_test()):
            return out or Path(dir) / "report.html"
        with slow_list.drawn_where_looked_at():
            return write(dir, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write", as_read)
        if not any(map(slow_list.makes_a_page, pytestconfig.stash[COLLECTED])):
            yield
            return
        with slow_list.drawn_where_looked_at(slow_list.makes_a_page):
            yield


@pytest.fixture(scope="session")
def collected(pytestconfig: pytest.Config) -> dict[str, bool]:
    """Return the tests that this run collected, and whether they are slow."""
    return pytestconfig.stash[COLLECTED]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
