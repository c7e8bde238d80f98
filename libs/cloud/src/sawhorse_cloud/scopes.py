"""To whom a lack of capacity applies: everybody, or only those who use a subnet, a placement group, a reservation.

A scope is written as one word, `subnet/subnet-1` or `group/pg-1/3`, so that it can be stored and sent. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum

ANY = "*"
"""In place of an instance type or a zone: all that the scope covers."""


class ScopeKind(StrEnum):
    """What a lack of capacity is limited to."""

    SUBNET = "subnet"  # id; no free address: whoever has no other subnet in the zone
    GROUP = "group"  # id of a placement group, and the partition if it has some
    RESERVATION = "reservation"  # id of a capacity reservation that is used up
    QUOTA = "quota"  # a class of instance types that share a quota, from a number of vCPUs on


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope. `number` is the partition of a group (0: the whole), or the vCPUs of a quota."""

    kind: ScopeKind
    id: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}/{self.number}" if self.number else f"{self.kind}/{self.id}"


def parse_scope(text: str) -> Scope | None:
    """A scope from its word; None where it is none that we know."""
    kind, _, rest = text.partition("/")
    name, _, number = rest.partition("/")
    if kind not in set(ScopeKind) or not name or ":" in text or not (number == "" or number.isdecimal()):
        return None
    return Scope(ScopeKind(kind), name, int(number or 0))
