"""Reserved capacity in a plan: never more nodes than a reservation has free, and claims that ask for exactly it."""

from collections import Counter
from collections.abc import Iterator

from sawhorse_model.labels import CAPACITY_TYPE, normalize
from sawhorse_scheduling.plan import Plan, PlannedNode
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_testing.checker_labels import holds


def free_in(snapshot: Snapshot, reservation: str) -> int:
    """Free instances of a reservation: the least that any pool is told, less what is taken already."""
    told = [
        offer.reservation_count
        for pool in snapshot.pools
        for kind in pool.instance_types
        for offer in kind.offerings
        if offer.available and offer.capacity_type == "reserved" and offer.reservation_id == reservation
    ]
    return min(told, default=0) - snapshot.reservations_taken.get(reservation, 0)


def check_reservations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """One line per reservation that is overdrawn, and per node that is not clear or not right about where it runs."""
    used = Counter(node.reservation_id for node in plan.new_nodes if node.reservation_id)
    for reservation, count in used.items():
        if count > free_in(snapshot, reservation):
            yield f"reservation {reservation}: {count} nodes, {free_in(snapshot, reservation)} instances are free"
    label = next(iter(snapshot.options.reservation_labels), "")
    for node in plan.new_nodes:
        yield from _pool_agrees(snapshot, node)
        kinds = node.requirements.get_or_any(CAPACITY_TYPE)
        if not node.reservation_id:
            if kinds.has("reserved") and label:
                yield f"{node.name}: may be launched into a reservation that it does not count for"
            continue
        asked = node.requirements.get_or_any(label)
        if kinds.complement or set(kinds.values) != {"reserved"} or node.capacity_type != "reserved":
            yield f"{node.name}: counts for {node.reservation_id}, but may be bought"
        if asked.complement or set(asked.values) != {node.reservation_id}:
            yield f"{node.name}: its claim does not name reservation {node.reservation_id}"


def _pool_agrees(snapshot: Snapshot, node: PlannedNode) -> Iterator[str]:
    """What the node's pool asks of the labels that reserved capacity alone has."""
    labels = snapshot.options.reservation_labels
    pool = next((p for p in snapshot.pools if p.nodepool.meta.name == node.nodepool), None)
    for spec in pool.nodepool.template.requirements if pool is not None else ():
        key = normalize(spec.key)
        if pool is None or key not in labels:
            continue
        values: list[str | None] = [None]
        if node.reservation_id:
            kind = next((t for t in pool.instance_types if t.name == node.instance_type), None)
            told = kind.requirements.get(key) if kind is not None else None
            values = [node.reservation_id] if key == labels[0] else [*(told.values if told is not None else ())]
        if not any(holds(spec, value) for value in values):
            yield f"{node.name}: breaks the pool's requirement on {key}"
