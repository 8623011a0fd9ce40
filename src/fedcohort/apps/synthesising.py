"""`fedcohort synthesise`: a file of virtual patients, its companion JSON and its page.

The rows are written chunk by chunk, so that their number is limited by the disk alone. The page is
of the first `SHOWN` rows. With real rows (`--real`, `--blind`), which stay where the command runs,
it compares the two. Half of `--real` are blind rows if none are given; then an attack on membership
has no answer, since the model may have seen both halves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.apps import outfile
from fedcohort.data.condition import Condition
from fedcohort.data.read import sources
from fedcohort.data.read.csvcells import harmless
from fedcohort.protocol import DataError, Row, SettingError
from fedcohort.report import virtual as report
from fedcohort.study.results import saved
from fedcohort.study.virtual import Drawing
from fedcohort.study.virtual.comparing import Comparison, interpolated
from fedcohort.study.virtual.shown import shown, shown_alone
from fedcohort.version import VERSION

#: Rows of a page, and fewest real rows.
SHOWN, FEWEST = 4_000, 40
#: Smallest number of real patients in a bin of the page.
MIN_CELL = 5
#: Suffixes of the companion files.
COMPANIONS = (".json", ".html")


@dataclass(frozen=True)
class Written:
    """Paths of the files, and what a reader should know, one line each."""

    files: tuple[Path, ...]
    warnings: tuple[str, ...]


def synthesise(
    model: Path,
    n: int,
    out: Path,
    *,
    where: str = "",
    seed: int = 0,
    real: str | None = None,
    blind: str | None = None,
    force: bool = False,
) -> Written:
    """Write n virtual patients of a saved model, as CSV, with the companion JSON and the page.

    Parameters
    ----------
    where : condition of every row (`data.condition`).
    real, blind : tables of the model's training rows, and of rows that it has not seen.

    Raises
    ------
    SettingError : n is not positive, or the condition cannot be read.
    NothingToLearn : hardly any row satisfies the condition.
    NotSupported : the model draws no rows.
    DataError : no such model or table.
    StudyError : a file exists, or cannot be written.
    """
    if n < 1:
        raise SettingError(f"--n is {n}; give a whole number of rows, from 1 up.")
    if out.suffix.lower() != ".csv":
        raise SettingError(f"--out {out}: give a file that ends in .csv.")
    if blind is not None and real is None:
        raise SettingError("--blind: give the training rows too, by --real.")
    companions = [out.with_suffix(suffix) for suffix in COMPANIONS]
    for path in (out, *companions):
        outfile.check(path, [model, *_files(real), *_files(blind)], force=force)
    parts = saved.read(model)
    drawing = Drawing.of(parts)
    condition = Condition.parse(where, drawing.dictionary) if where else None
    if condition is not None:
        _check_drawn(condition, drawing)
    tables = _tables(drawing, real, blind, seed)
    first = _write(out, drawing.chunks(n, seed, condition))
    notes: list[str] = []
    compared, lists, reference = "nothing: no real rows were given", None, None
    if tables is not None:
        train, rest, apart = tables
        if condition is not None:
            train, rest = (
                part[condition.holds(part)].reset_index(drop=True) for part in (train, rest)
            )
            notes.append("Real rows are those that satisfy the condition.")
        if min(len(train), len(rest)) < FEWEST:
            notes.append(
                f"Fewer than {FEWEST} real rows satisfy the condition, too few to compare with."
            )
        else:
            lists, reference = _compared(first, train, rest, drawing, seed, apart=apart)
            compared = f"{len(train):,} training rows and {len(rest):,} blind rows" if apart else (
                f"{len(rest):,} and {len(train):,} real rows, both of which the model may have seen"
            )  # fmt: skip
            notes.append("This page is made of real rows. Before it leaves the hospital, read it.")
            if not apart:
                notes.append("No attack on membership: it needs rows that the model has not seen.")
    about = _about(parts, drawing, n, seed, where, out, compared, notes)
    if lists is None:
        lists = shown_alone(first, drawing.dictionary, drawing.drawn)
    outfile.write(companions[0], json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    outfile.write(companions[1], report.page(about, lists, reference, VERSION))
    warnings = () if about["privacy"] else (report.NO_NOISE,)
    return Written((out, *companions), (*warnings, *about["notes"]))


def _files(table: str | None) -> list[Path]:
    return [] if table is None else [*sources.files_of(table, Path())]


def _check_drawn(condition: Condition, drawing: Drawing) -> None:
    """Refuse a condition on a column that the model does not draw."""
    for name in condition.columns:
        if name not in drawing.filled:
            raise SettingError(
                f"--where: the model draws no column {name!r}; its cells are empty in every row."
            )


def _tables(
    drawing: Drawing, real: str | None, blind: str | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame, bool] | None:
    """Return training and blind rows, and whether the model has not seen the latter."""
    if real is None:
        return None
    train = _table(drawing, real)
    if blind is not None:
        return train, _table(drawing, blind), True
    order = np.random.default_rng((seed, 0x68616C66)).permutation(len(train))
    half = len(train) // 2
    one, other = (
        train.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[:half], order[half:])
    )
    return one, other, False


def _table(drawing: Drawing, table: str) -> pd.DataFrame:
    """Return a table of real rows.

    Raises
    ------
    DataError : there is none, it lacks a column that is drawn, or it has few rows.
    """
    found = sources.load(table, Path(), dictionary=drawing.dictionary).frames
    if not isinstance(found, pd.DataFrame):
        raise DataError(f"{table}: expected one table.")
    lacking = [name for name in drawing.filled if name and name not in found.columns]
    if lacking:
        raise DataError(
            f"{table}: there is no column {lacking[0]!r} among {found.shape[1]} columns, which the "
            f"model draws. Give the table that the model was trained on, or its dictionary's names."
        )
    if len(found) < FEWEST:
        raise DataError(
            f"{table}: {len(found)} rows are too few to compare with; {FEWEST} would do."
        )
    return found


def _compared(
    virtual: pd.DataFrame,
    train: pd.DataFrame,
    blind: pd.DataFrame,
    drawing: Drawing,
    seed: int,
    *,
    apart: bool,
) -> tuple[Mapping[str, list[Row]], Mapping[str, list[Row]]]:
    """Return the lists of virtual rows, and of interpolated training rows."""
    known, outcome = drawing.dictionary, drawing.drawn
    found: list[dict[str, list[Row]]] = []
    smote = interpolated(train[[c for c in train.columns if c in known]], known, len(virtual), seed)
    for rows in (virtual, smote.reindex(columns=[*known.variables])):
        said = Comparison.of(rows, train, blind, known, outcome, seed)
        name = "virtual rows" if rows is virtual else "SMOTE rows"
        lists = shown(said, MIN_CELL, learnt_from=name)
        if not apart:
            privacy = lists["virtual_privacy"]
            kept = [r for r in privacy if not str(r["measure"]).startswith("membership")]
            lists = {**lists, "virtual_privacy": kept}
        found.append(lists)
    return found[0], found[1]


def _write(out: Path, chunks: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Write chunks as CSV; return the first `SHOWN` rows.

    Nothing is left of a file that could not be finished.
    """
    kept: list[pd.DataFrame] = []
    held = 0
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            for i, chunk in enumerate(chunks):
                cells = chunk.rename(columns=harmless)
                for name in cells.select_dtypes(include=["object"]).columns:
                    cells[name] = cells[name].map(harmless, na_action="ignore")
                cells.to_csv(
                    file, index=False, header=not i, lineterminator="\n", float_format="%.6g"
                )
                if held < SHOWN:
                    kept.append(chunk.iloc[: SHOWN - held])
                    held += len(kept[-1])
        part.replace(out)
    except OSError as error:
        raise SettingError(f"--out {out}: cannot write there ({error.strerror}).") from None
    finally:
        part.unlink(missing_ok=True)
    return pd.concat(kept, ignore_index=True)


