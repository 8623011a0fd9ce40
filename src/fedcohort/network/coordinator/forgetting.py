"""A study that forgets hospitals, at the coordinator: the sites it asks, the models it starts from.

It asks the sites of the study that was run, without those that withdrew; the quorum is a share of
these. A line of studies, each of which forgets in the one before, begins with the run whose models
all of them are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedcohort.audit.forgetting import check_site
from fedcohort.network.coordinator.runs import Run
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.errors import DataError, FedcohortError, Refused
from fedcohort.secure.trust import Trust
from fedcohort.study.file.forget import Forget
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.privacy import FEWEST, checked_secure
from fedcohort.study.file.terms import Terms
from fedcohort.study.sites.few_sites import check_sites


def left(first: Run, plan: Plan, trust: Trust, network: int) -> list[str]:
    """Return the sites that stay, checked.

    Parameters
    ----------
    first : the study in which hospitals are forgotten.
    network : number of the network's sites.

    Raises
    ------
    Refused : it is not finished, or a withdrawal is not signed by its hospital.
    FedcohortError : a site took no part, or is the last one, or too few stay.
    """
    asked = plan.forget
    assert asked is not None
    if first.state != "done":
        raise Refused("forget", f"{first.study} is {first.state}; it left no models yet.")
    for record in asked.withdrawals:
        Withdrawal.of(record).verify(trust)
    stay = [n for n in first.parties if n not in first.withdrew]
    before = _asked_of(first)
    gone = () if before is None else before.sites
    for site in [s for s in asked.sites if s not in gone] or asked.sites[:1]:
        check_site(first.study, stay, gone, site)
        stay.remove(site)
    if plan.privacy.secure != "false" and network >= FEWEST and len(stay) < FEWEST:
        raise DataError(
            f"{first.study}: without {', '.join(asked.sites)} {len(stay)} of the sites stay, and "
            f"sums are masked among {FEWEST} or more. Nothing was asked. Delete the models."
        )
    checked_secure(plan.privacy.secure, len(stay))
    check_sites(plan, len(stay))
    return sorted(stay)


def places(runs: Mapping[str, Run], of: str) -> tuple[Path, Path, tuple[str, ...]]:
    """Return the folder of the first run, that of the study `of`, and the sites that it lacks.

    Raises
    ------
    FedcohortError : one of them is no longer here.
    """
    run = _there(runs, of)
    old = run.out
    asked = _asked_of(run)
    gone = () if asked is None else asked.sites
    while asked is not None:
        run = _there(runs, asked.of)
        asked = _asked_of(run)
    return run.out, old, gone


def _there(runs: Mapping[str, Run], study: str) -> Run:
    run = runs.get(study)
    if run is None or not (run.out / "models").is_dir():
        raise FedcohortError(
            f"the coordinator has no models of the study {study[:12]} any more, from which a "
            f"hospital could be forgotten. Run the study anew without it."
        )
    return run


def _asked_of(run: Run) -> Forget | None:
    return Terms.from_json(Offer.from_bytes(run.offer).terms).plan.forget
