"""Models on disk: arrays as safetensors, everything else as JSON. No pickle.

`model.safetensors` holds the model's arrays; `model.json` its method, what else it consists of,
the preprocessing that turns a table into its x, and the dictionary of the columns that it reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

import fedcohort
from fedcohort.arrays import Array
from fedcohort.data.design import Design
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival
from fedcohort.protocol import DataError, Fitted, registry

FORMAT = 2

#: An error names so many folders of models, and counts the others.
NAMED = 6

#: Round steps between times: of days, weeks, months, quarters and years where the unit is days.
DAYS = (1, 2, 7, 14, 30, 91, 182, 365, 730, 1825, 3650)


@dataclass(frozen=True)
class Saved:
    """What a model's folder holds.

    Attributes
    ----------
    method : its name in the catalogue.
    model, design : the fitted method, and the preprocessing before it.
    dictionary : of the columns that the design reads, and of the outcome.
    notes : what else is known; `times` are those at which survival is shown by default.
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
        """Return what to keep of a fit, with the part of the study's dictionary that it needs.

        A raw method has no design, and keeps all of the dictionary.
        """
        outcome = design.outcome
        used = {name for c in design.columns for name in (c.name, c.variable.since) if name}
        used |= {design.offset, design.strata, *(outcome.columns if outcome is not None else ())}
        raw = not design.columns
        known = {k: v for k, v in dictionary.variables.items() if raw or k in used}
        times: dict[str, Any] = {}
        if isinstance(outcome, Survival) and "times" in (arrays := model.arrays()):
            unit = known[outcome.time].unit if outcome.time in known else ""
            times = {"times": round_times(arrays["times"], unit)}
        return cls(method, model, design, replace(dictionary, variables=known), {**times, **notes})


def round_times(grid: Array, unit: str) -> list[float]:
    """Return three round times, or fewer, up to the last of a survival curve's `grid` (T,).

    A curve falls at its grid's times alone, so survival is the same for none of two times, and is
    1 for everybody at none: where the grid is coarse, times are less round.
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


def write(folder: Path, saved: Saved) -> None:
    """Write a model into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {k: np.asarray(a, order="C") for k, a in saved.model.arrays().items()}
    (folder / "model.safetensors").write_bytes(save(arrays))
    text = {
        "format": FORMAT,
        "fedcohort": fedcohort.__version__,
        "method": saved.method,
        "model": saved.model.meta(),
        "design": json.loads(saved.design.to_json()),
        "dictionary": saved.dictionary.to_dict(),
        "notes": saved.notes,
    }
    body = json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "model.json").write_text(body + "\n", encoding="utf-8")


def read(folder: Path) -> Saved:
    """Read a model's folder.

    Raises
    ------
    DataError : a file is missing, damaged, or of another format.
    SettingError : the method is not installed here.
    """
    try:
        text: Any = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        arrays = load_file(folder / "model.safetensors")
    except FileNotFoundError as error:
        name = Path(error.filename or "model.safetensors").name
        raise DataError(f"{folder}: no {name} there. Give {_models_below(folder)}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, SafetensorError, OSError) as error:
        kind = type(error).__name__
        raise DataError(f"{folder}: the saved model is damaged ({kind}).") from None
    found = text.get("format") if isinstance(text, dict) else None
    if found != FORMAT:
        raise DataError(f"{folder}: model format {found!r}; this version reads {FORMAT}.")
    try:
        model = registry.find(text["method"]).model.restore(arrays, text["model"])
        design = Design.from_json(json.dumps(text["design"]))
        dictionary = Dictionary.from_dict(text["dictionary"], f"{folder}: model.json")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        kind = type(error).__name__
        raise DataError(f"{folder}: the saved model is damaged ({kind}).") from None
    return Saved(text["method"], model, design, dictionary, text.get("notes", {}))


def _models_below(folder: Path) -> str:
    """Say which folder of a model to give: those that lie in this one, if any do."""
    found = sorted(p.parent for p in folder.rglob("model.json"))
    found = [p for p in found if p.parent not in found]  # one within a model's is for audits
    if not found or found == [folder]:
        return "the folder of a saved model, such as runs/STUDY/models/ARM"
    named = ", ".join(p.as_posix() for p in found[:NAMED])
    more = f" or {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"a model's own folder: {named}{more}" if len(found) > 1 else f"{named}, the model there"
