"""Checks of the replies of one call, which are then added or listed.

An unusable reply (`protocol.updates`) is left out with its reason; its site counts as missing for
the call. Sums are formed per form of reply (shapes and types), which bounds memory, and the form of
most sites counts. Only updates of a model are kept until all have come.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedcohort.arrays import Array
from fedcohort.protocol import updates
from fedcohort.protocol.errors import ReplyRejected, SiteUnavailable
from fedcohort.protocol.host import Call
from fedcohort.protocol.message import Total, parameters_of
from fedcohort.runtime.exact import ExactTotal


class Replies:
    """The replies of one call so far.

    Parameters
    ----------
    weights : by site, of a sum; 1 if absent.
    exact : number of sites of an exact sum (`exact`); 0 for one of floats.
    compare : compare updates between sites (`updates.too_far`); not for exact sums, which must
        equal
        masked ones.

    Attributes
    ----------
    present : sites whose replies count, in order of arrival.
    missing : the others that were heard of.
    rejected : by site, why its reply does not count.
    """

    def __init__(
        self, call: Call, weights: Mapping[str, float], *, exact: int = 0, compare: bool = True
    ):
        self._call, self._weights = call, weights
        self._sums = call.verb == "sum"
        self._moves = compare and not exact and hasattr(call.step.reply, "moved")
        self._exact = exact
        self._totals: dict[updates.Form, Total | ExactTotal] = {}
        self._kept: dict[str, dict[str, Array]] = {}
        self._forms: dict[str, updates.Form] = {}
        self._moved: dict[str, float | tuple[float, ...]] = {}
        self.present: list[str] = []
        self.missing: list[str] = []
        self.rejected: dict[str, str] = {}

    def take(self, site: str, reply: dict[str, Array] | SiteUnavailable) -> None:
        """Take one site's reply, or why there is none.

        Raises
        ------
        ValueError : the call has no arguments for this site.
        """
        if isinstance(reply, SiteUnavailable):
            self._drop(site, reply)
            return
        call = self._call
        new = not isinstance(reply, updates.Fit)
        heeds = updates.heeds(call.step.reply) and (new or self._moves)
        asked = call.arguments.at(site) if heeds else {}
        try:
            if new:
                updates.check(site, call.number, call.step, reply, asked)
        except ReplyRejected as error:
            self._drop(site, error)
            return
        self.present.append(site)
        if self._sums:
            self._forms[site] = updates.form(reply)
        if self._moves:
            self._moved[site] = call.step.reply(**reply).moved(asked)
        if self._moves or not self._sums:
            self._kept[site] = reply
        else:
            self._add(site, reply)

    def close(self) -> tuple[dict[str, Array], ...]:
        """Return the sum alone, or each reply of those `present`, after comparing the sites.

        Raises
        ------
        ReplyRejected : the forms of the replies differ, and none has a majority.
        """
        call = self._call
        if self._sums:
            self._leave(updates.strangers(self._forms, call.number, call.step))
        if self._moves:
            self._leave(updates.too_far(self._moved, call.number, call.step))
        if not self._sums:
            return tuple(self._kept[site] for site in self.present)
        for site in self.present if self._moves else ():
            self._add(site, self._kept[site])
        return (self._totals[self._forms[self.present[0]]].arrays,) if self.present else ({},)

    def _add(self, site: str, reply: dict[str, Array]) -> None:
        form = self._forms[site]
        if form not in self._totals:
            coarse = parameters_of(self._call.step.reply)
            weighted = bool(self._weights)
            self._totals[form] = (
                ExactTotal(self._exact, weighted=weighted, coarse=coarse)
                if self._exact
                else Total()
            )
        self._totals[form].add(site, reply, self._weights.get(site, 1.0))

    def _leave(self, odd: Mapping[str, ReplyRejected]) -> None:
        for site, error in odd.items():
            self.present.remove(site)
            self._moved.pop(site, None)
            self._drop(site, error)

    def _drop(self, site: str, error: SiteUnavailable) -> None:
        self.missing.append(site)
        if isinstance(error, ReplyRejected):
            self.rejected[site] = str(error)
