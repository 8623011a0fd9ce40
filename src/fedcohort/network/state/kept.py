"""What a node keeps of fits of studies with `keep: true`, so that other hospitals can leave.

`kept/<study's hash>/NAME.part` in the node's state, readable by its user alone, is a record of
`protocol.wire`: the arrays that the fit left here (of `bayes_net` this site's factor), the sites of
its masked sums, the digest of its table and the time. They are never sent; `study.at_site.
forgetting` says which sums of them are answered. `fedcohort node kept` lists and deletes them, and
a withdrawal deletes them.

Revealed: nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedcohort.arrays import Array
from fedcohort.network.requests import is_hash
from fedcohort.network.state.durable import write
from fedcohort.network.state.study_store import now
from fedcohort.protocol.wire import Malformed, decode, encode, head
from fedcohort.study.at_site.forgetting import Kept, not_kept

#: Folder in the node's state, and what its files' names end with.
FOLDER, ENDING = "kept", ".part"


@dataclass(frozen=True)
class Part:
    """A kept file: the study's hash, its name, its bytes, and the time at which it was written."""

    study: str
    name: str
    size: int
    at: str


def save(
    state: Path, study: str, name: str, arrays: Mapping[str, Array], members: frozenset[str],
    table: str,
) -> None:  # fmt: skip
    """Keep what a fit left here, in place of an earlier one of that name.

    Parameters
    ----------
    members : sites of the fit's masked sums.
    table : digest of the table.
    """
    place = state / FOLDER / study
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    meta = {"kind": "kept", "members": sorted(members), "table": table, "at": now()}
    write(place / f"{name}{ENDING}", encode(arrays, meta))


def load(state: Path, study: str, name: str, table: str, site: str) -> Kept:
    """Return what is kept of a fit.

    Raises
    ------
    Refused : nothing, a damaged file, or one of another table.
    """
    try:
        arrays, meta = decode((state / FOLDER / study / f"{name}{ENDING}").read_bytes())
        members = frozenset(str(m) for m in meta["members"])
    except FileNotFoundError:
        raise not_kept(site, "the study did not ask for it, or it was deleted") from None
    except (Malformed, LookupError, TypeError):
        raise not_kept(site, "the file is damaged") from None
    if meta.get("table") != table:
        raise not_kept(site, "its table has changed since")
    return Kept(arrays, members)


def parts(state: Path, study: str | None = None) -> Iterator[Part]:
    """Yield what is kept, of one study or of all, in the order of names."""
    for path in sorted((state / FOLDER).glob(f"*/*{ENDING}")):
        of = path.parent.name
        if is_hash(of) and study in (None, of):
            try:
                at = str(head(path.read_bytes()).get("at", ""))
            except Malformed:
                at = "damaged"
            yield Part(of, path.name.removesuffix(ENDING), path.stat().st_size, at)


def delete(state: Path, study: str) -> int:
    """Delete what is kept of a study; return the number of files."""
    found = len(list(parts(state, study)))
    if is_hash(study):
        shutil.rmtree(state / FOLDER / study, ignore_errors=True)
    return found
