"""What a steward's page says of hospitals that leave: the keys `keep` and `forget` of a study.

Revealed: nothing leaves the site.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedcohort.network.state.study_store import short
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.report import words
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.forget import keeps
from fedcohort.study.file.plan import Plan


def made_again(plan: Plan) -> list[Arm]:
    """Return the arms whose models a study that forgets hospitals makes again."""
    asked = plan.forget
    assert asked is not None
    arms = (a for a in plan.arms if a.scope == "sites" and not a.every)
    return [a for a in arms if asked.arm in ("", a.name)]


def kept(plan: Plan) -> Iterator[str]:
    """Yield what stays at this hospital after the study."""
    if not plan.keep:
        return
    named = words.listed([arm.title for arm in plan.arms if keeps(arm)])
    yield (
        f"Your node keeps this hospital's own part of the model {named} after the study, in its "
        f"folder 'state', readable by the node's user alone. The part is computed from your "
        f"patients, and is never sent. With it, others can make the model without a hospital that "
        f"withdraws; you are asked again then."
    )
    yield "'fedcohort node kept' lists and deletes it. 'fedcohort node withdraw' deletes it, too."


def forgotten(plan: Plan) -> Iterator[str]:
    """Yield who left, and how the models are made without them."""
    asked = plan.forget
    if asked is None:
        return
    for record in asked.withdrawals:
        one = Withdrawal.of(record)
        yield (
            f"{one.site} {one.said}. Signed by {one.by}; the signature was verified when this "
            f"study came."
        )
    yield (
        f"The models of {plan.study} ({short(asked.of)}) are made again without "
        f"{words.listed(asked.sites)}. The columns, rows and settings are those of that study."
    )
    arms = made_again(plan)
    parts = [a.title for a in arms if keeps(a)] if plan.keep else []
    if parts:
        yield (
            f"For {words.listed(parts)} your node uses what it kept of that fit. It answers only "
            f"with all hospitals that stay, so that no part of one of them can be told."
        )
    yield (
        "With the old models the new ones tell what the hospitals that leave had added. That is so "
        "for any exact forgetting."
    )


def fits(plan: Plan) -> str:
    """Say how often models are fitted in a study that forgets hospitals."""
    asked = plan.forget
    assert asked is not None
    again = " Each is also fitted anew, to compare with." * asked.compare
    return (
        f"Each is made again, from what hospitals kept or by a new fit. No model is judged, and no "
        f"table is described.{again}"
    )
