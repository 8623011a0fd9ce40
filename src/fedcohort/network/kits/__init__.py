"""The parties of a network: their kits, and how each knows the others."""

from fedcohort.network.kits.kit import Kit
from fedcohort.network.kits.make import ADDRESS, COORDINATOR, Network
from fedcohort.network.kits.members import pinned
from fedcohort.network.kits.parties import Parties, as_line, trouble

__all__ = [
    "ADDRESS",
    "COORDINATOR",
    "Kit",
    "Network",
    "Parties",
    "as_line",
    "pinned",
    "trouble",
]
