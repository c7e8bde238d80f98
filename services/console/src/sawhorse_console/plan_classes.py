"""What a NodeClass makes of the catalogue, offline, and what to tell about it: types that fall out, reservations."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from sawhorse_catalog.aws.node_class import reservations_of
from sawhorse_catalog.aws.offerings import is_usable
from sawhorse_catalog.aws.resolve import Resolution
from sawhorse_model import aws
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_scheduling.reservations import promised_to

_TERMS = "capacityReservationSelectorTerms"
_EXAMPLES = 3


def told_of_class(node_class: aws.EC2NodeClass, found: Resolution, usual: Collection[str]) -> Iterator[str]:
    """Warnings about one NodeClass, one line each.

    Args:
        usual: types that no NodeClass could use.
    """
    name = node_class.node_class.meta.name
    yield from _excluded(name, {kind: why for kind, why in found.excluded.items() if kind not in usual}, found)
    yield from _reservations(name, node_class, found.instance_types)


def _excluded(name: str, excluded: Mapping[str, str], found: Resolution) -> Iterator[str]:
    """Which types the class's own fields rule out: a pool must not shrink silently."""
    causes = Counter(excluded.values())
    for cause, count in sorted(causes.items(), key=lambda entry: (-entry[1], entry[0])):
        types = sorted(kind for kind, reason in excluded.items() if reason == cause)
        some = ", ".join(types[:_EXAMPLES]) + (", …" if count > _EXAMPLES else "")
        yield f"EC2NodeClass {name}: {count} of {len(found.instance_types)} instance types fall out ({some}): {cause}"


def _reservations(name: str, node_class: aws.EC2NodeClass, types: Sequence[InstanceType]) -> Iterator[str]:
    offered = {
        o.reservation_id: o
        for t in types
        for o in t.offerings
        if o.capacity_type is CapacityType.RESERVED and o.reservation_id
    }
    usable = [r.id for r in reservations_of(node_class) if is_usable(r)]
    unknown = [key for key in usable if key not in offered or not offered[key].reservation_count]
    if unknown:
        yield (
            f"EC2NodeClass {name}: files do not tell how many instances of {', '.join(unknown)} are free; none is "
            "planned with. A catalogue file can, by reservationId and reservationCount"
        )
    if offered and not usable and not node_class.node_class.spec.get(_TERMS):
        yield (
            f"EC2NodeClass {name}: it has no {_TERMS}, so a cluster would not aim at the catalogue's "
            f"{len(offered)} reservations; the plan counts on them"
        )


def reservations_taken(claims: Sequence[NodeClaim]) -> dict[str, int]:
    """Instances that claims without a machine have been promised: reservation id → number."""
    taken: Counter[str] = Counter()
    for claim in claims:
        if not claim.meta.is_deleting:
            taken.update(promised_to(claim, aws.RESERVATION_ID))
    return dict(taken)
