"""Models on disk: arrays as safetensors, everything else as JSON. No pickle.

`model.safetensors` holds the model's arrays; `model.json` its method, what else it consists of,
and the preprocessing and dictionary that turn a table into its x.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

import fedcohort
from fedcohort.data.design import Design
from fedcohort.protocol import DataError, Fitted, registry

FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """What a model's folder holds."""

    method: str
    model: Fitted
    design: Design
    notes: dict[str, Any]


def folder_name(site: str) -> str:
    """Return a site's name as that of one folder: what could be a path stands as its code."""
    return re.sub(
        r"[^\w \-.]|^[. ]|[. ]$",
        lambda m: "".join(f"%{byte:02X}" for byte in m.group().encode()),
        site,
    )


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
        raise DataError(f"{folder}: no {name} there; give the folder of a saved model.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, SafetensorError, OSError) as error:
        kind = type(error).__name__
        raise DataError(f"{folder}: the saved model is damaged ({kind}).") from None
    found = text.get("format") if isinstance(text, dict) else None
    if found != FORMAT:
        raise DataError(f"{folder}: model format {found!r}; this version reads {FORMAT}.")
    try:
        model = registry.find(text["method"]).model.restore(arrays, text["model"])
        design = Design.from_json(json.dumps(text["design"]))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        kind = type(error).__name__
        raise DataError(f"{folder}: the saved model is damaged ({kind}).") from None
    return Saved(text["method"], model, design, text.get("notes", {}))
