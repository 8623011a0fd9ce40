"""A second process that draws; it starts while this one still loads its modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

#: Version of Vega-Lite that draws: equal pages need the same one.
VEGA_LITE = "6.4"
#: Drawn first, because the first drawing takes 0.4 s longer than others.
_FIRST = json.dumps({"mark": "point", "data": {"values": []}})


class Helper:
    """The process. Without it, and once it has ended, nothing is drawn here.

    Parameters
    ----------
    cores : of this machine; one alone has no second process.
    """

    def __init__(self, cores: int | None = None):
        self._process: subprocess.Popen[str] | None = None
        if (cores or os.cpu_count() or 1) > 1:
            # -P: no module beside vega.py hides one that it loads.
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(Path(__file__).with_name("vega.py"))],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"},
                )  # fmt: skip
        self._send(_FIRST)
        self._first = True

    @property
    def there(self) -> bool:
        """Whether the process was started and is not known to have ended."""
        return self._process is not None

    def svg(self, spec: str) -> str | None:
        """Return a specification's SVG; None if the process has ended."""
        if self._first:
            self._first = False
            self._receive()
        self._send(spec)
        return self._receive()

    def _send(self, spec: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(json.dumps([VEGA_LITE, spec]) + "\n")
                self._process.stdin.flush()
            except OSError:
                self.close()

    def _receive(self) -> str | None:
        if self._process is None or self._process.stdout is None:
            return None
        try:
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError):  # it ended
            self.close()
            return None

    def kill(self) -> None:
        """End the process; one that waits for its answer gets None."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.wait()
