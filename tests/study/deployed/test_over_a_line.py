"""A deployed run through bytes, one store a site, gives the files of the run without them."""

from __future__ import annotations

import pytest

from deployed_cases import files_of, frames_of, run_local, tables_of, terms_of
from fedcohort.protocol import Refused
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.limits import Limits
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.run.runner import run_over as run
from loopback import LoopbackLine


class LineSites:
    """Sites at the other end of a line in this process."""

    def __init__(self, terms, tables, folder, min_cell=5):
        def end(table):
            def opened(asked, session):
                if asked != terms.hash:
                    raise Refused("study", "another study")
                return open_session(terms, table, session, min_cell)

            answers = Answers(folder / f"{table.site}.sqlite")
            return SiteEnd(table.site, opened, answers, limits=Limits(min_cell=min_cell)).handle

        self.absent = {}
        self._hash = terms.hash
        self._line = LoopbackLine({t.site: end(t) for t in tables})

    @property
    def names(self):
        return tuple(self._line.sites)

    def federation(self, session, *, quorum, ledger, journal, observer, secure="auto"):
        return remote(
            self._line, self._hash, session, quorum=quorum, ledger=ledger, journal=journal,
            observer=observer, timeout=20.0, secure=secure,
        )  # fmt: skip

    def close(self, session):
        pass


@pytest.mark.parametrize(
    ("sample", "task", "arms", "tune"),
    [
        ("gbsg2", "survival", "[{method: cox}, {method: deepcox, rounds: 2, hidden: [4]}]", "l2"),
        ("breast_cancer", "classification", "[{method: logistic, l2: 1.0, scale: standard}]", ""),
        ("diabetes", "regression", "[{method: ridge, penalty: 0.1}]", ""),
    ],
)
def test_a_run_over_a_line_leaves_the_same_files(tmp_path, sample, task, arms, tune):
    more = {"tune": f"{{arms: {{cox: {{{tune}: [0.0, 9.0]}}}}}}"} if tune else {}
    terms = terms_of(tmp_path, sample, arms, task=task, **more)
    tables = tables_of(terms, frames_of(sample))
    run_local(terms, tables, tmp_path / "want")
    sites = LineSites(terms, tables, tmp_path)
    run(terms, sites, tmp_path / "out", debug=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "want")
