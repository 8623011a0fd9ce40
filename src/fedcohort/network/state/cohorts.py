"""The cohort ledger of a site: the patients of each study, so that no two sets differ by a few.

Subtracting the sums over two sets of patients that differ in a few gives the sums over those few. A
lead chooses sets by required columns, codes of missing values, seed, share and number of repeats of
the blind rows. So a node notes, per data set and study,

    analysed      the rows of the study
    train, blind  those of each repeat

before the first reply leaves. It refuses a study with a set A if an earlier study has a set B with

    1 ≤ |A Δ B| < m,   m the larger `min_cell` of site and study                              (1)

A patient is an HMAC-SHA256, under a secret of the node in its own file, of the cells that the
site's dictionary calls identifiers, or else of all cells of the source row; equal rows are told
apart by their order. The ledger keeps these digests, numbered, and sets as bits: no cell, and
without the secret no guess can be confirmed. It is on disk (SQLite, synchronous=EXTRA) before
anything leaves. If studies are noted and the secret is gone, the node does not start.

Allowed: the same set again, and sets that differ by m patients or more. Not compared: different
sets of one study, as only the site knows which rows its seed draws. A study's set over a later
export is compared, and both are kept. Not prevented: unions and differences of three or more sets,
and changed rows. With identifiers a corrected cell is not noticed. Without, a corrected row is a
new patient: a new export that differs in 1 to m − 1 rows is refused, and exports with other columns
share no row, so (1) cannot find them. Simulations note nothing: one computer holds all patients.

Revealed by a refusal: the rule, the earlier study's name, and so that 1 to m − 1 patients differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.network.state.durable import opened
from fedcohort.privacy.disclosure.counts import nearly_same
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.at_site.table import SiteTable

#: Bytes of a digest, and of the secret.
DIGEST, SECRET = 16, 32
#: Rows whose cells are texts at one time.
BLOCK = 1 << 16
_TABLES = (
    "CREATE TABLE IF NOT EXISTS patients (id INTEGER PRIMARY KEY, dataset TEXT NOT NULL, "
    "digest BLOB NOT NULL, UNIQUE (dataset, digest))",
    "CREATE TABLE IF NOT EXISTS cohorts (dataset TEXT NOT NULL, study TEXT NOT NULL, "
    "name TEXT NOT NULL, part TEXT NOT NULL, size INTEGER NOT NULL, bits BLOB NOT NULL, "
    "PRIMARY KEY (dataset, study, part))",
)


def digests(frame: pd.DataFrame, key: bytes) -> list[bytes]:
    """Return a keyed digest of each row (n,) of a source, independent of the order of columns."""
    order = sorted(range(frame.shape[1]), key=lambda i: (str(frame.columns[i]), i))
    names = "\x1f".join(str(frame.columns[i]) for i in order)
    begun = hmac.new(key, names.encode(), hashlib.sha256)
    seen: dict[bytes, int] = {}
    found: list[bytes] = []
    for cells in _rows(frame, order):
        one = begun.copy()
        one.update("\x1f".join(cells).encode("utf-8", "surrogatepass"))
        row = one.digest()
        seen[row] = seen.get(row, 0) + 1
        one.update(seen[row].to_bytes(8, "big"))
        found.append(one.digest()[:DIGEST])
    return found


def _rows(frame: pd.DataFrame, order: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row as texts, in blocks of rows that fit into memory."""
    for start in range(0, len(frame), BLOCK):
        part = frame.iloc[start : start + BLOCK]
        yield from zip(*(_texts(part.iloc[:, i]) for i in order), strict=True)


