"""What the sites of a simulation keep after a fit, so that one of them can be forgotten later.

`kept/ARM/` in a run's folder has a file for each site, of a method that can forget sites
(`Method.forget`): its factors. At hospitals they lie in each hospital. No program reads them in a
run; they describe single sites, and are not for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedcohort.arrays import Array
from fedcohort.protocol.host import Answer
from fedcohort.runtime.reply_store import StateStore

#: Folder in that of a run.
KEPT = "kept"


def keep(run: Path, model: str, kept: Mapping[str, Mapping[str, Array]]) -> None:
    """Write what each site keeps of a model, a name below `models/`."""
    store = StateStore(run / KEPT / model)
    for site, state in kept.items():
        store.save(site, 0, Answer({}, dict(state)))


def kept_of(run: Path, model: str, sites: Iterable[str]) -> dict[str, dict[str, Array]]:
    """Return what these sites keep of a model; without those that keep nothing."""
    if not (run / KEPT / model).is_dir():
        return {}
    store = StateStore(run / KEPT / model)
    found = {site: store.load(site) for site in sites}
    return {site: one[1].state or {} for site, one in found.items() if one is not None}
