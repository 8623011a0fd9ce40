"""One `fedcohort` command as a process that cannot outlive whoever started it.

    python party_process.py WORD...        the same as: fedcohort WORD...

On Linux the kernel kills it with the process that started it, so that a test run that is killed
leaves nothing behind; elsewhere, the harness ends it. FEDCOHORT_TEST_VERSION is the version that
the process takes itself for. Where FEDCOHORT_TEST_WIRE names a folder, the
bodies of all messages that the process seals are kept in a file there, as they are before.
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


def _keep_bodies(folder: str) -> None:
    from fedcohort.secure.channel.seal import Sealing

    file = open(os.path.join(folder, str(os.getpid())), "ab")  # noqa: SIM115 - until the end
    seal = Sealing.seal

    def kept(self: Sealing, which: bytes, counter: int, body: bytes) -> bytes:
        file.write(bytes(body))
        file.flush()
        return seal(self, which, counter, body)

    Sealing.seal = kept


if __name__ == "__main__":
    _die_with_parent()
    if "FEDCOHORT_TEST_VERSION" in os.environ:
        from fedcohort import version

        version.VERSION = os.environ["FEDCOHORT_TEST_VERSION"]
    if "FEDCOHORT_TEST_WIRE" in os.environ:
        _keep_bodies(os.environ["FEDCOHORT_TEST_WIRE"])
    from fedcohort.apps.cli import main

    main()
