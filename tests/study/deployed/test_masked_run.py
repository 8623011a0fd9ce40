"""Studies by sites that answer masked sums alone: their own folds differ, and nothing else may."""

from __future__ import annotations

import json

import pytest

from deployed_cases import frames_of, tables_of, terms_of
from fedcohort.runtime.answers import Answers
from fedcohort.runtime.limits import Limits
from fedcohort.runtime.loopback import LoopbackLine
from fedcohort.runtime.masked_end import NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.site_end import SiteEnd
from fedcohort.secure.identity import Identity
from fedcohort.study.deployed import open_session, run


class MaskedSites:
    """Sites with keys at the other end of a line, that answer no sum plainly or weighted."""

    def __init__(self, terms, tables, folder):
        own = {t.site: Identity.new() for t in tables}
        pinned = {name: key.public for name, key in own.items()}

        def end(table):
            rule = SumRule(NEVER, lambda: Keys(own[table.site], pinned), weights=False)
            return SiteEnd(
                table.site,
                lambda _, session: open_session(terms, table, session, 5),
                Answers(folder / f"{table.site}.sqlite"),
                limits=Limits(min_cell=5),
                sums=lambda _: rule,
            ).handle

        self.absent = {}
        self._pinned, self._hash = pinned, terms.hash
        self._line = LoopbackLine({t.site: end(t) for t in tables})

    @property
    def names(self):
        return tuple(self._line.sites)

    def federation(self, session, **options):
        return remote(self._line, self._hash, session, timeout=20.0, masks=self._pinned, **options)

    def close(self, session):
        pass


@pytest.mark.parametrize(
    ("sample", "task", "arms", "folded"),
    [
        ("diabetes", "regression", "[{method: lasso, folds: centre}]", "fold_products"),
        ("gbsg2", "survival", "[{method: cox, penalty: auto}]", "fold_likelihood"),
    ],
)
def test_every_sum_is_masked_where_sites_have_folds_of_their_own(
    tmp_path, sample, task, arms, folded
):
    terms = terms_of(tmp_path, sample, arms, task=task)
    tables = tables_of(terms, frames_of(sample))
    run(terms, MaskedSites(terms, tables, tmp_path), tmp_path / "out", debug=True)
    lines = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    sums = [line for line in map(json.loads, lines) if line.get("verb") == "sum"]
    assert all(line["masked"] for line in sums)
    assert folded in {line["step"] for line in sums}
