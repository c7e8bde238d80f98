"""Reserved capacity: how many instances of each reservation are free, and what planning takes of them.

A reservation is one instance type in one zone, paid for already. Each node that is planned into one takes exactly one
instance of it, whatever pool it is of, so a plan never counts on more than there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sawhorse_model.instances import CapacityType, Offering
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.requirements import Operator
from sawhorse_scheduling.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class Stock:
    """Free instances by reservation id. All pools of a problem share one; `left` shrinks as nodes are opened."""

    initial: Mapping[str, int]
    left: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with everything."""
        self.restore(self.initial)

    def restore(self, left: Mapping[str, int]) -> None:
        """Go back to an earlier state."""
        self.left = dict(left)

    def has(self, offering: Offering) -> bool:
        """Whether an offering may take part in planning: any that is not reserved, and reserved ones that are free."""
        return not is_reserved(offering) or self.initial.get(offering.reservation_id, 0) > 0

    def is_free(self, reservation: str) -> bool:
        """Whether an instance is left; of no reservation (empty) there always is."""
        return not reservation or self.left.get(reservation, 0) > 0

    def take(self, reservation: str, count: int) -> None:
        """Note nodes that are opened in a reservation."""
        if reservation:
            self.left[reservation] -= count


def is_reserved(offering: Offering) -> bool:
    """Whether it is an instance of a reservation."""
    return offering.capacity_type is CapacityType.RESERVED


def promised_to(claim: NodeClaim, label: str) -> tuple[str, ...]:
    """Ids of the reservations that a claim without a machine may still take an instance of.

    Args:
        label: names a node's reservation.
    """
    if claim.provider_id:
        return ()
    return next((s.values for s in claim.requirements if s.key == label and s.operator is Operator.IN), ())


def free_instances(snapshot: Snapshot) -> Stock:
    """What each reservation has left: the least that any pool says, less what claims have taken meanwhile.

    Without a label that names a reservation a claim could not ask for one; then none is planned with.
    """
    found: dict[str, int] = {}
    if not snapshot.options.reservation_labels:
        return Stock({})
    for pool in snapshot.pools:
        for kind in pool.instance_types:
            for offering in kind.offerings:
                if is_reserved(offering) and offering.available and offering.reservation_id:
                    count = offering.reservation_count
                    found[offering.reservation_id] = min(found.get(offering.reservation_id, count), count)
    taken = snapshot.reservations_taken
    return Stock({key: count - taken.get(key, 0) for key, count in sorted(found.items()) if count > taken.get(key, 0)})
