"""Site steps of consensus ADMM, all of them sums over sites.

A site works with rows a_i = (1, standardised x_i), offsets, and weights that sum to one over its
own rows. Its share ω_j of the objective is its part of all sites' weight (or 1/K). Its state holds
the latest s_j with their residuals, and the metric M_j of its subproblem (`smoothed`), I without a
smoothed start. It keeps the factorisation of its rows as long as its table lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.prox import LOCAL, Hinge, InMetric, Local
from fedcohort.protocol import Keep, Site, message, summed


@message
class Totals:
    """``rows`` (), rows of class 1, rows of neither 0 nor 1, and the ``sites`` that have rows.

    The second and third are 0 if the outcome is not a class. Also the sum of the weights (), and
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
    """State of a site: targets (m, d) and residuals (m, d) of the latest rounds, x_j (d,), ρ.

    Also M_j (d, d), or (0, 0) for I.
    """

    targets: Array
    residuals: Array
    x: Array
    rho: Array
    metric: Array


@message
class Step:
    """A site's part of a round, each entry times its ``share`` ω_j.

    ``loss`` () at z; ``target`` M_j(s_j + α f_j − z) (d,) and ``residual`` M_j f_j (d,) with f_j =
    x_j − z; ``inner`` (m,), f_jᵀM_j f_j of this round with each earlier one, this one last; ``x``,
    ``w`` (), ‖x_j‖² and ‖w_j‖² in the same metric; ``plane`` (), the tangent of the loss at x_j,
    taken at z.
    """

    share: Array
    loss: Array
    target: Array
    residual: Array
    inner: Array
    x: Array
    w: Array
    plane: Array


@message
class Smooth:
    """A site's smoothed hinge loss, each entry times its ``share`` ω_j.

    ``loss`` () without smoothing; ``smoothed`` (), its ``slope`` (d,) and ``curvature`` (d, d);
    ``weight`` and ``squares`` (), sums of the rows' weights in the curvature and of their squares
    (times ω_j²).
    """

    share: Array
    loss: Array
    smoothed: Array
    slope: Array
    curvature: Array
    weight: Array
    squares: Array


@summed
def admm_totals(site: Site[LabelledTable, None], *, offset: bool, classes: bool) -> Totals:
    """Count the records and those of class 1, and sum the covariates.

    Without `classes`, records are not counted by class.
    """
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
def admm_smoothed(
    site: Site[LabelledTable, Memory | None],
    *,
    offset: bool,
    centre: Array,
    scale: Array,
    total: float,
    by_site: bool,
    z: Array,
    tau: float,
) -> Smooth:
    """Sum the smoothed hinge loss, its gradient and its curvature.

    z : (d,), where they are evaluated; tau : width of the smoothing.
    """
    own = cast(Hinge, _local(site.data, ("hinge", offset, centre, scale)))
    share = _share(site.data, total, by_site)
    value, slope, curvature, weight = own.smoothed(z, tau)
    return Smooth(
        np.array(share),
        np.array(share * own.loss(z)),
        np.array(share * value),
        share * slope,
        share * curvature,
        np.array(share * weight.sum()),
        np.array(share**2 * (weight @ weight)),
    )


@summed(apart=("fresh",))
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
    start: tuple[Array, float, float, Array] | None,
) -> Keep[Step, Memory]:
    """Move each site's own solution towards its data and the common one, and sum.

    Parameters
    ----------
    total : weight of all sites, or number of those with rows.
    fresh : whether this is the site's first round; older state is then of another fit.
    mix : (m,), weights of the latest m targets in s_j.
    relax : α; keep : targets in the site's state; subgradient : steps and step size.
    start : point (d,) and τ of the smoothed loss that gives the site's first s_j and M_j, factor of
        the curvature in M_j, and the term added to it (d, d).
    """
    how = (loss, offset, centre, scale)
    if fresh or site.state is None:
        was, s = _nothing(z, rho), z
        if start is not None:
            was, s = _smooth_start(cast(Hinge, _local(site.data, how)), z, rho, *start)
    else:
        was = site.state
        s = _mixed(was, mix, z, rho)
    own = _local(site.data, how, was.metric)
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
    share = _share(site.data, total, by_site)
    force = _times(was.metric, residual)
    inner = np.zeros(keep)
    inner[keep - len(residuals) :] = residuals @ force
    plane = own.loss(x) - rho * float((v - x) @ force)
    reply = (
        1.0, own.loss(z), _times(was.metric, targets[-1] - z), force, inner,
        x @ _times(was.metric, x), (z - v) @ _times(was.metric, z - v), plane,
    )  # fmt: skip
    return Keep(
        Step(*(share * np.asarray(part) for part in reply)),
        Memory(targets, residuals, x, np.array(rho), was.metric),
    )


