"""Every party of a network killed in every kind of session: every run can be resumed.

    python benchmarks/network/sessions.py [--only TEXT] [--every N]

72 cases: node, coordinator or the lead's command; the cohort, preprocessing, tuning, fit, judging
or report; masked sums and plain ones; once and twice. Four sites decide by themselves. What is done
and what must hold stands in `tests/network/struck.py`. One network serves all cases, and another
one is begun after a case that does not hold. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from network.parties import Parties
from network.struck import Broken, Scene, network, strikes


def main() -> int:
    """Let all of them happen; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--every", type=int, default=1, help="each n-th of them")
    given = parser.parse_args()
    chosen = [s for s in strikes() if given.only in s.name][:: given.every]
    good: Counter[str] = Counter()
    net: Parties | None = None
    print(f"{'party, session, how':<38} {'seconds':>7}  what happened", flush=True)
    with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
        try:
            for i, strike in enumerate(chosen):
                net = net or network(Path(folder) / str(i))
                began = time.monotonic()
                try:
                    said = Scene(net, strike).play()
                    good["masked" if strike.masked else "plain"] += 1
                except Broken as error:
                    said = f"BROKEN: {error}"
                    net.close()
                    net = None
                print(f"{strike.name:<38} {time.monotonic() - began:7.1f}  {said}", flush=True)
        finally:
            if net is not None:
                net.close()
    print(
        f"{good.total()} of {len(chosen)} cases: every run was resumed to the bytes of one "
        f"process; {good['masked']} of them with masked sums"
    )
    return int(good.total() < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
