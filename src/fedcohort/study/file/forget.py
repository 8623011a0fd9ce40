"""The keys `keep:` and `forget:` of a study over a network: a hospital can leave its models later.

    keep: true               what methods leave at hospitals for their own fit stays there (factors)
    forget:                  a study that forgets hospitals; `fedcohort forget` writes it
      of: HASH               the study that was run, or the last one that forgot in it
      withdrawals: [{site, study, reason, by, at, signature, certificate}]
      arm, rounds, compare   options of the command

Apart from `forget`, the text is that of the study that was run: sites check that. Each withdrawal
is signed at the hospital that leaves, so no coordinator can leave a hospital out by itself.

Revealed: nothing; this module reads text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fedcohort.protocol import registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.reader import Reader

#: Keys of the study file.
KEEP, FORGET = "keep", "forget"
_KEYS = ("of", "withdrawals", "arm", "rounds", "compare")
#: Texts of a withdrawal.
RECORD = ("site", "study", "reason", "by", "at", "signature", "certificate")
#: Most characters of one of them.
LONGEST = 8192
#: Most hospitals that one study forgets, and most rounds.
MOST, MOST_ROUNDS = 100, 100_000


@dataclass(frozen=True)
class Forget:
    """What a study forgets.

    Attributes
    ----------
    of : hash of the study whose models are made without some hospitals.
    withdrawals : the signed requests of these hospitals.
    arm : name of the only arm; "": all.
    rounds : of the refinement; 0: the method's share of the fit's.
    compare : also make a new fit, to compare with.
    """

    of: str
    withdrawals: tuple[Mapping[str, str], ...]
    arm: str = ""
    rounds: int = 0
    compare: bool = True

    @property
    def sites(self) -> tuple[str, ...]:
        """The hospitals that leave, sorted."""
        return tuple(sorted(w["site"] for w in self.withdrawals))


def keeps(arm: Arm) -> bool:
    """Return whether an arm leaves something at hospitals from which one can be forgotten."""
    method = registry.find(arm.method)
    if method.forget is None or arm.scope != "sites" or arm.every:
        return False
    return any(step.keeps for step in method.asked(method.configure(arm.configured())))


def read_keep(reader: Reader, arms: Sequence[Arm], *, private: bool) -> bool:
    """Return whether hospitals keep their parts.

    Raises
    ------
    StudyError : no arm leaves any, or the study is private.
    """
    if not reader.flag((KEEP,)):
        return False
    if private:
        raise reader.doc.error(
            (KEEP,),
            "this study is private, and a private fit is forgotten by a new fit alone. Leave this "
            "key out.",
        )
    if not any(map(keeps, arms)):
        raise reader.doc.error(
            (KEEP,),
            "no arm leaves parts of its fit at hospitals, so each is forgotten by a new fit. Leave "
            "this key out.",
        )
    return True


def read_forget(reader: Reader, arms: Sequence[Arm], *, network: bool) -> Forget | None:
    """Return what a study forgets; None for an ordinary study.

    Raises
    ------
    StudyError : a key is unknown or has an impossible value, or it is no study over a network.
    """
    where = (FORGET,)
    if reader.get(where) is None:
        return None
    given = reader.mapping(where, _KEYS, required=("of", "withdrawals"))
    if not network:
        raise reader.doc.error(
            where, "in one process 'fedcohort forget DIR --site X' does this; leave this key out."
        )
    of = reader.text((*where, "of"))
    if len(of) != 64 or set(of) - set("0123456789abcdef"):
        raise reader.doc.error((*where, "of"), "expected a study's whole hash, 64 digits.")
    at = (*where, "withdrawals")
    items = reader.listed(at, "of signed withdrawals")
    found = tuple(_record(reader, i, item) for i, item in enumerate(items))
    names = [one["site"] for one in found]
    if not 0 < len(names) <= MOST or len(set(names)) < len(names):
        raise reader.doc.error(at, f"expected 1 to {MOST} withdrawals, each of another site.")
    arm = (
        reader.choice((*where, "arm"), [a.name for a in arms])
        if given.get("arm") is not None
        else ""
    )
    rounds = 0
    if given.get("rounds") is not None:
        rounds = reader.whole((*where, "rounds"), 0, low=1, high=MOST_ROUNDS)
    compare = reader.flag((*where, "compare")) if "compare" in given else True
    return Forget(of, found, arm, rounds, compare)


def _record(reader: Reader, i: int, item: object) -> dict[str, str]:
    where = (FORGET, "withdrawals", i)
    record = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    texts = all(isinstance(v, str) and len(v) <= LONGEST for v in record.values())
    if sorted(record) != sorted(RECORD) or not texts:
        raise reader.doc.error(
            where, f"expected the texts {', '.join(RECORD)}, as 'fedcohort node withdraw' wrote "
            f"them.",
        )  # fmt: skip
    return {key: record[key] for key in RECORD}


def without_key(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's content without the key `forget`."""
    return {k: v for k, v in content.items() if k != FORGET}
