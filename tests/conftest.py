"""How all tests run: one thread each, the same examples every time, and programs compiled once."""

from __future__ import annotations

import gc
import os
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Many tests start programs: compiled anew each time, they take twice as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What is imported stays: a fifth of the time to collect it goes into looking for garbage there.
gc.disable()

import pytest  # noqa: E402 - after the threads are set
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "fedcohort",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fedcohort")

#: Folders whose files take seconds. They come last, so that no process waits long for another.
SHORT = ("metrics", "models", "numerics", "privacy", "protocol", "secure")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name in SHORT)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
