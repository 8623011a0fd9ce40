"""What a node checks of a study that forgets hospitals, before its people decide on it.

Refused: a study that is not known here; another lead's; a text that differs from the first study's
beyond the key `forget`, as one without masks would; a withdrawal that its hospital did not sign, or
of another study. `study.at_site.forgetting` checks the calls.
"""

from __future__ import annotations

from fedcohort.network.state.study_store import StudyStore, short
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.errors import Refused
from fedcohort.secure.trust import Trust
from fedcohort.study.file.forget import without_key
from fedcohort.study.file.terms import Terms


def check(terms: Terms, lead: str, store: StudyStore, trust: Trust) -> None:
    """Check a study that forgets hospitals; any other passes.

    Raises
    ------
    Refused : "forget" or "withdrawal"; see this module.
    """
    asked = terms.plan.forget
    if asked is None:
        return
    if not store.has(asked.of):
        raise Refused(
            "forget",
            f"it forgets hospitals of the study {short(asked.of)}, which is not known here.",
        )
    if store.entry(asked.of).lead != lead:
        raise Refused("forget", f"the study {short(asked.of)} is of another lead.")
    first = Terms.from_json(Offer.from_bytes(store.offer(asked.of)).terms)
    same = without_key(terms.content) == without_key(first.content)
    if not same or terms.dictionary_content != first.dictionary_content:
        raise Refused(
            "forget",
            f"its text differs from that of the study {short(asked.of)} beyond the key 'forget'. "
            f"Let 'fedcohort forget' write it.",
        )
    line = store.line(asked.of)
    earlier = () if first.plan.forget is None else first.plan.forget.sites
    for record in asked.withdrawals:
        one = Withdrawal.of(record)
        one.verify(trust)
        if one.study not in line:
            raise Refused(
                "withdrawal",
                f"{one.site!r} withdrew from the study {short(one.study)}, and not from "
                f"{short(asked.of)}.",
            )
    if lost := sorted({*earlier} - {*asked.sites}):
        raise Refused("forget", f"it lacks the withdrawals of {', '.join(lost)}, forgotten before.")