def _texts(column: pd.Series) -> list[str]:
    """Return the cells as texts; a number is the same text, however a file's column is typed."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        values = pd.to_numeric(column, errors="coerce").astype("float64").tolist()
        return ["" if v != v else repr(v) for v in values]
    cells = column.astype(object)
    return ["" if gone else str(v) for v, gone in zip(cells, cells.isna(), strict=True)]


def seen(folder: Path, dataset: str, marks: Sequence[bytes] = ()) -> dict[str, tuple[int, int]]:
    """Return by study its number of patients, and how many of them are in `marks`.

    For people at the site. A study over several exports counts all its patients.

    Raises
    ------
    InputError : the file cannot be read.
    """
    path = folder / "cohorts.sqlite"
    try:
        return _seen(path, dataset, marks) if path.exists() else {}
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path} cannot be read ({type(error).__name__}): it says whom earlier studies were "
            f"over. Bring back the one that the node had."
        ) from None


def _seen(path: Path, dataset: str, marks: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        wanted, one = set(marks), "SELECT digest, id FROM patients WHERE dataset = ?"
        own = [i for mark, i in db.execute(one, (dataset,)) if mark in wanted] if wanted else []
        mine = np.frombuffer(_bits(np.array(own, np.int64)), np.uint8)
        every: dict[str, Array] = {}
        for study, bits in db.execute(
            "SELECT study, bits FROM cohorts WHERE dataset = ? AND substr(part, 1, 8) = 'analysed'",
            (dataset,),
        ):
            every[study] = _joined(every.get(study, mine[:0]), np.frombuffer(bits, np.uint8))
    return {
        study: (
            int(np.unpackbits(bits).sum()),
            int(np.unpackbits(bits[: len(mine)] & mine[: len(bits)]).sum()),
        )
        for study, bits in every.items()
    }


def parts(table: SiteTable) -> dict[str, Array]:
    """Return the sets of rows (k,) that a study's results are over, as the header names them."""
    every = np.arange(len(table.frame))
    found = {"analysed": every}
    for repeat in range(table.terms.plan.repeats):
        blind = table.blind(repeat)
        found[f"train-r{repeat:04d}"], found[f"blind-r{repeat:04d}"] = every[~blind], every[blind]
    return found


class Cohorts:
    """The cohort ledger of one data set, in a file for several processes.

    Parameters
    ----------
    folder : the node's state; files are readable by their owner alone.
    least : m of eq. (1), from 1; with 1 nothing is refused.
    rule : "refuse", or "allow": sets are noted, nothing is refused.

    Raises
    ------
    InputError : the secret cannot be read, or is gone and studies are noted.
    """

    def __init__(self, folder: Path, dataset: str, least: int, rule: str = "refuse"):
        self._path, self._dataset = folder / "cohorts.sqlite", dataset
        self._least, self._rule = least, rule
        self.key = _secret(folder / "cohorts.key", new=not self._notes())

    def check(self, study: str, marks: Sequence[bytes], sets: Mapping[str, Array], least: int = 1):
        """Check a study's sets against those of other studies; note nothing.

        Parameters
        ----------
        study : its hash.
        marks : (n,) of the study's rows, by `digests`.
        sets : by name, indices into them.
        least : the study's own `min_cell`.

        Raises
        ------
        Refused : "cohort", eq. (1).
        """
        if self._path.exists():
            with opened(self._path, *_TABLES) as db:
                self._compare(db, study, marks, sets, least)

    def note(
        self, study: str, name: str, marks: Sequence[bytes], sets: Mapping[str, Array],
        least: int = 1,
    ) -> None:  # fmt: skip
        """Check a study's sets and note them, in one transaction; twice changes nothing.

        Raises
        ------
        Refused : "cohort", eq. (1); nothing is noted.
        """
        with opened(self._path, *_TABLES) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                self._compare(db, study, marks, sets, least)
                db.executemany(
                    "INSERT OR IGNORE INTO patients (dataset, digest) VALUES (?, ?)",
                    [(self._dataset, mark) for mark in marks],
                )
                ids = self._ids(db, marks)
                db.executemany(
                    "INSERT OR IGNORE INTO cohorts VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (self._dataset, study, name, _kept_as(part, bits), len(rows), bits)
                        for part, rows in sets.items()
                        for bits in (_bits(ids[rows]),)
                    ],
                )
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def studies(self) -> list[str]:
        """Return the names of the studies that are noted, in order of their hashes."""
        if not self._path.exists():
            return []
        with opened(self._path, *_TABLES) as db:
            rows = db.execute(
                "SELECT DISTINCT study, name FROM cohorts WHERE dataset = ? ORDER BY study",
                (self._dataset,),
            )
            return [str(name) for _, name in rows]

    # ------------------------------------------------------------------------------------

    def _compare(
        self,
        db: sqlite3.Connection,
        study: str,
        marks: Sequence[bytes],
        sets: Mapping[str, Array],
        least: int,
    ) -> None:
        """Raise where eq. (1) holds."""
        m = max(self._least, least)
        if self._rule != "refuse" or m < 2:
            return
        ids = self._ids(db, marks)
        for part, rows in sets.items():
            own, same = ids[rows], _kept_as(part, b"")
            known = np.frombuffer(_bits(own[own > 0]), np.uint8)
            new = int((own == 0).sum())
            for name, bits in db.execute(
                "SELECT name, bits FROM cohorts WHERE dataset = ? AND abs(size - ?) < ? "
                "AND (study != ? OR substr(part, 1, ?) = ?)",
                (self._dataset, len(rows), m, study, len(same), same),
            ):
                apart = new + _differ(known, np.frombuffer(bits, np.uint8))
                if nearly_same(apart, m):
                    raise Refused(
                        "cohort",
                        f"its patients, or those of one of its splits, are those of the earlier "
                        f"study {name!r} but for fewer than {m} (cohort ledger): the two together "
                        f"would tell those few. Use the same rows, seed and split as that study, "
                        f"or rows that differ by more.",
                    )

    def _ids(self, db: sqlite3.Connection, marks: Sequence[bytes]) -> Array:
        """Return the numbers of patients (n,); 0 for those not noted yet."""
        known = dict(
            db.execute("SELECT digest, id FROM patients WHERE dataset = ?", (self._dataset,))
        )
        return np.array([known.get(mark, 0) for mark in marks], np.int64)

    def _notes(self) -> bool:
        """Return whether a study of any data set is noted."""
        if not self._path.exists():
            return False
        try:
            with opened(self._path, *_TABLES) as db:
                return db.execute("SELECT 1 FROM cohorts LIMIT 1").fetchone() is not None
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self._path} cannot be used as the cohort ledger ({type(error).__name__}). Bring "
                f"back the one that the node had; without it no earlier study can be compared."
            ) from None


