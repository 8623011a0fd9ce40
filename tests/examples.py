"""How many examples of a property are tried, where a test says how many."""

from __future__ import annotations

from hypothesis import settings


def examples(whole: int) -> int:
    """Return how many of `whole` are tried: all in `make test-all`, 2 of 5 in `make test`."""
    return whole * settings().max_examples // settings.get_profile("whole").max_examples
