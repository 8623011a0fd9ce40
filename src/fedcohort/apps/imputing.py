"""`fedcohort impute`: a table with its missing cells filled by a model of a study.

The file is written anew cell by cell: known cells keep every character, and only missing ones get a
value, with the file's separator and decimal mark. A column that was constant in the training rows
is no part of the model: its missing cells get the one value that the file has there. Beside it a
JSON file tells which method filled how many cells of which column, without any value.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedcohort.data.prepare import CONSTANT
from fedcohort.data.read import sources
from fedcohort.data.read.csvcells import harmless, with_commas
from fedcohort.data.read.rawcells import raw_cells
from fedcohort.protocol import registry
from fedcohort.protocol.errors import DataError, NotSupported, StudyError
from fedcohort.study.api import Fit, load
from fedcohort.version import VERSION

#: Digits of a filled number that matter.
DIGITS = 6
#: Ways of the preprocessing that fill a column by one value.
CONSTANTS = ("mean", "median", "most_frequent", "indicator")
#: Folder of default runs.
RUNS = Path("runs")


@dataclass(frozen=True)
class Filled:
    """The filled tables as CSV text, the companion file, and one line each for the screen.

    `warning` says which cells stay empty; "" if none does.
    """

    texts: tuple[str, ...]
    about: str
    line: str
    warning: str


def model_of(study: Path, arm: str | None) -> Path:
    """Return the folder of the model that fills: of a study file, a run's folder, or a model's.

    Raises
    ------
    DataError : there is no run, or no such model.
    NotSupported : no arm of the run has a model that fills missing values.
    """
    if (study / "model.json").is_file():
        return study
    folder = study if study.is_dir() else _run_of(study)
    models = sorted(path.parent for path in (folder / "models").glob("*/model.json"))
    if not models:
        raise DataError(f"{folder}: no saved model is there. Give the folder of a finished run.")
    if arm is not None:
        named = {path.name: path for path in models}
        if arm not in named:
            raise DataError(f"{folder}: no model of arm {arm!r}; there are {', '.join(named)}.")
        return named[arm]
    for path in models:
        if "impute" in registry.find(_method(path)).gives:
            return path
    known = [n for n in registry.names() if "impute" in registry.find(n).gives]
    raise NotSupported(
        f"{folder}: no arm fills missing values ({', '.join(p.name for p in models)}). Add an arm "
        f"of {', '.join(known)}."
    )


def _run_of(study: Path) -> Path:
    """Return the folder of the latest run of a study file."""
    from fedcohort.study.study import Study

    name = Study.from_file(study).plan.study
    made = [p for p in RUNS.glob(f"{name}*") if (p / "models").is_dir()]
    made = [p for p in made if p.name == name or p.name[len(name) + 1 :].isdigit()]
    if not made:
        raise DataError(
            f"{study}: no finished run is in {RUNS}. Run it first (fedcohort run {study}), or give "
            f"the folder of its run."
        )
    return max(made, key=lambda p: (p / "models").stat().st_mtime)


def _method(model: Path) -> str:
    return str(json.loads((model / "model.json").read_text("utf-8")).get("method"))


def places(out: Path | None, multiple: int | None) -> list[Path]:
    """Return the files to write: the tables, then their companion; none for the screen.

    Raises
    ------
    StudyError : several tables, or a companion's own name, without a file name.
    """
    if out is None:
        if multiple:
            raise StudyError("--multiple: several tables need files; name them by --out.")
        return []
    if out.suffix.lower() == ".json":
        raise StudyError(f"--out {out}: its companion has that name. Let it end in .csv.")
    numbers = range(1, multiple + 1) if multiple else ()
    tables = [out.with_name(f"{out.stem}-{m}{out.suffix}") for m in numbers] or [out]
    return [*tables, out.with_suffix(".json")]


def filled(model: Path, table: Path, multiple: int | None, seed: int) -> Filled:
    """Fill the missing cells of a CSV file.

    Parameters
    ----------
    multiple : number of tables of draws; None for one table of means and likeliest levels.

    Raises
    ------
    DataError : a column is missing or cannot be read, the file is no plain CSV, or the
        preprocessing fills before the method.
    NotSupported : the method does not fill, or does not draw.
    """
    fit = load(model)
    if (fills := fit.parts.design.impute) in CONSTANTS:
        raise DataError(
            f"{model}: its preprocessing fills every missing value of a column by the same one "
            f"(impute: {fills}), so that {fit.method!r} fills none. Run the study without impute."
        )
    header, cells, separator = raw_cells(table)
    source = sources.load(str(table), Path(), dictionary=fit.parts.dictionary)
    if not isinstance(source.frames, pd.DataFrame) or len(source.frames) != len(cells):
        raise DataError(f"{table}: its rows cannot be told apart. Save it as plain CSV in UTF-8.")
    known = {c.name for c in fit.parts.design.columns if not c.variable.view}
    if lacking := sorted(known - {*map(str, source.frames.columns)}):
        raise DataError(
            f"{table}: there is no column {lacking[0]!r}, which the model has. To have it filled, "
            f"add it with empty cells; otherwise check its name."
        )
    try:
        if multiple:
            whole = [fit.impute_drawn(source.frames, seed + m) for m in range(multiple)]
        else:
            whole = [fit.impute(source.frames)]
        gone = _gone(fit, source.frames)
    except DataError as error:
        raise DataError(f"{table}: {error}") from None
    constant, empty = _beside_model(fit, source.frames)
    cells = _with_constants(header, cells, constant)
    counts = {name: int(rows.sum()) for name, rows in (gone | constant).items() if rows.any()}
    texts = [_written(header, cells, frame, gone, separator) for frame in whole]
    about = {
        "fedcohort": VERSION, "method": fit.method, "model": model.name, "rows": len(cells),
        "drawn_tables": multiple or 0, "filled_cells": counts,
        "empty_cells": {name: n for name, (n, _) in empty.items()},
        "added_columns": [name for name in gone if name not in header],
        **({"seed": seed} if multiple else {}),
    }  # fmt: skip
    total = sum(counts.values())
    line = f"{table}: {total:,} cells filled in {len(counts)} columns, of {len(cells):,} rows."
    plain = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    left = ", ".join(f"{name!r} ({n:,}, {why})" for name, (n, why) in empty.items())
    warning = f"{table}: cells stay empty in columns that the model does not fill: {left}."
    return Filled(tuple(texts), plain, line, warning if empty else "")


def _gone(fit: Fit, frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Return which rows (n,) lack each column of the model."""
    design = fit.parts.design
    read = fit.canonical(frame)
    columns = [c.name for c in design.columns if not c.variable.since]
    every = pd.Series(True, index=read.index)
    return {n: read[n].isna() if n in read.columns else every for n in dict.fromkeys(columns)}


