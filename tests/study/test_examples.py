"""The studies that come with the package can be read, and name every metric that must be named."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedcohort as fc
from fedcohort.study.kinds import KINDS

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_every_example_is_a_study_without_an_error(path):
    assert fc.Study.from_file(path).plan.arms


def test_each_metric_that_must_be_named_stands_in_an_example():
    named = {m for path in STUDIES for m in fc.Study.from_file(path).plan.metrics}
    must = {m for k in KINDS.values() for m, needs in k.metrics.items() if needs.asked}
    assert must <= named
