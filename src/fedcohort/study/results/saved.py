"""Models on disk: arrays as safetensors, everything else as JSON. No pickle.

`model.safetensors` holds the model's arrays; `model.json` its method and other parts, the
preprocessing from a table to its x, the dictionary of its columns, the SHA-256 of
`model.safetensors`, and the names of arrays with unknown entries (NaN). All other numbers are
finite. The hash detects damaged or exchanged files. It does not show who made them: anyone who can
write both files can write any model.

A model may have more files, in formats of other programs (`Fitted.files`). They are not read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.imputing.pooled import restored
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.prepare import Design
from fedcohort.protocol import DataError, Fitted, registry
from fedcohort.study.kinds import Kind
from fedcohort.version import VERSION

FORMAT = 3

#: Note with the outcome whose columns are features of a model, as `Outcome.to_dict`.
OUTCOME = "outcome"

#: Largest sizes of a model's files, in bytes.
LARGEST = {"model.json": 2**26, "model.safetensors": 2**32}

#: Names of a model's further files.
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: Largest number of default times of predicted survival.
TIMES = 100

#: Number of model folders that an error names; it counts the others.
NAMED = 6

#: Round steps between times: of days, weeks, months, quarters and years where the unit is days.
DAYS = (1, 2, 7, 14, 30, 91, 182, 365, 730, 1825, 3650)


@dataclass(frozen=True)
class Saved:
    """Content of a model's folder.

    Attributes
    ----------
    model, design : the fitted method, and its preprocessing.
    dictionary : of the columns that the design reads, and of the outcome.
    notes : other facts; `times` are the default times of predicted survival.
    """

    method: str
    model: Fitted
    design: Design
    dictionary: Dictionary
    notes: dict[str, Any]

    @classmethod
    def of(
        cls,
        method: str,
        model: Fitted,
        design: Design,
        dictionary: Dictionary,
        notes: Mapping[str, Any],
    ) -> Self:
        """Return the parts of a fit to save, with its part of the study's dictionary.

        A raw method has no design, and keeps the whole dictionary; so does a model of virtual
        patients, whose rows have all its columns.
        """
        outcome = design.outcome
        used = {name for c in design.columns for name in (c.name, c.variable.since) if name}
        used |= {design.offset, design.strata, *(outcome.columns if outcome is not None else ())}
        raw = not design.columns or OUTCOME in notes
        known = {k: v for k, v in dictionary.variables.items() if raw or k in used}
        times: dict[str, Any] = {}
        if isinstance(outcome, Survival) and "times" in (arrays := model.arrays()):
            times = {"times": round_times(arrays["times"], outcome.time_unit(dictionary))}
        return cls(method, model, design, replace(dictionary, variables=known), {**times, **notes})


def outcome_note(kind: Kind, outcome: Outcome | None) -> dict[str, Any]:
    """Return the note on an outcome whose columns are features; empty in other kinds of task."""
    return {OUTCOME: {} if outcome is None else outcome.to_dict()} if kind.joint else {}


def round_times(grid: Array, unit: str) -> list[float]:
    """Return up to three round times, at most the last of a survival curve's `grid` (T,).

    A curve falls only at its grid's times. Survival differs between the returned times, and is not
    1 for everybody; so times are less round if the grid is coarse.
    """
    last = float(grid[-1]) if len(grid) else 0.0
    if last <= 0:
        return []
    power = 10.0 ** math.floor(math.log10(last / 3))
    steps = [step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)]
    if unit == "days":
        steps = [float(d) for d in DAYS]
    found: list[float] = []
    for step in reversed([s for s in steps if 3 * s <= last] or steps[:1]):
        times = step * np.arange(1, math.floor(last / step) + 1)
        falls, first = np.unique(np.searchsorted(grid, times, side="right"), return_index=True)
        differ = times[first[falls > 0]][:3].tolist()
        found = max(found, differ, key=len)
        if len(found) == 3:
            break
    return found or [last]


def write(folder: Path, saved: Saved) -> tuple[str, ...]:
    """Write a model into a folder; return the names of its files, `model.json` last.

    The folder is made if needed.

    Raises
    ------
    ValueError : the method gives a file a name that is taken, or that is no plain name.
    """
    more = saved.model.files()
    for name in more:
        if name in (*LARGEST, "card.md") or not PLAIN.fullmatch(name):
            raise ValueError(f"a model cannot have a file {name!r}; give it another name.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in more.items():
        (folder / name).write_bytes(content)
    arrays = {k: np.asarray(a, order="C") for k, a in saved.model.arrays().items()}
    body = save(arrays)
    (folder / "model.safetensors").write_bytes(body)
    text = {
        "format": FORMAT,
        "fedcohort": VERSION,
        "sha256": hashlib.sha256(body).hexdigest(),
        "unknown": sorted(k for k, a in arrays.items() if _odd(a)),
        "method": saved.method,
        "model": saved.model.meta(),
        "design": json.loads(saved.design.to_json()),
        "dictionary": saved.dictionary.to_dict(),
        "notes": saved.notes,
    }
    plain = json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "model.json").write_text(plain + "\n", encoding="utf-8")
    return (*more, "model.safetensors", "model.json")


def read(folder: Path) -> Saved:
    """Read a model's folder.

    Raises
    ------
    DataError : a file is missing, damaged, too large, not a regular file, or of another format; or
        a number of the model is not finite.
    SettingError : the method is not installed here.
    """
    try:
        text: Any = json.loads(
            _body(folder, "model.json").decode(), parse_float=_finite, parse_constant=_finite
        )
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, error) from None
    found = text.get("format") if isinstance(text, dict) else None
    if found != FORMAT:
        raise DataError(f"{folder}: model format {found!r:.40}; this version reads {FORMAT}.")
    body = _body(folder, "model.safetensors")
    if text.get("sha256") != hashlib.sha256(body).hexdigest():
        raise DataError(
            f"{folder}: model.safetensors is not the file that model.json was saved with (its "
            f"SHA-256 differs). Copy the whole folder again."
        )
    try:
        arrays = load(body)
        if odd := sorted({k for k, a in arrays.items() if _odd(a)} - {*text["unknown"]}):
            raise DataError(f"{folder}: the saved model is damaged: {odd[0]!r} is not finite.")
        model = restored(registry.find(text["method"]).model, arrays, text["model"])
        design = Design.from_json(json.dumps(text["design"]))
        dictionary = Dictionary.from_dict(text["dictionary"], f"{folder}: model.json")
        notes = dict(text.get("notes", {}))
        times: Any = notes.get("times", [])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, SafetensorError,
            OverflowError) as error:  # fmt: skip
        raise _damaged(folder, error) from None
    if not isinstance(times, list) or len(times) > TIMES or not all(map(_is_time, times)):
        raise DataError(
            f"{folder}: model.json: notes.times is not a list of {TIMES} positive numbers or "
            f"fewer. Shorten it; predict takes other times by --times."
        )
    return Saved(text["method"], model, design, dictionary, notes)


def _body(folder: Path, name: str) -> bytes:
    """Return the content of a model's file.

    Raises
    ------
    DataError : it is missing, not a regular file (a device, a pipe), too large, or cannot be read.
    """
    path = folder / name
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise DataError(f"{folder}: {name} is no file.")
        if about.st_size > LARGEST[name]:
            raise DataError(
                f"{folder}: {name} has {about.st_size:,} bytes; a model has {LARGEST[name]:,} at "
                f"most."
            )
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{folder}: no {name} there. Give {_models_below(folder)}.") from None
    except OSError as error:
        raise _damaged(folder, error) from None


def _damaged(folder: Path, error: Exception) -> DataError:
    return DataError(f"{folder}: the saved model is damaged ({type(error).__name__}).")


def _finite(text: str) -> float:
    """Return the number in a JSON text; NaN and infinity are errors."""
    if not math.isfinite(x := float(text)):
        raise ValueError("a number is not finite")
    return x


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= sys.float_info.max


def _odd(a: Array) -> bool:
    return a.dtype.kind == "f" and not bool(np.isfinite(a).all())


def _models_below(folder: Path) -> str:
    """Return a hint which model folder to give: those below this one, if any."""
    found = sorted(p.parent for p in folder.rglob("model.json"))
    found = [
        p for p in found if p.parent not in found
    ]  # a model inside a model's folder: for audits
    if not found or found == [folder]:
        return "the folder of a saved model, such as runs/STUDY/models/ARM"
    named = ", ".join(p.as_posix() for p in found[:NAMED])
    more = f" or {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"a model's own folder: {named}{more}" if len(found) > 1 else f"{named}, the model there"
