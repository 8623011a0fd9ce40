"""What a hostile coordinator still gets where it chooses the first question of a session itself.

Nodes pin where sums are formed at the first question, and bound how many there are
(`docs/security.md`). This counts, on the sample gbsg2, the training rows that a sum over one row
alone would tell, by arithmetic on the pooled rows, which masked sums equal:

    grid        intervals of time in which one row alone leaves: evenly spaced, and placed by a
                coordinator that knows where the days with one row are
    clusters    rows that are farthest in one of 300 random directions: a round of k-means with a
                centroid beyond them and the others far away sums such a row alone

    python benchmarks/network/hostile_sums.py

Prints a table; asserts that the bounds hold back what they are said to (accepted: at most as many
rows as intervals, and fewer rows than a daily grid gives). Seconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedcohort.data.read import sources

INTERVALS = (105, 512)
DIRECTIONS = 300


def alone(times: np.ndarray, edges: np.ndarray) -> int:
    """Return the rows that are alone in an interval between edges."""
    return int((np.bincount(np.searchsorted(edges, times)) == 1).sum())


def main() -> None:
    """Count, print, and check."""
    frame = sources.load("sample:gbsg2", Path()).frames
    rows = frame.sample(frac=0.75, random_state=0)
    times = rows["time"].to_numpy(float)
    days = np.arange(1.0, times.max() + 1)
    daily = alone(times, days)
    print(f"{len(rows)} rows; by the day, as before nodes refused it: {daily} alone")
    unique, counts = np.unique(times, return_counts=True)
    known = unique[counts == 1]
    for n in INTERVALS:
        even = alone(times, np.linspace(0, times.max(), n + 1)[1:])
        placed = alone(times, known[:n])
        print(f"{n} intervals: evenly spaced {even}, placed by who knows where {placed}")
        assert max(even, placed) <= min(n, daily)
    x = rows.select_dtypes("number").drop(columns=["time", "cens"]).to_numpy(float)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    rng = np.random.default_rng(0)
    far = {int((z @ rng.standard_normal(z.shape[1])).argmax()) for _ in range(DIRECTIONS)}
    print(f"{DIRECTIONS} rounds of clusters: {len(far)} rows that are farthest in some direction")
    assert len(far) <= DIRECTIONS


if __name__ == "__main__":
    main()