def _beside_model(
    fit: Fit, frame: pd.DataFrame
) -> tuple[dict[str, pd.Series], dict[str, tuple[int, str]]]:
    """Return missing cells of columns that are no part of the model.

    Returns
    -------
    constant : column with one value, which was constant in training → rows (n,) to fill with it.
    empty : any other column → number of missing cells, and why they stay so. Identifiers and free
        text are left out.
    """
    design, read = fit.parts.design, fit.canonical(frame)
    known = {c.name for c in design.columns if not c.variable.since}
    constant: dict[str, pd.Series] = {}
    empty: dict[str, tuple[int, str]] = {}
    for name in dict.fromkeys([*design.dropped, *fit.parts.dictionary.variables]):
        why = design.dropped.get(name, "not filled by this model")
        if name in known or name not in read.columns or why in ("identifier", "text"):
            continue
        missing, values = read[name].isna(), read[name].nunique()
        if not missing.any():
            continue
        if why == CONSTANT and values == 1:
            constant[name] = missing
        else:
            here = f" in training, {values} values here" if why == CONSTANT else ""
            empty[name] = int(missing.sum()), why + here
    return constant, empty


def _with_constants(
    header: Sequence[str], cells: Sequence[Sequence[str]], constant: dict[str, pd.Series]
) -> list[list[str]]:
    """Return the cells, with missing ones of each constant column as its known ones are written."""
    out = [[*row] for row in cells]
    for name, missing in constant.items():
        at = header.index(name)
        text = out[int(missing.argmin())][at]
        for i in missing.to_numpy().nonzero()[0].tolist():
            out[i][at] = text
    return out


def _written(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    whole: pd.DataFrame,
    gone: dict[str, pd.Series],
    separator: str,
) -> str:
    """Return the CSV text of the cells, with missing ones from `whole`."""
    added = [name for name in gone if name not in header]
    out = [[*row, *[""] * len(added)] for row in cells]
    names = [*header, *added]
    for name, missing in gone.items():
        at, commas = names.index(name), False
        if name in header:
            commas = bool(with_commas({row[at].strip() for row in cells}))
        for i in missing.to_numpy().nonzero()[0].tolist():
            out[i][at] = _shown(whole[name].iloc[i], commas=commas)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerows([[*header, *map(harmless, added)], *out])
    return text.getvalue()


def _shown(value: Any, *, commas: bool) -> str:
    if isinstance(value, str):
        return harmless(value)
    number = float(value)
    text = f"{number:.0f}" if number.is_integer() else f"{number:.{DIGITS}g}"
    return text.replace(".", ",") if commas else text
