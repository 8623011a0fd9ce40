"""The block `governance:` of a study file: answers for a data-protection officer.

    governance:
      purpose: A prognostic score for node-positive breast cancer
      legal_basis: Art. 9(2)(j) GDPR, research
      ethics: EK 2026-114
      recipients: [Charité Berlin, University of Bern]
      retention: models and report ten years, replies until the study ends

All keys are optional text. They are sent with the study, signed by its lead, approved by a steward,
and shown on the approval page, in results.json and in the report.

Revealed: nothing; this module reads text.
"""

from __future__ import annotations

from typing import Any, cast

from fedcohort.report.words import GOVERNANCE
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.yamlfile import Where

KEYS = tuple(GOVERNANCE)
#: Largest number of characters of a text.
LONGEST = 400
_HERE: Where = ("governance",)


def read(reader: Reader) -> dict[str, str]:
    """Return the block's texts, each as one line, in the order of `KEYS`.

    Raises
    ------
    StudyError : an unknown key, no text, or one that is too long or not printable.
    """
    given = reader.mapping(_HERE, KEYS)
    return {key: _line(reader, key, given[key]) for key in KEYS if key in given}


def _line(reader: Reader, key: str, value: object) -> str:
    where: Where = (*_HERE, key)
    items = cast("list[Any]", value) if isinstance(value, list) and value else None
    if items is not None:
        parts = [reader.text((*where, i)) for i in range(len(items))]
    else:
        parts = [reader.text(where)]
    line = ", ".join(" ".join(part.split()) for part in parts)
    if not line.strip() or len(line) > LONGEST or not line.isprintable():
        raise reader.doc.error(where, f"expected text, from 1 to {LONGEST} printable characters.")
    return line
