"""One thread: products on several round otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch  # noqa: F401 - its threads are limited if it is there

from fedcohort.runtime.local import one_thread


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
