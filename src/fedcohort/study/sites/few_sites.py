"""Check that a study's arms can be fitted over its number of sites.

Settings state what they need (`Settings.check_sites`). An arm is checked with every setting of its
fits: its own or, if tuned, each tried one; of a space the listed values and the ends of its ranges.
Tuning by centre-kfold fits over one site less.

Revealed: nothing; all follows from a study's text and the number of sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from fedcohort.protocol import Method, SettingError, Settings, registry
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
