"""What a site keeps between calls, on disk: call number, reply and state, together.

One file a site, replaced atomically. A call that is asked twice (the coordinator died between a
site's reply and its own journal) is answered from the file and not applied again.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedcohort.arrays import Array
from fedcohort.protocol.host import Answer
from fedcohort.protocol.wire import decode, encode


class StateStore:
    """The latest stateful answer of each site, in a folder."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, site: str, call: int, answer: Answer) -> None:
        """Keep an answer that changed the site's state."""
        named = {f"reply/{k}": a for k, a in answer.reply.items()}
        named |= {f"state/{k}": a for k, a in (answer.state or {}).items()}
        fresh = self._path(site).with_suffix(".new")
        fresh.write_bytes(encode(named, {"call": call}))
        os.replace(fresh, self._path(site))

    def load(self, site: str) -> tuple[int, Answer] | None:
        """Return the latest call that changed the site's state, and its answer."""
        path = self._path(site)
        if not path.exists():
            return None
        arrays, meta = decode(path.read_bytes())
        parts: dict[str, dict[str, Array]] = {"reply": {}, "state": {}}
        for name, a in arrays.items():
            kind, _, key = name.partition("/")
            parts[kind][key] = a
        return int(meta["call"]), Answer(parts["reply"], parts["state"])

    def forget(self, site: str) -> None:
        """Remove what is kept of a site: a new run begins."""
        self._path(site).unlink(missing_ok=True)

    def _path(self, site: str) -> Path:
        return self._folder / f"{site.encode().hex()}.state"
