"""The key `consent:` of a study file: whether hospitals are asked again after a ranking.

    consent: once                    the default: one approval, before anything is computed
    consent: after-ranking           a hospital sees its place in the ranking, and consents again
    consent: {ask: after-ranking, withdraw: [site-2]}     in one process: who withdraws
    consent: {ask: after-ranking, withdraw: no-gain}      in one process: who is of no use

Grimberg, "Privacy-preserving and personalized federated machine learning for medical data", EPFL
2020, section 4.3: sites are ranked before training, and agents can withdraw then. Arms whose method
has a ranking (`Method.ranking`) are ranked on the first repeat's training rows. Over a network the
people at each site answer; in one process `withdraw` says who leaves, and each scenario stands
twice: with all sites, and with those that consent again.

Revealed: nothing; this module reads text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.protocol import FedcohortError, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.privacy import FEWEST
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.scenarios import Scenario

ONCE, AFTER = "once", "after-ranking"
KEYS = ("ask", "withdraw")
#: Rule by which a simulated site withdraws: the user's loss is no lower with it than without.
NO_GAIN = "no-gain"
#: What is added to a scenario's name in which only consenting sites are left.
CONSENTED = "-consented"


@dataclass(frozen=True)
class SecondConsent:
    """A second consent after the ranking.

    Attributes
    ----------
    withdraw : names of the sites that withdraw in a simulation.
    no_gain : whether sites of no use withdraw in a simulation.
    """

    withdraw: tuple[str, ...] = ()
    no_gain: bool = False

    def withdrawn(self, places: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
        """Return why each site withdraws in a simulation, by site.

        Parameters
        ----------
        places : by site, its place in the ranking of each arm (`Fitted.place_of`).
        """
        found = {s: "the study file says so" for s in self.withdraw if s in places}
        if self.no_gain:
            useless = (s for s, rows in places.items() if rows and all(map(_no_gain, rows)))
            found |= dict.fromkeys(useless, "its model lowers no user's loss")
        return dict(sorted(found.items()))


def _no_gain(place: Mapping[str, Any]) -> bool:
    with_, without = place.get("loss_with"), place.get("loss_without")
    return not place.get("user") and (with_ is None or without is None or with_ >= without)


def read(
    reader: Reader, arms: Sequence[Arm], *, network: bool, private: bool
) -> SecondConsent | None:
    """Return the second consent of a study; None if it has one consent.

    Raises
    ------
    StudyError : no arm ranks sites, or the study cannot rank them.
    """
    where = ("consent",)
    if isinstance(reader.get(where), dict):
        given = reader.mapping(where, KEYS)
        asked = reader.choice((*where, "ask"), (ONCE, AFTER), AFTER)
    else:
        given, asked = {}, reader.choice(where, (ONCE, AFTER), ONCE)
    if asked == ONCE:
        if "withdraw" in given:
            raise reader.doc.error(
                (*where, "withdraw"), f"nobody is asked again; set ask: {AFTER}, or leave this out."
            )
        return None
    if not any(ranks(arm) for arm in arms):
        raise reader.doc.error(
            where,
            "no arm ranks the sites before it trains. Add an arm of a method that does, such as "
            "ndoye, or leave this key out.",
        )
    if private:
        raise reader.doc.error(
            where, "a ranking is exact, and this study is private. Leave one of them out."
        )
    if "withdraw" not in given:
        return SecondConsent()
    at = (*where, "withdraw")
    if network:
        raise reader.doc.error(
            at, "over a network the people at each site answer; leave this key out."
        )
    if isinstance(given["withdraw"], list):
        names = reader.listed(at, "of sites")
        return SecondConsent(tuple(reader.text((*at, i)) for i in range(len(names))))
    if given["withdraw"] != NO_GAIN:
        raise reader.doc.error(at, f"expected a list of sites, or {NO_GAIN}.")
    return SecondConsent(no_gain=True)


def ranks(arm: Arm) -> bool:
    """Return whether an arm's fit over all sites can rank them first."""
    return arm.scope == "sites" and registry.find(arm.method).ranking is not None


def ranking_of(arm: Arm) -> Arm:
    """Return the arm that ranks the sites as `arm` does, and trains nothing."""
    return replace(
        arm, settings={**arm.settings, **(registry.find(arm.method).ranking or {})}, grid={}
    )


def twice(reader: Reader, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """Return each scenario with all sites, then with those that consent again.

    Raises
    ------
    StudyError : a scenario has the name of another's second form.
    """
    found: list[Scenario] = []
    for scenario in scenarios:
        again = replace(scenario, name=scenario.name + CONSENTED, after_ranking=True)
        found += [scenario, again]
    names = [s.name for s in found]
    if name := next((n for n in names if names.count(n) > 1), ""):
        raise reader.doc.error(
            ("scenarios",), f"{name!r} is the name of a scenario after the ranking; rename yours."
        )
    return tuple(found)


def _user_of(arm: Arm) -> str:
    """Return the site that an arm's model is for, or ""; with `personal: none` it is for all."""
    config = registry.find(arm.method).configure(arm.configured())
    return "" if getattr(config, "personal", "") == "none" else arm.user


def check_left(
    arms: Sequence[Arm], names: Collection[str], gone: Mapping[str, str], quorum: float,
    secure: str,
) -> None:  # fmt: skip
    """Check that a study can go on without the sites that withdrew.

    Parameters
    ----------
    names : all sites.
    gone : those that withdrew, with the reason.

    Raises
    ------
    FedcohortError : too few sites are left, or an arm's user withdrew.
    """
    left, n = len(names) - len(gone), len(names)
    who = ", ".join(f"{site} ({why.rstrip('.')})" for site, why in gone.items())
    for arm in arms:
        if (user := _user_of(arm)) in gone:
            raise FedcohortError(
                f"arm {arm.name!r} is for the patients of {user}, which withdrew after the "
                f"ranking ({gone[user].rstrip('.')}). Nothing was trained."
            )
    needed = max(1, math.ceil(quorum * n - 1e-9))
    masked = secure != "false" and n >= FEWEST
    if left < needed or (masked and left < FEWEST):
        rule = f"{needed} are needed (quorum)" if left < needed else (
            f"a masked sum needs {FEWEST} (privacy.secure_aggregation)"
        )  # fmt: skip
        raise FedcohortError(
            f"{left} of {n} sites consent after the ranking, and {rule}: {who}. Nothing was "
            f"trained."
        )
