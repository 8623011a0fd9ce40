"""One thread: products on several round otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch  # noqa: F401 - its threads are limited if it is there

from conformance.core import in_make_test
from fedcohort.runtime.local import one_thread


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no items of what `make test` leaves out: twelve thousand of them take seconds."""
    yield
    if metafunc.config.option.markexpr == "not slow" and metafunc._calls:
        name, calls = metafunc.function.__name__, metafunc._calls
        # one at least, or pytest takes it for a test without parameters
        metafunc._calls = [c for c in calls if in_make_test(name, c.params)] or calls[:1]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make test-all` what `core` says."""
    given = getattr(item, "callspec", None)
    if given is not None and not in_make_test(item.originalname, given.params):
        item.add_marker("slow")