def _nothing(z: Array, rho: float) -> Memory:
    """Return the state of a site before its first step."""
    none = np.zeros((0, len(z)))
    return Memory(none, none, z.copy(), np.array(rho), IDENTITY)


def _smooth_start(
    own: Hinge, z: Array, rho: float, at: Array, tau: float, part: float, rest: Array
) -> tuple[Memory, Array]:
    """Return a site's first state, and s_j (d,), with the dual w_j of the smoothed loss."""
    _, slope, curvature, _ = own.smoothed(at, tau)
    metric = part * curvature + rest
    none = np.zeros((0, len(z)))
    s = at - np.linalg.solve(metric, slope) / rho
    return Memory(none, none, z.copy(), np.array(rho), metric), s


def _times(metric: Array, v: Array) -> Array:
    """Return M_j v (d,)."""
    return metric @ v if len(metric) else v


def _mixed(was: Memory, mix: Array, z: Array, rho: float) -> Array:
    """Return s_j (d,); after a change of ρ, w_j = s_j − z is rescaled."""
    if not len(was.targets):
        return z
    s = mix @ was.targets[-len(mix) :]
    return s if float(was.rho) == rho else z + (s - z) * (float(was.rho) / rho)


def _share(table: LabelledTable, total: float, by_site: bool) -> float:
    """Return ω_j."""
    weight = float(_weight(table).sum())
    return (float(weight > 0) if by_site else weight) / total


def _covariates(table: LabelledTable, offset: bool) -> Array:
    return table.x[:, :-1] if offset else table.x


def _weight(table: LabelledTable) -> Array:
    return np.ones(len(table.y)) if table.weight is None else table.weight


STEPS = (admm_totals, admm_spread, admm_smoothed, admm_round)


#: Transformation of a site's rows: loss, offset, centre and scale.
How = tuple[str, bool, Array, Array]
#: M_j = I.
IDENTITY = np.zeros((0, 0))


class _Factored:
    """The latest factored subproblem of each table, as long as its x lives."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Callable[[], Array | None], Array, How, Array, Local]] = {}

    def __call__(self, table: LabelledTable, how: How, metric: Array = IDENTITY) -> Local:
        key, (loss, offset, centre, scale) = id(table.x), how
        held = self._held.get(key)
        if held is not None and held[0]() is table.x and held[1] is table.y:
            known = held[2]
            same = known[:2] == how[:2] and all(map(np.array_equal, known[2:], how[2:]))
            if same and np.array_equal(held[3], metric):
                return held[4]
        x, weight = _covariates(table, offset), _weight(table)
        rows = np.column_stack([np.ones(len(x)), (x - centre) / scale])
        fixed = table.x[:, -1] if offset else np.zeros(len(x))
        y = table.y if loss == "squared" else np.where(table.y == 1, 1.0, -1.0)
        weight = weight / max(float(weight.sum()), np.finfo(float).tiny)
        local: Local = (
            InMetric(loss, rows, y, fixed, weight, metric)
            if len(metric)
            else LOCAL[loss](rows, y, fixed, weight)
        )
        alive = weakref.ref(table.x, lambda _: self._held.pop(key, None))
        self._held[key] = (alive, table.y, how, metric, local)
        return local


_local = _Factored()
