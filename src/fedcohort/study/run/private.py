"""Private fits of a study: which releases they make, who guards them, what they cost.

Both ends call `releases` with the approved study's method, settings and (ε, δ), and get one list.

(ε, δ) is that of one fit: its training, and its preprocessing, which takes scales and fills from
the dictionary's ranges and costs nothing. A study of R repeats fits R times, and its rows spend R ε
and R δ at most; a site holds the δ of each fit against its patients, and its budget the sum. How a
model does on rows held out is told as exact counts under the disclosure rules, in which patients
who were held out are not covered by ε; nor are Table 1 and the sites' counts. The bounds of a study
are fitted without noise.

Revealed: nothing; this is made from a study's text alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
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
            f"method {method.name!r} has no differentially private fit; {able} have one. Take one "
            f"of them, or leave dp out."
        )
    return tuple(method.private.releases(config, dp.clipped(method.clips)))


def those_with_private_fits() -> tuple[str, ...]:
    """Return the methods that have a private fit; those that cannot be loaded are left out."""
    found: list[str] = []
    for name in registry.names():
        with contextlib.suppress(NotSupported):
            if registry.find(name).private is not None:
                found.append(name)
    return tuple(found)


def held(
    method: Method, config: Any, dp: Dp, dictionary: Dictionary, outcome: Outcome | None
) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that follow from the study, which every site demands.

    Raises
    ------
    DataError, SettingError : see `design`; a raw method's own, of its dictionary.
    """
    if method.private is None:
        return {}
    features = views = ()
    if not method.raw:
        made = (method.design or design)(config, dictionary, outcome)
        features, views = made.features, made.views
    task = Task(
        kind="latent" if outcome is None else outcome.kind,
        features=features,
        views=views,
        dictionary=dictionary if method.raw else None,
        outcome_of=outcome if method.raw else None,
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
    seed : what its noise follows from, with the fit's method, settings and scenario, so that no two
        arms have the same; None for the system's generator, as on a node.
    patients, demanded : `patients` and `held` of `SiteGuard`.
    """
    told = repr((method.name, config, dp.clipped(method.clips), scenario))
    return SiteGuard(
        site, method.name, releases(method, config, dp), dp, rows, seed,
        patients=patients, held=demanded or {}, stream=told,
    )  # fmt: skip


#: Where the noise of a fit came from, and what that means for who gets the model.
NOISE: Mapping[str, str] = {
    "seed": "noise from a known seed: a simulation, not for release",
    "system": "noise from the system's generator, which nobody can draw again",
}


def told(method: Method, config: Any, dp: Dp, noise: str) -> dict[str, Any]:
    """Return what goes with the model of a private fit, as JSON-able values.

    Parameters
    ----------
    noise : "seed" or "system", where it came from.
    """
    found = sorted({r.mechanism for r in releases(method, config, dp)})
    return {
        "epsilon": dp.epsilon, "delta": dp.delta, "unit": dp.unit,
        "mechanism": " and ".join(found), "noise": noise, "note": NOISE[noise],
    }  # fmt: skip


def check_sites(dp: Dp, sites: int) -> None:
    """Refuse a δ that would let one whole unit be published.

    Raises
    ------
    SettingError : the unit is a site, and δ is above 1/sites.
    """
    if dp.unit == "site" and dp.delta * sites > 1.0:
        raise SettingError(
            f"dp.delta is {dp.delta:g}, above one over the {sites} sites, which are what dp.unit "
            f"protects: one of them could be published whole. Lower it."
        )


def design(
    config: Any, dictionary: Dictionary, outcome: Outcome | None, impute: str = "mean"
) -> Design:
    """Return the design of a private fit, which no site is asked for.

    Parameters
    ----------
    impute : "none" leaves missing values as NaN.

    Raises
    ------
    DataError, SettingError : see `data.prepare.bounded_design`.
    """
    from fedcohort.data.prepare import bounded_design  # it brings pandas

    roles = {role: getattr(config, role, "") for role in ("offset", "weights", "strata")}
    return bounded_design(dictionary, outcome, impute=impute, **roles)


def check_dictionary(
    method: Method, settings: Mapping[str, Any], dictionary: Dictionary, outcome: Outcome | None
) -> None:
    """Refuse a dictionary that a private fit of a method cannot scale by.

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
    """Refuse, before anything is computed, tables of which a private fit cannot be made.

    Parameters
    ----------
    rows : that each site trains on. patients : all rows of each in the study; `rows` without.

    Raises
    ------
    DataError : a column without a range.
    SettingError : a δ that would let a patient, or a site, be published; a site of too few rows.
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
    """What a fit has spent, call by call, for the coordinator's ledger: as its sites count it."""

    releases: Sequence[Release]
    dp: Dp
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, step: str) -> Spent | None:
        """Count one more reply of a step; return what has been spent."""
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
    """Return the ends of what is usual of an outcome's first column; None without."""
    name = "" if outcome is None else outcome.columns[0]
    if name not in dictionary:
        return None
    v = dictionary[name]
    low, high = v.range if v.usual == (None, None) else v.usual
    return None if low is None or high is None else (low, high)


def epsilon_of(account: Account | None) -> float | None:
    """Return the ε that a fit costs at its δ; None without differential privacy."""
    if account is None:
        return None
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    return accounting.epsilon(account.releases, account.dp.delta)
