"""In `make test` a chart is drawn where a test looks at it: see `slow_list.UNDRAWN`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import slow_list


@pytest.fixture(scope="session", autouse=True)
def _drawings(pytestconfig: pytest.Config) -> Iterator[None]:
    if pytestconfig.option.markexpr != "not slow" or slow_list.PAGES_DRAWN in os.environ:
        yield
        return
    with slow_list.drawn_where_looked_at():
        yield
