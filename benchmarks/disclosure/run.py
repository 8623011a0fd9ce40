"""The attack of tests/published.py on many random studies: hidden counts that differences tell.

    OMP_NUM_THREADS=1 python benchmarks/disclosure/run.py [--studies 200] [--first 0] [--out FILE]

A third of the studies is of survival, one of a yes/no outcome and one of a whole number, each over
three to five hospitals of 3 to 40 patients. Leaves with 1 where any count that is hidden, or of 1
to 4, is recovered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from book import asks_out, keep

from fedcohort.protocol import FedcohortError
from published import attack, publish

TASKS = ("survival", "classification", "regression")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    asks_out(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells, recovered, refused = Counter(), Counter(), 0
    for i in range(options.studies):
        task, seed = TASKS[i % len(TASKS)], options.first + i // len(TASKS)
        with tempfile.TemporaryDirectory() as folder:
            try:
                study = publish(Path(folder), seed, task)
            except FedcohortError:
                refused += 1
                continue
            found = attack(Path(folder), study)
            cells.update(name[0] for name in found.cells)
            recovered.update(name[0] for name in found.recovered())
    print(f"{options.studies - refused} studies, {refused} refused")
    for kind, n in cells.items():
        print(f"{kind:16} {n:6} hidden or 1 to 4, {recovered[kind]} recovered")
    print(
        f"{'all':16} {cells.total():6} hidden or 1 to 4, {recovered.total()} recovered; accepted 0"
    )
    figures = {"hidden": cells.total(), "recovered": recovered.total(), "refused": refused}
    keep(options.out, {f"studies_{options.studies}": figures})
    return int(recovered.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
