"""The attack of tests/described.py on many random descriptions: counts that differences tell.

    OMP_NUM_THREADS=1 python benchmarks/disclosure/describe.py [--queries 500] [--first 0]

Two or three sites of 6 to 90 rows are described by group of one column and by group of another:
two queries of the same patients, and the attacker has both. Besides, all tables of few rows are
enumerated, for an attacker who knows the rule. Leaves with 1 where a small count is recovered.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import fedcohort as fc
from described import Attack, cohort, enumerated, random_sites

#: Of enumerated tables: min_cell, levels, groups, most rows.
TABLES = ((5, 2, 2, 24), (3, 3, 2, 12), (3, 2, 3, 12), (4, 3, 2, 12))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    options = parser.parse_args()
    small = recovered = shown = 0
    for seed in range(options.first, options.first + options.queries // 2):
        frames = random_sites(seed)
        fed = cohort(frames)
        attack = Attack(frames)
        for by in ("a", "b"):
            model = fc.fit("describe", fed, by=by, correlation=False).model
            shown += sum(0 < (line["count"] or 0) < 5 for line in model.table)
            attack.read(model)
        n, found = attack.recovered()
        small, recovered = small + n, recovered + found
    print(
        f"{options.queries} queries, {small} counts of 1 to 4: {shown} shown, {recovered} recovered"
    )
    told = 0
    for m, levels, groups, rows in TABLES:
        n, pinned = enumerated(m, levels, groups, rows)
        told += pinned
        print(
            f"all tables of {levels} by {groups}, up to {rows} rows, min_cell {m}: {n} counts "
            f"below it, {pinned} recovered"
        )
    return int(shown + recovered + told > 0)


if __name__ == "__main__":
    sys.exit(main())
