"""Which arithmetic computes here: what the last digits of a result depend on.

Libraries take kernels that suit the processor. They add the same terms in another order, so that a
result differs in its last digits from one kind of processor, or version, to another; and a journal
that was begun on the one does not always fit what is computed on the other.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_info

from fedcohort.study.run.pieces import write_text

#: Where a run's folder for unfinished business has what computed in it.
NOTE = "arithmetic.json"
#: What a user may set to take other kernels.
CHOICES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
)  # fmt: skip

_log = logging.getLogger(__name__)


def here(versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what the last digits of this process's results depend on.

    Of several OpenBLAS that of NumPy is named: others are loaded sooner or later, and may call the
    same processor by another name.

    Parameters
    ----------
    versions : of the libraries.
    """
    built = cast("dict[str, Any]", np.show_config(mode="dicts"))
    blas = [i for i in threadpool_info() if i["internal_api"] == "openblas"]
    own = [i for i in blas if Path(i["filepath"]).parent.name.startswith("numpy")] or blas
    return {
        "processor": f"{platform.machine()} {_maker()}".strip(),
        "instructions": built.get("SIMD Extensions", {}).get("found", []),
        "blas": sorted({str(i.get("architecture")) for i in own}),
        "chosen": {name: os.environ[name] for name in CHOICES if name in os.environ},
        "versions": dict(versions),
    }


def note(work: Path, now: Mapping[str, Any]) -> bool:
    """Note in a run's folder what computes; return whether something else did before."""
    known = seen(work)
    if known and known[-1] == now:
        return False
    write_text(work / NOTE, json.dumps([*known, now], indent=1))
    return bool(known)


def seen(work: Path) -> list[dict[str, Any]]:
    """Return all that has computed in a run, in order."""
    path = work / NOTE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def begin_anew(journals: Path) -> None:
    """Forget pieces that another arithmetic began, and say so; those that it finished stay."""
    shutil.rmtree(journals, ignore_errors=True)
    _log.warning(
        "this run began on another kind of processor, or with other versions of libraries: pieces "
        "that it finished are kept, those under way begin anew. Last digits may differ from those "
        "of a run on one machine."
    )


def go_on() -> None:
    """Say that sessions with sites go on by another arithmetic: unasked they cannot begin anew."""
    _log.warning(
        "this run began on another kind of processor, or with other versions of libraries. Last "
        "digits may differ from those of a run on one machine; and where a journal does not fit "
        "any more, the run ends and says so."
    )


def _maker() -> str:
    """Return who made the processor, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("vendor_id")), "")
