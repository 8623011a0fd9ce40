"""Conversion of a data dictionary between formats; the docs list what each cannot express."""

from __future__ import annotations

from pathlib import Path

from fedcohort.data.read import dictionaries, frictionless
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.protocol.errors import StudyError


def convert(dictionary: Path, out: Path, *, force: bool = False) -> Path:
    """Write a data dictionary as YAML, or as a Frictionless Table Schema; return its path.

    Raises
    ------
    DataError : the dictionary cannot be read.
    StudyError : `out` has another suffix, exists, or cannot be written.
    """
    if out.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise StudyError(f"{out}: a dictionary is written as .yaml, .yml or .json.")
    found = read_dictionary(dictionary)
    if out.exists() and not force:
        raise StudyError(f"{out} exists. Name another file, or replace it by --force.")
    try:
        if out.suffix.lower() == ".json":
            frictionless.write(found, out)
        else:
            out.write_text(dictionaries.text(found), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{out}: cannot write there ({error.strerror}).") from None
    return out
