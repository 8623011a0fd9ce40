"""One site in its own process: python flower_node.py KIT [slow]; gives all back, reversed."""

from __future__ import annotations

import sys
import threading
import time

from fedcohort.engines.flower import Spoke
from fedcohort.network.kits.make import Kit


def main(kit: str, slow: bool) -> None:
    """Answer until killed."""

    def answer(body: bytes) -> bytes:
        time.sleep(60 if slow else 0)
        return body[::-1]

    Spoke(Kit.read(kit), answer).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], "slow" in sys.argv)