def _kept_as(part: str, bits: bytes) -> str:
    """Return the name of a set in the file: a later one of the same part stands beside it."""
    return f"{part}@" + (hashlib.sha256(bits).hexdigest() if bits else "")


def _bits(ids: Array) -> bytes:
    """Return a set of numbers from 1 as bits."""
    flags = np.zeros(int(ids.max(initial=0)) + 1, np.uint8)
    flags[ids] = 1
    return np.packbits(flags).tobytes()


def _joined(a: Array, b: Array) -> Array:
    """Return the numbers that are in one of two sets of bits."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    both = longer.copy()
    both[: len(shorter)] |= shorter
    return both


def _differ(a: Array, b: Array) -> int:
    """Return how many numbers are in one of two sets of bits, and not in the other."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    apart = longer.copy()
    apart[: len(shorter)] ^= shorter
    return int(np.unpackbits(apart).sum())


def known_key(folder: Path) -> bytes:
    """Return the node's secret for its cohort ledger; b"" if it has made none yet."""
    path = folder / "cohorts.key"
    return _secret(path, new=False) if path.is_file() else b""


def _secret(path: Path, *, new: bool) -> bytes:
    """Return the node's secret, made once.

    Parameters
    ----------
    new : whether it may be made.

    Raises
    ------
    InputError : the file cannot be read or made, is no such secret, or is gone and may not be made.
    """
    if not new and not path.exists():
        raise InputError(
            f"{path}: the secret of the cohort ledger is gone, and cohorts.sqlite beside it notes "
            f"studies. Bring back the one that the node had; without it no earlier study can be "
            f"compared."
        )
    try:
        if not path.exists():
            half = path.with_suffix(f".{secrets.token_hex(4)}")
            with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(SECRET))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(half, path)
            half.unlink()
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        key = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be used as the secret of the cohort ledger ({type(error).__name__})."
        ) from None
    if len(key) != SECRET:
        raise InputError(
            f"{path} is no secret of the cohort ledger. Bring back the one that the node had; "
            f"without it no earlier study can be compared."
        )
    return key
