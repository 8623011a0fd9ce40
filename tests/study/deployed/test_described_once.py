"""Nodes give their part of Table 1 to one set of sites, whatever restarts and begins anew."""

from __future__ import annotations

import pytest

from deployed_cases import MaskedSites, frames_of, tables_of, terms_of
from fedcohort.data import describe
from fedcohort.network.state.replay_guard import OnDisk
from fedcohort.protocol import Refused

NAMES = ("bergen", "oslo", "tromsø", "ålesund")


def nodes(terms, tables, folder):
    """Return sites that remember on disk what they were asked first; others of them: a restart."""
    return MaskedSites(
        terms, tables, folder,
        once=lambda site: lambda name: OnDisk(folder / site, terms.hash, "table", name),
    )  # fmt: skip


def table_one(sites, terms, among=NAMES):
    variables = describe.variables_of(terms.dictionary, terms.outcome)
    fed = sites.federation("describe").only(among).awaiting()
    return [s.to_dict() for s in describe.describe(fed, variables).summaries]


def test_a_run_that_begins_anew_is_told_the_same_and_one_over_fewer_sites_nothing(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", bounds="[]")
    tables = tables_of(terms, frames_of("gbsg2", names=NAMES))
    first = table_one(nodes(terms, tables, tmp_path), terms)
    assert table_one(nodes(terms, tables, tmp_path), terms) == first
    for gone in NAMES:
        among = [s for s in NAMES if s != gone]
        with pytest.raises(Refused, match="differs from its first value") as error:
            table_one(nodes(terms, tables, tmp_path), terms, among)
        assert "\n" not in str(error.value)
