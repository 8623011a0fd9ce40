"""One `fedcohort` command as a process that cannot outlive whoever started it.

    python party_process.py WORD...        the same as: fedcohort WORD...

On Linux the kernel kills it with the process that started it, so that a test run that is killed
leaves nothing behind; elsewhere, the harness ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent == 1:  # it was gone before the kernel was told
        os._exit(1)


if __name__ == "__main__":
    _die_with_parent()
    from fedcohort.apps.cli import main

    main()
