"""In which partition of its placement group a fleet lies, and which of them were full lately."""

import hashlib
from collections.abc import Callable, Collection, Iterable

from sawhorse_catalog.account import PlacementGroup
from sawhorse_cloud.errors import InsufficientCapacityError
from sawhorse_model.aws import PLACEMENT_GROUP_PARTITION
from sawhorse_model.requirements import Requirements

FULL_SECONDS = 180.0
Pair = tuple[str, str]
"""Instance type and zone."""


class FullPartitions:
    """Remembers where EC2 had no room. `monotonic` is a clock in seconds.

    For the choice of the next fleet only: what is out of capacity for plans is the catalogue's business.
    """

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[tuple[str, int], dict[Pair, float]] = {}  # (group, partition) → when to try again

    def mark(self, group: str, partition: int, pair: Pair) -> None:
        """EC2 had none of the type in the zone for this partition."""
        self._until.setdefault((group, partition), {})[pair] = self._monotonic() + FULL_SECONDS

    def full(self, group: str, pairs: Iterable[Pair]) -> frozenset[int]:
        """The partitions of a group in which none of the pairs is to be had."""
        asked, now = frozenset(pairs), self._monotonic()
        found = set()
        for (name, partition), marks in list(self._until.items()):
            self._until[name, partition] = living = {pair: until for pair, until in marks.items() if until > now}
            if not living:
                del self._until[name, partition]
            elif name == group and asked <= living.keys():
                found.add(partition)
        return frozenset(found)


def partition_for(
    requirements: Requirements, group: PlacementGroup | None, token: str, full: Collection[int] = ()
) -> int:
    """The partition that a fleet starts in; 0 without partitions.

    Of those that the claim allows, the token picks one: fleets spread over all. One that is full is picked only where
    all are.

    Args:
        full: partitions in which nothing that the fleet asks for was to be had lately.

    Raises:
        InsufficientCapacityError: the group has none of the partitions that the claim allows.
    """
    if group is None or not group.partitions:
        return 0
    asked = requirements.get(PLACEMENT_GROUP_PARTITION)
    allowed = [n for n in range(1, group.partitions + 1) if asked is None or asked.has(str(n))]
    if not allowed:
        raise InsufficientCapacityError(
            f"the claim allows none of the {group.partitions} partitions of placement group {group.name or group.id}",
            action=f"Allow partitions 1 to {group.partitions} in the NodePool.",
        )
    allowed = [n for n in allowed if n not in full] or allowed
    return allowed[int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big") % len(allowed)]
