"""What an account has beside the public offer: capacity reservations and placement groups. Raw facts, as a cloud tells.

They change by the minute and are cheap to ask for, so they are published apart from the catalogue.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

BLOCK = "capacity-block"


class Reservation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Instances of one type in one zone that are paid for already. `free` of them run nothing now."""

    id: str
    instance_type: str
    zone: str
    free: int = 0
    kind: str = "default"  # or BLOCK, which ends by itself
    match: str = "targeted"  # or "open": takes instances that do not name it
    interruptible: bool = False
    expiring: bool = False  # a block shortly before its end, when nothing more is launched into it
    owner: str = ""
    end: str = ""  # RFC 3339; empty without an end


class PlacementGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How the instances of a group lie to each other. `partitions` is 0 unless the strategy is `partition`."""

    id: str
    name: str
    strategy: str  # cluster, partition or spread
    partitions: int = 0


class AccountFacts(msgspec.Struct, frozen=True, rename="camel"):
    """One complete look."""

    reservations: tuple[Reservation, ...] = ()
    placement_groups: tuple[PlacementGroup, ...] = ()

    @property
    def free(self) -> Mapping[str, int]:
        """Reservation id → instances that can still be launched into it."""
        return {r.id: 0 if r.expiring else r.free for r in self.reservations}

    @property
    def version(self) -> str:
        """Names the content; empty when there is nothing."""
        if not self.reservations and not self.placement_groups:
            return ""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]

    def group_of(self, selector: Mapping[str, Any]) -> PlacementGroup | None:
        """The group that a NodeClass's `placementGroupSelector` names, by id or name."""
        wanted_id, wanted_name = selector.get("id"), selector.get("name")
        for group in self.placement_groups:
            if (wanted_id and group.id == wanted_id) or (not wanted_id and wanted_name and group.name == wanted_name):
                return group
        return None


def encode_account(facts: AccountFacts) -> bytes:
    """JSON, for publishing."""
    return msgspec.json.encode(facts, order="deterministic")


def decode_account(data: bytes) -> AccountFacts:
    """Read it back.

    Raises:
        ValueError: it is damaged, or of a format that this version cannot read.
    """
    try:
        return msgspec.json.decode(data, type=AccountFacts)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the account's facts are damaged: {error}") from error
