"""Masked sums over a runtime: their messages, the site's end, and the coordinator's side."""

from fedcohort.runtime.masked.calls import STAGES, Stage, part_bytes
from fedcohort.runtime.masked.end import (
    ANY,
    FEW,
    NEVER,
    Keys,
    MaskedEnd,
    SumRule,
    check_hidden,
    check_sum,
    share_of,
)
from fedcohort.runtime.masked.local import LocalMasks
from fedcohort.runtime.masked.remote import MaskedSums

__all__ = [
    "ANY",
    "FEW",
    "Keys",
    "LocalMasks",
    "MaskedEnd",
    "MaskedSums",
    "NEVER",
    "STAGES",
    "Stage",
    "SumRule",
    "check_hidden",
    "check_sum",
    "part_bytes",
    "share_of",
]
