"""Second consents for results.json: each site's place in the ranking, and whether it withdrew.

Revealed: what each site was told of itself (`at_site.ranked`), which the coordinator knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.protocol import FedcohortError
from fedcohort.study.file.second_consent import AFTER, CONSENTED, check_left
from fedcohort.study.run.pieces import Shelf


def consent_of(fits: Shelf, gone: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the key ``consent`` of results.json; nothing if sites are asked once.

    Each scenario has a row with the name of its second form (``after``), the sites' ``places`` and
    ``withdrew``, by site why; ``failed`` says why it could not go on.

    Parameters
    ----------
    gone : over a network, why each site withdrew.
    """
    plan = fits.plan
    if plan.again is None:
        return {}
    rows: list[dict[str, Any]] = []
    for i, scenario in enumerate(plan.scenarios):
        if scenario.after_ranking:
            continue
        after = scenario.name + CONSENTED if gone is None else scenario.name
        row: dict[str, Any] = {"scenario": scenario.name, "after": after, "failed": ""}
        withdrew: Mapping[str, str] = {}
        places: Mapping[str, list[dict[str, Any]]] = {}
        try:
            places = fits.places(i)
            withdrew = plan.again.withdrawn(places) if gone is None else gone
            check_left(plan.arms, places, withdrew, plan.quorum, plan.privacy.secure)
        except FedcohortError as error:
            row["failed"] = str(error)
        told = [{"site": site, **place} for site in sorted(places) for place in places[site]]
        rows.append(row | {"withdrew": dict(withdrew), "places": told})
    return {"consent": {"ask": AFTER, "simulated": gone is None, "scenarios": rows}}


def gone_of(fits: Shelf, scenario: int) -> frozenset[str]:
    """Return the sites that are not in a scenario of one process, since they withdrew."""
    plan = fits.plan
    if plan.again is None or not plan.scenarios[scenario].after_ranking:
        return frozenset()
    try:
        return frozenset(plan.again.withdrawn(fits.places(scenario - 1)))
    except FedcohortError:
        return frozenset()
