"""Sums over sites that reveal the total alone.

A site has a `Member`; the coordinator has a `Gathering` for each epoch and a `Summing` for each
call; `messages` pass between them. Three sites in one process, every stage in one call:

    names = ("north", "south", "west")
    identities = {name: Identity.new() for name in names}
    context = Context("run", "session", "history", {k: i.public for k, i in identities.items()})
    members = {name: Member(name, identities[name], context) for name in names}
    epoch = prepare(members, Gathering(context, epoch=0, slots=4))

    replies = {name: {"x_sum": np.array([1.5, -2.0])} for name in names}
    layout = Layout.of(replies["north"])
    vectors = {name: encode(reply, layout, n=3) for name, reply in replies.items()}
    total, _ = masked_sum(members, epoch, vectors, layout, digest("step", "arguments"))
    decode(total, layout)                                       # {"x_sum": array([4.5, -6.0])}

Without masks the bits are the same: `add` the vectors, and `decode`.
"""

from fedcohort.secure.arithmetic import ring
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.arithmetic.ring import add, decode, encode, error, zeros
from fedcohort.secure.context import Context, Identity, digest, settled_as, verify
from fedcohort.secure.exchange.gathering import Gathering
from fedcohort.secure.exchange.member import Member
from fedcohort.secure.exchange.messages import (
    FEWEST,
    Advert,
    Answer,
    Asked,
    Ballot,
    Masked,
    Post,
    Roll,
    Sealed,
    Signed,
    Survivors,
)
from fedcohort.secure.exchange.rehearse import masked_sum, prepare
from fedcohort.secure.exchange.rule import InMemory, Settled, ThresholdRule
from fedcohort.secure.exchange.strict import MEMBERS, SLOTS
from fedcohort.secure.exchange.summing import Summing

__all__ = [
    "Advert",
    "Answer",
    "Asked",
    "Ballot",
    "Context",
    "FEWEST",
    "Gathering",
    "Identity",
    "InMemory",
    "Layout",
    "MEMBERS",
    "Masked",
    "Member",
    "Post",
    "Roll",
    "SLOTS",
    "Sealed",
    "Settled",
    "Signed",
    "Summing",
    "Survivors",
    "ThresholdRule",
    "add",
    "decode",
    "digest",
    "encode",
    "error",
    "masked_sum",
    "prepare",
    "ring",
    "settled_as",
    "verify",
    "zeros",
]
