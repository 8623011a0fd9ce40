"""Site steps of consensus ADMM. All are sums: no site's own numbers are ever seen.

A site works with rows a_i = (1, standardised x_i), offsets, and weights that sum to one over its
own rows; its share ω_j of the objective is that of its weight in all sites' (or 1/K). It keeps the
latest s_j with what they gave, in its own state. What it factored of its rows is remembered for as
long as its table lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.prox import LOCAL, Local
from fedcohort.protocol import Keep, Site, message, summed


@message
class Totals:
    """``rows`` (), those of class 1, those of neither 0 nor 1, and the ``sites`` that hold rows.

    Of an outcome that is no class, the second and third are 0. Also the sum of the weights (), and
    the weighted sum of the covariates (p,).
    """

    rows: Array
    ones: Array
    others: Array
    sites: Array
    weight: Array
    x: Array


@message
class Spread:
    """The weighted Σ (x − c)² (p,)."""

    squares: Array


@message
class Memory:
    """What a site keeps: targets (m, d) and residuals (m, d) of the latest rounds, x_j (d,), ρ."""

    targets: Array
    residuals: Array
    x: Array
    rho: Array


@message
class Step:
    """What a site adds to a round, each part times its ``share`` ω_j.

    ``loss`` () at z; ``target`` s_j + α f_j (d,) and ``residual`` f_j = x_j − z (d,); ``inner``
    (m,), f_jᵀf_j of this round with each earlier one, this one last; ``x``, ``w`` (), ‖x_j‖² and
    ‖w_j‖²; ``plane`` (), the tangent of the loss at x_j, taken at z.
    """

    share: Array
    loss: Array
    target: Array
    residual: Array
    inner: Array
    x: Array
    w: Array
    plane: Array


@summed
def admm_totals(site: Site[LabelledTable, None], *, offset: bool, classes: bool) -> Totals:
    """Count the records and those of class 1, and sum the covariates; values are no `classes`."""
    x, weight = _covariates(site.data, offset), _weight(site.data)
    y = site.data.y
    one, zero = (classes & (y == c) for c in (1, 0))
    return Totals(
        np.array(len(y)),
        np.array(one.sum()),
        np.array((classes & ~one & ~zero).sum()),
        np.array(int(len(y) > 0)),
        np.array(weight.sum()),
        weight @ x,
    )


@summed
def admm_spread(site: Site[LabelledTable, None], *, offset: bool, centre: Array) -> Spread:
    """Sum the squared distances of the covariates from their pooled mean (p,)."""
    return Spread(_weight(site.data) @ (_covariates(site.data, offset) - centre) ** 2)


@summed
def admm_round(
    site: Site[LabelledTable, Memory | None],
    *,
    loss: str,
    offset: bool,
    centre: Array,
    scale: Array,
    total: float,
    by_site: bool,
    z: Array,
    rho: float,
    fresh: bool,
    mix: Array,
    relax: float,
    keep: int,
    subgradient: tuple[int, float] | None,
) -> Keep[Step, Memory]:
    """Move each site's own solution towards its data and towards the common z (d,), and sum.

    Parameters
    ----------
    total : the weight of all sites, or the number of those with rows.
    fresh : whether this is the site's first round; what it holds is then of another fit.
    mix : (m,), how the latest m targets make s_j.
    relax : α; keep : targets that the site remembers; subgradient : steps and step size.
    """
    own = _local(site.data, loss, offset, centre, scale)
    was = _nothing(z, rho) if fresh or site.state is None else site.state
    s = _mixed(was, mix, z, rho)
    v = 2.0 * z - s
    if subgradient is None:
        x = own.prox(v, rho, was.x)
    else:
        x = was.x
        for _ in range(subgradient[0]):
            x = x - subgradient[1] * (rho * (x - v) + own.slope(x))
    residual = x - z
    held = min(len(was.targets), keep - 1)
    targets = np.vstack([was.targets[len(was.targets) - held :], s + relax * residual])
    residuals = np.vstack([was.residuals[len(was.residuals) - held :], residual])
    weight = float(_weight(site.data).sum())
    share = (float(weight > 0) if by_site else weight) / total
    inner = np.zeros(keep)
    inner[keep - len(residuals) :] = residuals @ residual
    plane = own.loss(x) - rho * float((v - x) @ residual)
    reply = (
        1.0, own.loss(z), targets[-1], residual, inner, x @ x, (z - v) @ (z - v), plane,
    )  # fmt: skip
    return Keep(
        Step(*(share * np.asarray(part) for part in reply)),
        Memory(targets, residuals, x, np.array(rho)),
    )


def _nothing(z: Array, rho: float) -> Memory:
    """Return the memory of a site that has taken no step yet."""
    none = np.zeros((0, len(z)))
    return Memory(none, none, z.copy(), np.array(rho))


def _mixed(was: Memory, mix: Array, z: Array, rho: float) -> Array:
    """Return s_j (d,); where ρ has changed, w_j = s_j − z is rescaled."""
    if not len(was.targets):
        return z
    s = mix @ was.targets[-len(mix) :]
    return s if float(was.rho) == rho else z + (s - z) * (float(was.rho) / rho)


def _covariates(table: LabelledTable, offset: bool) -> Array:
    return table.x[:, :-1] if offset else table.x


def _weight(table: LabelledTable) -> Array:
    return np.ones(len(table.y)) if table.weight is None else table.weight


STEPS = (admm_totals, admm_spread, admm_round)


#: What a site's rows are turned into: loss, offset, centre and scale.
How = tuple[str, bool, Array, Array]


class _Factored:
    """The latest subproblem of each table, for as long as its x lives: a fit factors it once."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Callable[[], Array | None], Array, How, Local]] = {}

    def __call__(
        self, table: LabelledTable, loss: str, offset: bool, centre: Array, scale: Array
    ) -> Local:
        key, how = id(table.x), (loss, offset, centre, scale)
        held = self._held.get(key)
        if held is not None and held[0]() is table.x and held[1] is table.y:
            known = held[2]
            if known[:2] == how[:2] and all(map(np.array_equal, known[2:], how[2:])):
                return held[3]
        x, weight = _covariates(table, offset), _weight(table)
        rows = np.column_stack([np.ones(len(x)), (x - centre) / scale])
        fixed = table.x[:, -1] if offset else np.zeros(len(x))
        y = table.y if loss == "squared" else np.where(table.y == 1, 1.0, -1.0)
        local = LOCAL[loss](rows, y, fixed, weight / max(float(weight.sum()), np.finfo(float).tiny))
        alive = weakref.ref(table.x, lambda _: self._held.pop(key, None))
        self._held[key] = (alive, table.y, how, local)
        return local


_local = _Factored()
