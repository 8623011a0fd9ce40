"""Private fits of a study: their releases, the sites' guards, and their cost.

Sites and coordinator derive the same list of `releases` from the approved study.

(ε, δ) holds for one fit. The preprocessing costs nothing: it takes scales and fills from the
dictionary's ranges. A study of R repeats spends at most R ε and R δ of its rows. A site compares δ
of each fit with its number of patients, and its budget with the sum. ε does not cover held-out
patients in metrics, which are exact under the disclosure rules, nor Table 1 and the sites' counts.
The bounds of a study are fitted without noise.

Revealed: nothing; all follows from a study's text alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, levels_of
from fedcohort.data.prepare import Design
from fedcohort.privacy.guard import SiteGuard, cumulative
from fedcohort.protocol import (
    Dp,
    Method,
    NotSupported,
    Release,
    SettingError,
    Spent,
    Task,
    registry,
)
from fedcohort.protocol.errors import Refused


def releases(method: Method, config: Any, dp: Dp) -> Sequence[Release]:
    """Return every release of a private fit.

    Raises
    ------
    SettingError : the method has no private fit, with these settings or with any; or (ε, δ) cannot
        be met.
    """
    if method.private is None:
        able = ", ".join(map(repr, those_with_private_fits()))
        raise SettingError(
            f"method {method.name!r} has no differentially private fit; {able} have one. Use one "
            f"of them, or leave dp out."
        )
    return tuple(method.private.releases(config, dp.clipped(method.clips)))


def those_with_private_fits() -> tuple[str, ...]:
    """Return the methods with a private fit; methods that cannot be loaded are left out."""
    found: list[str] = []
    for name in registry.names():
        with contextlib.suppress(NotSupported):
            if registry.find(name).private is not None:
                found.append(name)
    return tuple(found)


def held(
    method: Method, config: Any, dp: Dp, dictionary: Dictionary, outcome: Outcome | None
) -> Mapping[str, Mapping[str, Any]]:
    """Return, by step, the arguments that follow from the study; every site demands them.

    Raises
    ------
    DataError, SettingError : see `design`; for a raw method, its own errors about its dictionary.
    """
    if method.private is None:
        return {}
    features = views = heads = ()
    if not method.raw:
        made = (method.design or design)(config, dictionary, outcome)
        features, views, heads = made.features, made.views, made.heads
    task = Task(
        kind="latent" if outcome is None else outcome.kind,
        features=features,
        views=views,
        heads=heads,
        dictionary=dictionary if method.raw else None,
        outcome_of=outcome if method.raw else None,
        outcome="" if outcome is None else outcome.type,
        levels=levels_of(outcome, dictionary),
        dp=dp.clipped(method.clips),
        reach=reach_of(dictionary, outcome),
    )
    return method.private.held(config, task)


def simulated_guard(
    site: str,
    rows: int,
    method: Method,
    config: Any,
    dp: Dp,
    seed: int | None,
    *,
    patients: int = 0,
    demanded: Mapping[str, Mapping[str, Any]] | None = None,
    scenario: str = "",
) -> SiteGuard:
    """Return the guard of a site in this process.

    Parameters
    ----------
    seed : seed of its noise, together with the fit's method, settings and scenario, so that no two
        arms have the same noise; None for the system's generator, as on a node.
    patients, demanded : `patients` and `held` of `SiteGuard`.
    """
    stream = repr((method.name, config, dp.clipped(method.clips), scenario))
    return SiteGuard(
        site, method.name, releases(method, config, dp), dp, rows, seed,
        patients=patients, held=demanded or {}, stream=stream,
    )  # fmt: skip


#: Note on the source of a fit's noise.
NOISE: Mapping[str, str] = {
    "seed": "noise from a known seed: a simulation, not for release",
    "system": "noise from the system's generator, which nobody can draw again",
}


def noise_note(method: Method, config: Any, dp: Dp, noise: str) -> dict[str, Any]:
    """Return the note on the noise of a private fit's model, as JSON-able values.

    Parameters
    ----------
    noise : "seed" or "system": its source.
    """
    found = sorted({r.mechanism for r in releases(method, config, dp)})
    return {
        "epsilon": dp.epsilon, "delta": dp.delta, "unit": dp.unit,
        "mechanism": " and ".join(found), "noise": noise, "note": NOISE[noise],
    }  # fmt: skip


def check_sites(dp: Dp, sites: int) -> None:
    """Refuse a δ that would allow publishing a whole unit.

    Raises
    ------
    SettingError : the unit is a site, and δ is above 1/sites.
    """
    if dp.unit == "site" and dp.delta * sites > 1.0:
        raise SettingError(
            f"dp.delta is {dp.delta:g}, above 1/{sites}. With dp.unit 'site' and {sites} sites, "
            f"all rows of one site could be published. Lower dp.delta."
        )


def design(
    config: Any, dictionary: Dictionary, outcome: Outcome | None, impute: str = "mean"
) -> Design:
    """Return the design of a private fit, without asking any site.

    Parameters
    ----------
    impute : "none" leaves missing values as NaN.

    Raises
    ------
    DataError, SettingError : see `data.prepare.bounded_design`.
    """
    from fedcohort.data.prepare import bounded_design  # imports pandas

    roles = {role: getattr(config, role, "") for role in ("offset", "weights", "strata")}
    return bounded_design(dictionary, outcome, impute=impute, **roles)


def check_dictionary(
    method: Method, settings: Mapping[str, Any], dictionary: Dictionary, outcome: Outcome | None
) -> None:
    """Refuse a dictionary without the ranges that a private fit needs for scaling.

    Raises
    ------
    DataError : a column without a range.
    SettingError : a column of offsets, weights or strata.
    """
    if method.design is None and not method.raw:
        design(method.configure(settings), dictionary, outcome)


def check_tables(
    method: Method,
    settings: Mapping[str, Any],
    dp: Dp,
    dictionary: Dictionary,
    outcome: Outcome | None,
    rows: Mapping[str, int],
    patients: Mapping[str, int] | None = None,
) -> None:
    """Refuse tables that do not allow a private fit, before anything is computed.

    Parameters
    ----------
    rows : training rows of each site.
    patients : all rows of each site in the study; default `rows`.

    Raises
    ------
    DataError : a column without a range.
    SettingError : δ above 1/patients or 1/sites; a site with too few rows.
    """
    check_sites(dp, len(rows))
    check_dictionary(method, settings, dictionary, outcome)
    for site, n in rows.items():
        try:
            every = (patients or rows).get(site, n)
            SiteGuard(site, method.name, (), dp, n, 0, patients=every).check_table()
        except Refused as refused:
            raise SettingError(str(refused)) from None


@dataclass
class Account:
    """Privacy spent by a fit, call by call, for the coordinator's ledger; sites count alike."""

    releases: Sequence[Release]
    dp: Dp
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, step: str) -> Spent | None:
        """Count one more reply of a step; return the privacy spent so far."""
        release = next((r for r in self.releases if r.step == step), None)
        if release is None:
            return None
        self.counts[step] = min(self.counts.get(step, 0) + release.draws, release.count)
        so_far = tuple(
            replace(r, count=self.counts[r.step]) for r in self.releases if r.step in self.counts
        )
        spent = cumulative(so_far, tuple(self.releases), self.dp)
        return Spent(release.mechanism, spent, self.dp.delta)


def reach_of(dictionary: Dictionary, outcome: Outcome | None) -> tuple[float, float] | None:
    """Return the usual range of an outcome's first column; None without one."""
    name = "" if outcome is None else outcome.columns[0]
    if name not in dictionary:
        return None
    v = dictionary[name]
    low, high = v.range if v.usual == (None, None) else v.usual
    return None if low is None or high is None else (low, high)


def epsilon_of(account: Account | None) -> float | None:
    """Return ε of a fit at its δ; None without differential privacy."""
    if account is None:
        return None
    from fedcohort.privacy import accounting  # slow to import: only for private fits

    return accounting.epsilon(account.releases, account.dp.delta)
