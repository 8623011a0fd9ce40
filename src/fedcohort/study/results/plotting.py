"""The figure of a fit, or of several fits together: `Fit.plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fedcohort.protocol import NotSupported, SettingError, registry
from fedcohort.report import forest, penalty_path, plots
from fedcohort.report.penalty_path import PenaltyPath
from fedcohort.report.plots import Picture
from fedcohort.study.results.saved import Saved
from fedcohort.study.run.engine import Run

#: Smallest number at risk, if a model with curves does not state it.
MIN_CELL = 5


class Fit(Protocol):
    """The members of a fit that a figure needs."""

    @property
    def method(self) -> str:
        """Name of the method."""
        ...

    @property
    def parts(self) -> Saved:
        """Model, design and dictionary."""
        ...

    @property
    def run(self) -> Run | None:
        """The run; None for a loaded model."""
        ...

    @property
    def sites(self) -> Mapping[str, Any]:
        """The fit of each site alone."""
        ...

    @property
    def model(self) -> Any:
        """The fitted model."""
        ...


def picture(fits: Sequence[Fit], names: Sequence[str] = (), covariate: str = "") -> Picture:
    """Return the figure of `Fit.plot`, with the same parameters and errors.

    Names of equal methods are numbered.
    """
    named = dict(zip(_names(fits, names), fits, strict=True))
    for name, fit in named.items():
        if fit.sites:
            raise NotSupported(
                f"{name}: isolated sites have no common picture; lay those of fit.sites[...] over "
                f"each other: {', '.join(sorted(fit.sites))}."
            )
    if covariate and not isinstance(fits[0].model, forest.Pools):
        raise SettingError(
            f"covariate is {covariate!r}, but {next(iter(named))} has no forest plot; "
            f"'meta_analysis' has. Leave it out."
        )
    if all("curves" in registry.find(f.method).gives for f in fits):
        return _survival(named)
    return _alone(named, covariate) or _convergence(named)


def _survival(named: Mapping[str, Fit]) -> Picture:
    rows = {name: f.model.curves() for name, f in named.items()}
    if len({plots.kind_of(found) for found in rows.values()}) > 1:
        raise NotSupported("survival and cumulative hazards are not drawn in one picture.")
    models = {name: f.model for name, f in named.items()}
    return plots.survival_picture(
        rows,
        _time(next(iter(named.values()))),
        min_cell={name: getattr(m, "min_cell", MIN_CELL) for name, m in models.items()},
    )


def _alone(named: Mapping[str, Fit], covariate: str) -> Picture | None:
    """Return the figure of a single fit; None if it has none, or only convergence.

    Raises
    ------
    NotSupported : a fit has such a figure, and several fits are given.
    """
    for name, fit in named.items():
        path = _path(fit.model)
        pools = isinstance(fit.model, forest.Pools)
        if len(named) > 1 and (path is not None or pools):
            what = "forest plot" if pools else "path of penalties"
            raise NotSupported(
                f"{name} has a {what}, which is drawn of one fit; plot() it without the others."
            )
        if path is not None:
            return penalty_path.path_picture(path, fit.model.features)
        if isinstance(fit.model, forest.Pools):
            return forest.forest_picture(fit.model, covariate)
        effects: Mapping[str, float] = getattr(fit.model, "site_effects", {})
        if effects and len(named) == 1:
            return forest.effects_picture(effects, fit.model.tau2, fit.model.level)
    return None


def _path(model: Any) -> PenaltyPath | None:
    """Return a model's path of penalties, if it has one."""
    try:
        return getattr(model, "path_", None)
    except NotSupported:
        return None


def _convergence(named: Mapping[str, Fit]) -> Picture:
    history = {name: f.run.history if f.run else [] for name, f in named.items()}
    if lacking := [name for name, rows in history.items() if not plots.can_show(rows)]:
        able = ", ".join(registry.those_which_give("curves"))
        over = " with the others" if len(named) > 1 else ""
        raise NotSupported(
            f"{lacking[0]} has neither curves nor a history that converges, so there is nothing to "
            f"plot{over}; these methods have curves: {able}; those that go in rounds have a "
            f"history until they are saved."
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
    """Return the title of the time axis, with its unit if the dictionary has it."""
    outcome = fit.parts.design.outcome
    unit = "" if outcome is None else outcome.time_unit(fit.parts.dictionary)
    return f"time ({unit})" if unit else "time since start"
