"""The libraries and the processor that determine the last digits of a result.

Libraries choose kernels for the processor. These add the same terms in another order, so a result
differs in its last digits between processors or versions. A journal begun on one does not always
fit the other's values.
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

#: File with a run's arithmetics, in its folder `.work/`.
NOTE = "arithmetic.json"
#: Variables that a user may set to choose other kernels.
CHOICES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
)  # fmt: skip

_log = logging.getLogger(__name__)


def here(versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what determines the last digits of this process's results.

    Of several OpenBLAS NumPy's is named: others are loaded later, and may use another name for the
    same processor.
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
    """Add this machine's arithmetic to a run's folder; return whether another one was there."""
    known = seen(work)
    if known and known[-1] == now:
        return False
    write_text(work / NOTE, json.dumps([*known, now], indent=1))
    return bool(known)


def seen(work: Path) -> list[dict[str, Any]]:
    """Return all arithmetics of a run so far, in order."""
    path = work / NOTE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def begin_anew(journals: Path) -> None:
    """Remove journals of another arithmetic, and warn; finished pieces stay."""
    shutil.rmtree(journals, ignore_errors=True)
    _log.warning(
        "this run began on another kind of processor, or with other versions of libraries. "
        "Finished pieces are kept; unfinished ones begin anew. Last digits may differ from those "
        "of a run on one machine."
    )


def go_on() -> None:
    """Warn that sessions with sites go on with another arithmetic."""
    _log.warning(
        "this run began on another kind of processor, or with other versions of libraries. Last "
        "digits may differ from those of a run on one machine. If a journal no longer fits, the "
        "run ends with an error."
    )


def _maker() -> str:
    """Return the vendor of the processor, if the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("vendor_id")), "")
