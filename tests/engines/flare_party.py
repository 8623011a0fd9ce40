"""One party in its own process: python flare_party.py hub|echo|slow|idle KIT (as JSON)."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path

from engines.certs import Kit
from fedcohort.engines.flare import Hub, Spoke


def read(text: str) -> Kit:
    """Read what `write` made."""
    found = json.loads(text)
    for key in ("root", "certificate", "key"):
        found[key] = Path(found[key])
    return Kit(**{**found, "sites": tuple(found["sites"]), "revoked": frozenset(found["revoked"])})


def write(kit: Kit) -> str:
    """Write a kit as text."""
    return json.dumps(
        {k: sorted(v) if isinstance(v, frozenset) else v for k, v in vars(kit).items()}, default=str
    )


def slow(body: bytes) -> bytes:
    """Answer after a minute."""
    time.sleep(60)
    return body


def main(what: str, kit: Kit) -> None:
    """Run until killed; `idle` leaves at once, without stopping its end."""
    log = logging.getLogger("party")
    end = (
        Hub(kit, lambda b: b"hub:" + b, log)
        if what == "hub"
        else Spoke(kit, {"echo": bytes, "slow": slow, "idle": bytes}[what], log)
    )
    end.start()
    if what == "idle":
        while not end.connected:
            time.sleep(0.01)
        print("ready", flush=True)
        return
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], read(sys.argv[2]))
