"""Where an approved study itself has sums over fewer sites than can hide one another.

A coordinator says how many sites it asks, and would be believed by a site that knows no better. A
node knows how many sites its network has, from its own kit, and what the study does, from the
approved text. So in a network of three sites or more a sum is plain only

    tune    where each fold leaves a whole site out (centre-kfold) and two sites are left
    score   where the model of such a fold is judged on the site left out; the step tells nothing

and is masked in every other session, whatever the coordinator says. Sites that stay away change
nothing in that: a study that shall go on with two of a larger network's sites says so, with
`secure_aggregation: false`.

Revealed: nothing; this is made from a study's text alone.
"""

from __future__ import annotations

from fedcohort.study.deployed import holding
from fedcohort.study.deployed.sessions import Session
from fedcohort.study.deployed.terms import Terms
from fedcohort.study.privacy import FEWEST

#: How `Arm.folds` says that a fold is a site.
_SITES = "centre-kfold"


def is_few(terms: Terms, session: str, step: str, sites: int, asked: int | None) -> bool:
    """Return whether the study has a sum of a step over fewer than three of the network's sites.

    Parameters
    ----------
    sites : in the network.
    asked : how many the coordinator says that it asks.

    Raises
    ------
    VerbRefused : the study has no such session.
    """
    if sites < FEWEST:
        return True
    found = Session.parse(session, terms)
    if found.kind not in ("tune", "score") or terms.plan.arms[found.arm].folds != _SITES:
        return False
    if found.kind == "score":
        return step == holding.hold.name and asked == 1
    return sites - 1 < FEWEST and asked == sites - 1
