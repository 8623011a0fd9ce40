"""Check a study against the number and the names of its sites.

Settings state what they need (`Settings.check_sites`). An arm is checked with every setting of its
fits: its own or, if tuned, each tried one; of a space the listed values and the ends of its ranges.
Tuning by centre-kfold fits over one site less.

Revealed: nothing; all follows from a study's text and the number of sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.protocol import Method, SettingError, Settings, StudyError, registry
from fedcohort.study.file.arms import FOLDS, Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.space import space_of


def check_sites(plan: Plan, sites: int) -> None:
    """Refuse a study with an arm that needs more sites.

    Raises
    ------
    SettingError : the first such arm, with the setting, the number of sites, and the needed one.
    """
    for arm in (a for a in plan.arms if a.scope == "sites"):
        method = registry.find(arm.method)
        if method.settings.check_sites is Settings.check_sites:
            continue
        try:
            for settings in _tried(plan, arm):
                _check(method, arm.configured(settings), sites)
        except SettingError as error:
            raise SettingError(f"arm {arm.name!r}: {error}") from None
        if not (plan.is_tuned(arm) and arm.folds == FOLDS[0] and sites > 1):
            continue
        try:
            for settings in _tried(plan, arm):
                _check(method, arm.configured(settings), sites - 1)
        except SettingError as error:
            raise SettingError(
                f"arm {arm.name!r}, tuned by {FOLDS[0]}, which leaves one of {sites} sites out: "
                f"{error}"
            ) from None


def check_named(plan: Plan, names: Mapping[str, Collection[str]]) -> None:
    """Check the sites that `availability`, `consent` and arms name against those of each scenario.

    A scenario may lack some of them, since scenarios deal other sites; not all, but for the site
    that an arm's model is for: there the arm fails.

    Parameters
    ----------
    names : the sites of each scenario, by its name.

    Raises
    ------
    StudyError : a named site is in no scenario, or a scenario has none of those that a key names;
        a site has the name by which an arm asks for a model for each.
    """
    law, again = plan.availability, plan.again
    keys = {
        "availability": () if law is None else (*law.always, *law.by_site),
        "consent.withdraw": () if again is None else again.withdraw,
    }
    every = sorted({site for some in names.values() for site in some})
    for arm in plan.arms:
        if arm.every and arm.user in every:
            raise StudyError(
                f"setting 'user' of arm {arm.name!r} is {arm.user!r}, a model for each site, but a "
                f"site has this name. Rename the site."
            )
        if arm.user and not arm.every and arm.user not in every:
            raise StudyError(
                f"setting 'user' of arm {arm.name!r}: there is no site {arm.user!r}; there are "
                f"{', '.join(every)}."
            )
    for key, named in keys.items():
        if unknown := sorted({*named} - {*every}):
            raise StudyError(
                f"{key}: there is no site {unknown[0]!r}; there are {', '.join(every)}."
            )
        for scenario, some in names.items():
            if named and not {*named} & {*some}:
                raise StudyError(
                    f"{key}: scenario {scenario!r} has none of the sites {', '.join(named)}; it "
                    f"has {', '.join(sorted(some))}. Name one of these too, or take "
                    f"the scenario into a study of its own."
                )


def _check(method: Method, given: Mapping[str, Any], sites: int) -> None:
    """Check one fit; settings that exclude each other are refused in tuning."""
    try:
        config = method.configure(given)
    except SettingError:
        return
    config.check_sites(sites)


def _tried(plan: Plan, arm: Arm) -> Iterator[dict[str, Any]]:
    """Yield the tried settings of an arm's fits."""
    values = arm.grid or {k: space_of(k, v).values for k, v in plan.space(arm).items()}
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))
