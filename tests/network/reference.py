"""What a run over a network must equal: the same study over sites in this process.

Sites that a result names as missing are left out of just the calls that it names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import without_times
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over as run_deployed
from fedcohort.study.sites.sites import LocalSites
from network.parties import SITES, shares


def in_process(
    study: Path, out: Path, missing: Sequence[dict[str, Any]] = (), sites: Sequence[str] = SITES
) -> dict[str, bytes]:
    """Return the files of a study over the sites' shares, as `plain` has them.

    Parameters
    ----------
    missing : as in results.json.

    Raises
    ------
    AssertionError : a row of `missing` does not say which calls were missed.
    """
    terms = Terms.of(study)
    arms = [arm.name for arm in terms.plan.arms]
    gone: set[tuple[str, int, str]] = set()
    for row in missing:
        calls = range(row["first"], row["last"] + 1)
        assert len(calls) == row["calls"], f"it does not say which calls were missed: {row}"
        kind = "judge" if row["phase"] == "evaluate" else "fit"
        session = f"{kind}-r{row['repeat']:04d}-a{arms.index(row['arm']):02d}"
        gone |= {(session, call, row["site"]) for call in calls}
    tables = [SiteTable.of(terms, n, rows) for n, rows in shares(sites).items()]
    sites_here = LocalSites(terms, tables, absent=lambda *call: call in gone)
    run_deployed(terms, sites_here, out)
    return plain(out)


def plain(out: Path) -> dict[str, bytes]:
    """Return the files of a run without times, and without the command that was typed for it."""
    files = without_times(out)
    results = json.loads(files["results.json"])
    results.pop("command")
    return {**files, "results.json": json.dumps(results).encode()}


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Return the names of files that are not the same."""
    return sorted(k for k in {*found, *expected} if found.get(k) != expected.get(k))
