"""A site's part in forgetting other hospitals, from what it kept of a fit.

With q the old posterior, t_k the factor of hospital k, S the hospitals of the fit and X those that
leave, the others reveal Π_{k ∈ S∖X} t_k. Divided by it, q gives Π_{k ∈ X} t_k, which follows from
the old and the new model anyway. A product over a smaller set R would also give Π_{k ∈ S∖X∖R} t_k,
of hospitals that stay: with one left out, its factor. So a sum over kept parts is answered only
over S∖X, all of it, and masked if the fit's sums were. That X left is signed by X itself
(`network.state.withdrawals`).

Revealed: what the method's steps declare; by a refusal, names of sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol import Refused
from fedcohort.protocol.host import Call
from fedcohort.report import words

#: Kinds of sessions → the kind of fit whose kept parts they begin with: that of the first repeat's
#: training rows, and that of all rows.
FORGETS: Mapping[str, str] = {"forget": "fit", "forget-all": "final"}
#: Codes of refusals: the site has kept nothing; a sum of kept parts is not over all that stay.
NOT_KEPT, FEWER = "kept", "forget"
#: With these, nothing of a kept part has left, and a new fit forgets.
UNABLE = (NOT_KEPT, FEWER)

Check = Callable[[Call, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Kept:
    """What a site keeps of a fit.

    Attributes
    ----------
    state : arrays that the fit left here.
    members : sites of the fit's masked sums; empty if its sums were plain, so that the coordinator
        knows each site's part already.
    """

    state: Mapping[str, Array] = field(repr=False)
    members: frozenset[str] = frozenset()


def place_of(kind: str, arm: int) -> str:
    """Return the name of what is kept of a session of this kind."""
    return f"{FORGETS.get(kind, kind)}-a{arm:02d}"


def not_kept(site: str, why: str) -> Refused:
    """Return the refusal of a site that has nothing of the fit."""
    return Refused(NOT_KEPT, f"site {site!r} keeps nothing of this fit: {why}.")


def only_among(members: frozenset[str], gone: tuple[str, ...], check: Check) -> Check:
    """Return `check`, which also refuses sums of kept parts over other sites than those that stay.

    Parameters
    ----------
    members : as of `Kept`.
    gone : sites that leave.
    """
    stay = members - {*gone}

    def checked(call: Call, arguments: Mapping[str, Any]) -> None:
        check(call, arguments)
        if call.verb != "sum" or call.step.state is None or not members:
            return
        if frozenset(call.among) != stay:
            over = words.listed(sorted(call.among)) or "unmasked parts"
            raise Refused(
                FEWER,
                f"{call.step.name} is asked over {over}, and what is kept of this fit is summed "
                f"over {words.listed(sorted(stay))} alone, masked. Over fewer sites it would tell "
                f"the part of a hospital that stays.",
            )

    return checked
