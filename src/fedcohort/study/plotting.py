"""Which picture fits can be laid over each other in: `Fit.plot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedcohort.data.outcome import Survival
from fedcohort.protocol import NotSupported, SettingError, registry
from fedcohort.report import plots
from fedcohort.report.plots import Picture

if TYPE_CHECKING:
    from fedcohort.study.face import Fit


def picture(fits: Sequence[Fit], names: Sequence[str] = ()) -> Picture:
    """Return survival curves where all fits have them, otherwise how all converged.

    Parameters
    ----------
    names : of the fits; their methods' by default, numbered where two are the same.

    Raises
    ------
    NotSupported : the fits have neither in common.
    SettingError : there are not as many names as fits, or two are the same.
    """
    named = dict(zip(_names(fits, names), fits, strict=True))
    for name, fit in named.items():
        if fit.sites:
            raise NotSupported(
                f"{name}: isolated sites have no common picture; lay those of fit.sites[...] over "
                f"each other: {', '.join(sorted(fit.sites))}."
            )
    if all("curves" in registry.find(f.method).gives for f in fits):
        rows = {name: f.model.curves() for name, f in named.items()}
        if len({plots.kind_of(found) for found in rows.values()}) > 1:
            raise NotSupported("survival and cumulative hazards are not drawn in one picture.")
        stepped = frozenset(name for name, f in named.items() if getattr(f.model, "exact", False))
        return plots.survival_picture(rows, _time(fits[0]), stepped=stepped)
    history = {name: f.run.history if f.run else [] for name, f in named.items()}
    if lacking := [name for name, rows in history.items() if not plots.can_show(rows)]:
        able = ", ".join(registry.those_which_give("curves"))
        raise NotSupported(
            f"{lacking[0]} has neither curves nor a history that converges, so there is nothing to "
            f"plot with the others; these methods have curves: {able}; those that go in rounds "
            f"have a history until they are saved."
        )
    return plots.convergence_picture(history)


def _names(fits: Sequence[Fit], names: Sequence[str]) -> list[str]:
    """Return a name for each fit, no two the same."""
    if not names:
        methods = [f.method for f in fits]
        twice = {m for m in methods if methods.count(m) > 1}
        return [f"{m} ({i})" if m in twice else m for i, m in enumerate(methods, 1)]
    if len(names) != len(fits) or len(set(names)) < len(names) or isinstance(names, str):
        raise SettingError(
            f"names are {list(names)!r} of {len(fits)} fits; give a different one to each, this "
            f"fit's first."
        )
    return list(names)


def _time(fit: Fit) -> str:
    """Return the title of the axis of time, with its unit where the dictionary tells it."""
    outcome, known = fit.parts.design.outcome, fit.parts.dictionary.variables
    column = known.get(outcome.time) if isinstance(outcome, Survival) else None
    return f"time since start, {column.unit}" if column and column.unit else "time since start"
