"""Missing replies of a fit, for results.json: which site, which call, why.

A reply is missing if a site did not answer, or if its answer was rejected (`protocol.updates`);
then the reason is given. Each row is about a range of calls. A call that waits for sites lacks a
reply only if it waited in vain; the rounds of waiting are reported separately.

Revealed: names of sites and numbers of calls; of a rejected reply, the rule it broke.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedcohort.protocol.errors import SitesAway, SiteUnavailable

Call = tuple[int, str]


def stretches(
    missing: Iterable[Call], rejected: Mapping[Call, str], phase: str
) -> Iterator[dict[str, Any]]:
    """Yield a row for each site and range of calls that lack its reply.

    Parameters
    ----------
    missing : number of the call, and the site.
    rejected : of those, why the reply was rejected.
    phase : of the study, such as "fit".
    """
    calls: dict[tuple[str, bool], list[int]] = {}
    for call, site in missing:
        calls.setdefault((site, (call, site) in rejected), []).append(call)
    for (site, odd), missed in sorted(calls.items()):
        for n in _runs(missed):
            row = {"phase": phase, "site": site, "calls": len(n), "first": n[0], "last": n[-1]}
            yield row | ({"rejected": rejected[n[0], site]} if odd else {})


def waits(rounds: int, phase: str) -> list[dict[str, Any]]:
    """Return a row with a phase's rounds of waiting for sites, if any."""
    return [{"phase": phase, "rounds": rounds}] if rounds else []


def _runs(calls: list[int]) -> list[list[int]]:
    """Return rising numbers as lists without gaps."""
    found: list[list[int]] = []
    for call in calls:
        if found and call == found[-1][-1] + 1:
            found[-1].append(call)
        else:
            found.append([call])
    return found


def drawn_away(error: SiteUnavailable) -> str:
    """Return an error's text about sites that `availability` took away, with a remedy.

    The same sites are away in every run of the study, so nobody can bring them back.
    """
    longer = "raise 'wait', " * isinstance(error, SitesAway)
    return (
        f"{str(error).partition(' Bring ')[0]} Sites are away by the study's 'availability', in "
        f"every run alike: {longer}lower 'away', list sites in 'always', or raise 'quorum'."
    )
