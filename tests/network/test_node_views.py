"""A node's table, and its own dictionary, may lack a view of a study as a whole, and no less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcohort.data.read.dictionaries import text
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.network.node.table import open_table
from fedcohort.network.state.policy import DataSource
from fedcohort.protocol.errors import Refused
from fedcohort.study.file.terms import Terms

STUDY = """\
study: views
task: regression
data: {source: network, dictionary: d.yaml, outcome: {y: v1_01, type: continuous}}
arms: [{method: ridge}]
"""
FRAME, VIEWS = multiview(dims=(3, 4, 2), q=2)


@pytest.fixture
def terms(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "d.yaml").write_text(text(dictionary_of(VIEWS)))
    return Terms.of(tmp_path / "s.yaml")


def opened(terms: Terms, folder: Path, lacking=(), own=None):
    """Open a table without some columns, at a site whose own dictionary lacks others."""
    FRAME.drop(columns=list(lacking)).to_csv(folder / "t.csv", index=False)
    if own is not None:
        known = {k: v for k, v in dictionary_of(VIEWS).variables.items() if k not in own}
        (folder / "own.yaml").write_text(text(type(terms.dictionary)(known)))
    data = DataSource("t.csv", "", None if own is None else "own.yaml", "t", folder)
    return open_table(terms, "north", data, 20)


@pytest.mark.parametrize("own", [None, (), ("v2_01", "v2_02", "v2_03", "v2_04")])
def test_a_table_without_a_view_is_opened(terms, tmp_path, own):
    table = opened(terms, tmp_path, VIEWS["v2"], own)
    assert list(table.frame.columns) == ["v1_01", "v1_02", "v1_03", *VIEWS["v3"], "group"]
    assert len(table.frame) == 400
    assert np.isfinite(table.frame[VIEWS["v3"]].to_numpy()).all()


def test_a_table_with_a_part_of_a_view_is_unfit_by_that_column(terms, tmp_path):
    with pytest.raises(Refused, match="column 'v2_03' breaks the rule 'missing column'"):
        opened(terms, tmp_path, ["v2_03"])


def test_a_sites_own_dictionary_with_a_part_of_a_view_is_refused_by_the_column(terms, tmp_path):
    with pytest.raises(Refused, match="column 'v2_03' of the study is not in this site's own"):
        opened(terms, tmp_path, own=("v2_03",))