def _about(
    parts: saved.Saved,
    drawing: Drawing,
    n: int,
    seed: int,
    where: str,
    out: Path,
    compared: str,
    notes: list[str],
) -> dict[str, Any]:
    """Return the companion of a file: how it was made, and its guarantee."""
    privacy: Any = parts.notes.get("privacy") or None
    if privacy is not None and (why := parts.model.unprotected()):
        privacy = None
        notes.insert(0, why)
    outcome, dictionary = drawing.drawn, drawing.dictionary
    empty = [name for name in dictionary.variables if name not in drawing.filled]
    if empty:
        notes.insert(0, f"The model draws no {', '.join(empty)}: these columns are empty.")
    return {
        "file": out.name,
        "virtual": True,
        "n": n,
        "method": parts.method,
        "study": parts.notes.get("study"),
        "arm": parts.notes.get("arm"),
        "seed": seed,
        "where": where or None,
        "differential_privacy": privacy is not None,
        "epsilon": privacy["epsilon"] if privacy else None,
        "delta": privacy["delta"] if privacy else None,
        "privacy": privacy,
        "said": report.privacy_words(privacy),
        "compared": compared,
        "time_unit": "" if outcome is None else outcome.time_unit(dictionary),
        "notes": notes,
        "fedcohort": VERSION,
    }
