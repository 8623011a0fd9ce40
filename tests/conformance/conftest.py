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


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make test-all` what `core` says."""
    given = getattr(item, "callspec", None)
    if given is not None and not in_make_test(item.originalname, given.params):
        item.add_marker("slow")
