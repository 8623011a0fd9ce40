"""Masked sums among real members, with dropouts at every stage, against exact rational sums."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from fedcohort.protocol.errors import QuorumLost
from fedcohort.secure import (
    Context,
    Gathering,
    Identity,
    Layout,
    Member,
    decode,
    digest,
    encode,
    error,
    masked_sum,
    prepare,
)
from fedcohort.secure.exchange.rehearse import STAGES

IDENTITIES = [Identity.new() for _ in range(8)]


def a_context(n: int, run: str = "run", history: str = "history") -> Context:
    keys = {f"site{i}": IDENTITIES[i].public for i in range(n)}
    return Context(run, "session", history, keys)


def some_members(n: int, context: Context | None = None, **settings) -> dict[str, Member]:
    context = context or a_context(n)
    return {
        name: Member(name, IDENTITIES[i], context, **settings)
        for i, name in enumerate(list(context.roster)[:n])
    }


def prepared(n: int, slots: int = 2) -> tuple[dict[str, Member], Gathering]:
    context = a_context(n)
    members = some_members(n, context)
    return members, prepare(members, Gathering(context, 0, slots))


def replies(n: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Replies of mixed types, from tiny to large, of n sites."""
    rng = np.random.default_rng(seed)

    def one() -> dict[str, np.ndarray]:
        size = 10.0 ** rng.uniform(-20, 20, (2, 3))
        return {
            "fine": rng.standard_normal((2, 3)) * size,
            "count": rng.integers(-(2**40), 2**40, 4),
            "scalar": np.array(rng.standard_normal()),
            "short": rng.standard_normal(3).astype("f4"),
            "none": np.empty((0, 2)),
        }

    return {f"site{i}": one() for i in range(n)}


def outcome(n: int, seed: int, away: Mapping[str, str]) -> str:
    """Form one sum and return "sum", "abort" or "wrong".

    Parameters
    ----------
    away : by site, the stage from which on it is away.
    """
    told = replies(n, seed)
    layout = Layout.of(told["site0"])
    vectors = {name: encode(reply, layout, n=n) for name, reply in told.items()}
    context = a_context(n)
    members = some_members(n, context)

    def absent(stage: str, name: str) -> bool:
        return name in away and STAGES.index(stage) >= STAGES.index(away[name])

    t = max(-(-2 * n // 3), n // 2 + 1)
    here = {s: [m for m in told if not absent(s, m)] for s in STAGES}
    enough = all(len(here[s]) >= max(3, t) for s in ("keys", "shares", "mask")) and all(
        len(here[s]) >= t for s in ("sign", "unmask")
    )
    try:
        epoch = prepare(members, Gathering(context, 0, 1), absent)
        total, summing = masked_sum(members, epoch, vectors, layout, digest(seed), absent=absent)
    except QuorumLost:
        return "wrong" if enough else "abort"
    survivors = summing.survivors().survivors
    right = enough and list(survivors) == here["mask"] and right_sum(total, told, survivors, layout)
    return "sum" if right else "wrong"


def right_sum(total, told, survivors, layout: Layout) -> bool:
    """Return whether each number is within its stated bound of the sum of exact fractions."""
    found, bound = decode(total, layout), error(layout, len(survivors))
    for field, a in found.items():
        parts = [told[name][field].ravel().tolist() for name in survivors]
        for value, *terms in zip(a.ravel().tolist(), *parts, strict=True):
            exact = sum((Fraction(x) for x in terms), Fraction(0))
            eps = Fraction(float(np.finfo(a.dtype).eps)) if a.dtype.kind == "f" else 0
            if abs(Fraction(value) - exact) > Fraction(bound[field]) + eps * abs(exact):
                return False
    return True
