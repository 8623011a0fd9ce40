"""Multi-view PPCA over sites: table 6 of Balelli et al. (2022), WAIC, real tables, time, DP.

    OMP_NUM_THREADS=1 python benchmarks/mv_ppca/run.py --out DIR [--parts table prox waic real
        speed private] [--repeats 10] [--methods ppca …] [--mds FILE] [--adni FILE]

Each finished configuration is a line of `DIR/runs.jsonl` and is not run again; `python
benchmarks/mv_ppca/show.py --out DIR` prints the tables and the claims. All fits go through
`fc.simulate` and `fc.fit`, with the methods' own scaling unless said otherwise.

table    400 rows, views of 15, 8 and 10 columns, q 5, 250 rows shifted; ten tables (`--repeats`) of
         three folds each, a third for tests, the training rows over sites by the paper's scenarios.
         multi-view PPCA as it is here, with a noise of each view, and as in the paper (random
         start, spread of modes, all rounds; at one place 800 iterations); VAE and mc-VAE as the
         paper trains them, and better (rate 0.01, falling as a cosine); factor analysis of
         all training rows; and in K and G/K multi-view PPCA of the sites' rows at one place. Errors
         are in ranges of the training rows' columns. The paper does not say how much noise its
         rows have: with "paper" it is such that the pooled fit's error is that of its table;
         "quiet" (multi-view PPCA alone) are the simulator's defaults.
prox     The autoencoders with FedProx, λ 0.01 to 0.5, in scenario G.
waic     q of 2 to 8 by WAIC, three sites, IID, on rows as they are drawn, in ranges of the columns,
         and in standard deviations; one noise for a view, or for a column.
real     A view taken away from test rows and filled, in standard deviations: breast cancer of
         scikit-learn; with `--mds` the IWG-PM's cohort, with `--adni` an ADNI-like table; scenarios
         G, K and G/K at 3 and 6 sites. Multi-view PPCA with q by WAIC; mc-VAE; and at one place the
         columns' means, ridge regression on the other views, and chained equations.
speed    CPU seconds of a round, three sites, of 1e3 to 1e6 rows.
private  Fits with an ε of 0.5 to 100 over all that they release, three sites, IID and G/K, by one
         noisy sum (`moments`) and by 5, 20 and 100 rounds of noise (`differences`); beside fits
         without noise, columns' means, and random combinations of the columns; what the paper's
         budget of a round composes to. 400 and 4,000 simulated rows, and breast cancer.

CPU time on one thread, from single configurations: `table` 2.7 hours (20 minutes of them multi-view
PPCA), `prox` 2 hours, `waic` 9 minutes (20 on a busy machine), `speed` 2 minutes; `real` 20 minutes
of each repeat for breast cancer and for the ADNI-like table, 1.3 hours for MDS: `--repeats 2`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cohorts import AT_ONE_PLACE, adni, breast_cancer, mds
from fits import FOLDS, NOISE, Size
from private import CASES, EPSILONS, ROUTES, private
from real import CELLS, IMPUTERS, real
from simulations import FACTORS, METHODS, prox, table, waic
from speed import speed

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

PARTS = ("table", "prox", "waic", "real", "speed", "private")
ROWS = (1_000, 10_000, 100_000, 1_000_000)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    several: dict[str, Any] = {"nargs": "+"}
    methods, imputers = [*METHODS, FACTORS], [*IMPUTERS, *AT_ONE_PLACE]
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--parts", **several, default=list(PARTS), choices=PARTS)
    parser.add_argument("--repeats", type=int, default=10, help="tables, or splits of a real one")
    parser.add_argument("--folds", **several, type=int, default=list(range(FOLDS)))
    parser.add_argument("--noise", **several, default=list(NOISE), choices=NOISE, help="of `table`")
    parser.add_argument("--methods", **several, default=methods, choices=methods, help="of `table`")
    parser.add_argument(
        "--imputers", **several, default=imputers, choices=imputers, help="of `real`"
    )
    cells = [f"{scenario}:{sites}" for scenario, sites in CELLS]
    parser.add_argument("--cells", **several, default=cells, choices=cells, help="of `real`")
    parser.add_argument("--mds", type=Path, help="the MDS cohort's CSV file, for `real`")
    parser.add_argument("--adni", type=Path, help="an ADNI-like CSV file, for `real`")
    parser.add_argument("--rows", **several, type=int, default=list(ROWS), help="of `speed`")
    parser.add_argument("--cases", **several, default=list(CASES), choices=CASES, help="`private`")
    parser.add_argument("--routes", **several, default=ROUTES, choices=ROUTES, help="of `private`")
    parser.add_argument(
        "--epsilons", **several, type=float, default=list(EPSILONS), help="of `private`"
    )
    parser.add_argument("--rounds", type=int, help="fewer rounds, 2 or more, for a trial")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    book = Book(given.out / "runs.jsonl")
    size = Size(given.repeats, tuple(given.folds), given.rounds)
    if "table" in given.parts:
        table(book, size, given.methods, given.noise)
    if "waic" in given.parts:
        waic(book, size)
    if "speed" in given.parts:
        speed(book, size, given.rows)
    if "real" in given.parts:
        real(book, "breast cancer", breast_cancer(), size, given.imputers, given.cells)
        if given.mds is not None:
            real(book, "MDS", mds(given.mds), size, given.imputers, given.cells)
        if given.adni is not None:
            real(book, "ADNI-like", adni(given.adni), size, given.imputers, given.cells)
    if "private" in given.parts:
        private(book, size, given.cases, given.routes, given.epsilons)
    if "prox" in given.parts:
        prox(book, size)


if __name__ == "__main__":
    main()
