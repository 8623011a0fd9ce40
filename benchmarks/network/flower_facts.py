"""What the installed Flower does by itself, in the points in which fedcohort does something else.

    python benchmarks/network/flower_facts.py

Each line is an experiment on Flower's own functions, as they are shipped, and exits with 1 where
one comes out otherwise: then docs/security.md must be corrected.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import SecAggPlusState, _unmask
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from flwr.supercore import differential_privacy


def masks_have_32_bits() -> bool:
    """Two mask seeds of 256 bits whose 32-bit words have the same XOR give the same mask."""
    a, b = np.random.default_rng(0).bytes(28), np.random.default_rng(1).bytes(28)
    ends = [np.bitwise_xor.reduce(np.frombuffer(s, "<u4")).astype("<u4").tobytes() for s in (a, b)]
    first, second = (
        pseudo_rand_gen(s + end, 1 << 24, [(1000,)])[0] for s, end in zip((a, b), ends, strict=True)
    )
    return a != b and np.array_equal(first, second)


def both_secrets_are_given() -> bool:
    """A client that is told of a peer as alive and as dead answers with shares of both secrets."""
    state = SecAggPlusState()
    state.threshold = 1
    state.rd_seed_share_dict, state.sk1_share_dict = {2: b"self mask"}, {2: b"pairwise key"}
    told = _unmask(
        state,
        {Key.ACTIVE_NODE_ID_LIST: [2], Key.DEAD_NODE_ID_LIST: [2]},
    )
    return set(told[Key.SHARE_LIST]) == {b"self mask", b"pairwise key"}


def mean(*replies: tuple[list[float], int]) -> np.ndarray:
    """Return what federated averaging makes of clients' parameters and numbers of examples."""
    records = [
        RecordDict(
            {"arrays": ArrayRecord([np.array(x)]), "metrics": MetricRecord({"num-examples": n})}
        )
        for x, n in replies
    ]
    return aggregate_arrayrecords(records, "num-examples").to_numpy_ndarrays()[0]


def nan_is_averaged() -> bool:
    """One client with a NaN makes the model NaN."""
    return bool(np.isnan(mean(([1.0], 10), ([float("nan")], 10))).all())


def any_count_is_taken() -> bool:
    """A client that says −9 examples turns a mean of 1 and 2 into −8; one of 10¹² is the mean."""
    negative = mean(([1.0], 10), ([2.0], -9))
    huge = mean(([1.0], 10), ([2.0], 10**12))
    return bool(np.allclose(negative, -8.0) and np.allclose(huge, 2.0))


def noise_can_be_repeated() -> bool:
    """The noise of differential privacy is that of NumPy's seed."""
    drawn = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002
        drawn.append(np.zeros(5))
        differential_privacy.add_gaussian_noise_inplace([drawn[-1]], 1.0)
    return bool(drawn[0].any()) and np.array_equal(drawn[0], drawn[1])


FACTS = (
    masks_have_32_bits, both_secrets_are_given, nan_is_averaged, any_count_is_taken,
    noise_can_be_repeated,
)  # fmt: skip


def main() -> int:
    """Try all; return the exit code."""
    logging.disable(logging.CRITICAL)
    print(f"Flower {version('flwr')}, NumPy {np.__version__}")
    found = [fact() for fact in FACTS]
    for fact, holds in zip(FACTS, found, strict=True):
        print(f"{'as written' if holds else 'NOT SO   '}: {fact.__doc__}")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
