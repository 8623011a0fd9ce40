"""Which sites' replies a fit's calls lack, and why: what results.json says of it.

A reply is missing where a site did not answer, or where what it answered is not fit to be used
(`protocol.updates`), which is said with the reason. A row is made for each stretch of calls, so
that it says which they were. From a call that waits until its sites are back one is missing only
where it waited in vain; for how many rounds it did is told besides.

Revealed: names of sites and numbers of calls, and of a rejected reply which rule it broke.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedcohort.protocol.errors import SitesAway, SiteUnavailable

Call = tuple[int, str]


def stretches(
    missing: Iterable[Call], rejected: Mapping[Call, str], phase: str
) -> Iterator[dict[str, Any]]:
    """Yield a row for each site and stretch of calls that lack its reply.

    Parameters
    ----------
    missing : number of the call, and the site.
    rejected : of those, why the reply that came was not fit to be used.
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
    """Return a row of how many rounds a phase of the study waited for sites, if it did."""
    return [{"phase": phase, "rounds": rounds}] if rounds else []


def _runs(calls: list[int]) -> list[list[int]]:
    """Return numbers that rise as lists of which each has no gap."""
    found: list[list[int]] = []
    for call in calls:
        if found and call == found[-1][-1] + 1:
            found[-1].append(call)
        else:
            found.append([call])
    return found


def drawn_away(error: SiteUnavailable) -> str:
    """Return what an error says of sites that `availability` took away, and what helps there.

    The same sites are away in every run of the study, so that nobody can bring them back.
    """
    longer = "raise 'wait', " * isinstance(error, SitesAway)
    return (
        f"{str(error).partition(' Bring ')[0]} Sites are away by the study's 'availability', in "
        f"every run alike: {longer}lower 'away', list sites in 'always', or raise 'quorum'."
    )
