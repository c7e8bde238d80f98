"""Which instance types and offerings a launch asks EC2 for. Pure: claim, types, zones and images in, a choice out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sawhorse_catalog.account import Reservation
from sawhorse_cloud.errors import CloudError, InsufficientCapacityError
from sawhorse_cloud_aws.amis import match_ami
from sawhorse_cloud_aws.reserved import RESERVATION_LABELS, is_launchable, only_reserved, reservation_labels
from sawhorse_model.aws import AMD_GPU, GAUDI, NEURON, NVIDIA_GPU, SIZE, TENANCY, ZONE_ID, Ami
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import MIN_VALUES_RELAXED
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.resources import fits

MOST_TYPES = 60
# EC2 takes no more overrides in one request.
MOST_OVERRIDES = 300
_EXOTIC = (NVIDIA_GPU, AMD_GPU, GAUDI, NEURON)
_WIDEN = "Allow more instance types or zones in the NodePool."


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance type to ask for: the offerings of one capacity type, cheapest first, and the image that boots it."""

    type: InstanceType
    offerings: tuple[Offering, ...]
    ami: Ami

    @property
    def price(self) -> float:
        """Of the cheapest offering."""
        return self.offerings[0].price


@dataclass(frozen=True, slots=True)
class Choice:
    """What a launch asks for, the cheapest type first. All offerings are of `capacity_type`."""

    capacity_type: CapacityType
    tenancy: str
    candidates: tuple[Candidate, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(instance type, zone) of all offerings."""
        return tuple((c.type.name, o.zone) for c in self.candidates for o in c.offerings)

    def cheapest(self, count: int) -> "Choice":
        """The same with no more than the `count` cheapest offerings."""
        listed = [(o.price, c.type.name, o.zone) for c in self.candidates for o in c.offerings]
        if len(listed) <= count:
            return self
        kept = {(name, zone) for _, name, zone in sorted(listed)[:count]}
        shortened = (
            replace(c, offerings=tuple(o for o in c.offerings if (c.type.name, o.zone) in kept))
            for c in self.candidates
        )
        return replace(self, candidates=tuple(c for c in shortened if c.offerings))


def wanted(claim: NodeClaim) -> Requirements:
    """What a claim asks of its machine: requirements and labels together."""
    return Requirements.from_specs(claim.requirements).intersection(Requirements.from_labels(claim.meta.labels))


def tenancy_of(requirements: Requirements) -> str:
    """Shared machines unless the claim allows dedicated ones only."""
    asked = requirements.get(TENANCY)
    return "dedicated" if asked is not None and not asked.has("default") else "default"


def has_relaxed_minimum(claim: NodeClaim) -> bool:
    """Whether the scheduler has lowered the claim's minValues to what was there."""
    return claim.meta.annotations.get(MIN_VALUES_RELAXED) == "true"


def choose(
    claim: NodeClaim,
    types: Sequence[InstanceType],
    zones: Iterable[str],
    amis: Sequence[Ami],
    reservations: Mapping[str, Reservation] | None = None,
) -> Choice:
    """Which types and offerings to ask for.

    Args:
        claim: one of the fleet; all ask for the same.
        types: those of the NodeClass.
        zones: zones with a subnet of the NodeClass.
        amis: its images, in the order of its status.
        reservations: its capacity reservations by id.
    Raises:
        InsufficientCapacityError: nothing is left to ask for.
        CloudError: types are left, but no image boots any of them.
    """
    requirements = wanted(claim)
    known = reservations or {}
    usable = _usable(claim, requirements, types, frozenset(zones), known)
    if not usable:
        raise InsufficientCapacityError(
            "no available instance type meets the claim's requirements and requests in a zone that has a subnet",
            action=_WIDEN,
        )
    images = {t.name: match_ami(amis, t) for t in usable}
    usable = [t for t in usable if images[t.name] is not None]
    if not usable:
        raise CloudError(
            "no image boots any of the instance types that the claim allows",
            reason="AMINotFound",
            action="Check spec.amiSelectorTerms against the architectures that the NodePool allows.",
        )
    usable = only_reserved(usable, known)
    minimums = [r for r in Requirements.from_specs(claim.requirements).values() if r.min_values]
    if not minimums:
        usable = [t for t in usable if not _is_exotic(t)] or usable
        usable = _without_dear_spot(usable)
    offered = {o.capacity_type for t in usable for o in t.offerings}
    capacity_type = next(kind for kind in CapacityType if kind in offered)
    found = []
    for kind in usable:
        offerings = sorted(
            (o for o in kind.offerings if o.capacity_type is capacity_type), key=lambda o: (o.price, o.zone)
        )
        image = images[kind.name]
        if offerings and image is not None:
            found.append(Candidate(kind, tuple(offerings), image))
    found.sort(key=lambda c: (c.price, c.type.name))
    kept = found[:MOST_TYPES]
    short = _broken_minimum(minimums, kept)
    if short and not has_relaxed_minimum(claim):
        raise InsufficientCapacityError(short, action="Lower minValues, or allow more instance types in the NodePool.")
    return Choice(capacity_type, tenancy_of(requirements), tuple(kept)).cheapest(MOST_OVERRIDES)


def _usable(
    claim: NodeClaim,
    requirements: Requirements,
    types: Sequence[InstanceType],
    zones: frozenset[str],
    reservations: Mapping[str, Reservation],
) -> list[InstanceType]:
    found = []
    for kind in types:
        if not kind.requirements.intersects(requirements) or not fits(claim.requests, kind.allocatable):
            continue
        offerings = tuple(
            o
            for o in kind.offerings
            if o.available
            and o.zone in zones
            and is_launchable(o, reservations)
            and _allows(requirements, o, reservations.get(o.reservation_id))
        )
        if offerings:
            found.append(replace(kind, offerings=offerings))
    return found


def _allows(requirements: Requirements, offering: Offering, reservation: Reservation | None) -> bool:
    if not offering.allowed_by(requirements):
        return False
    labels = {ZONE_ID: offering.zone_id, **reservation_labels(reservation)}
    return all(_permits(requirements.get(key), labels.get(key, "")) for key in (ZONE_ID, *RESERVATION_LABELS))


def _permits(asked: Requirement | None, value: str) -> bool:
    """Whether a requirement allows a label's value; empty: the label is absent."""
    if asked is None:
        return True
    return asked.has(value) if value else asked.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST)


def _is_exotic(kind: InstanceType) -> bool:
    size = kind.requirements.get(SIZE)
    metal = size is not None and any("metal" in value for value in size.values)
    return metal or any(kind.capacity.get(resource, 0) for resource in _EXOTIC)


def _without_dear_spot(types: list[InstanceType]) -> list[InstanceType]:
    """Where both are offered, spot that costs more than the cheapest on-demand is no bargain."""
    on_demand = [o.price for t in types for o in t.offerings if o.capacity_type is CapacityType.ON_DEMAND]
    if not on_demand:
        return types
    limit = min(on_demand)
    kept = []
    for kind in types:
        offerings = tuple(o for o in kind.offerings if o.capacity_type is not CapacityType.SPOT or o.price <= limit)
        if offerings:
            kept.append(replace(kind, offerings=offerings))
    return kept


def _broken_minimum(minimums: Iterable[Requirement], kept: Sequence[Candidate]) -> str:
    for minimum in minimums:
        values: set[str] = set()
        for candidate in kept:
            has = candidate.type.requirements.get(minimum.key)
            values.update(v for v in (has.values if has is not None and not has.complement else ()) if minimum.has(v))
        if len(values) < (minimum.min_values or 0):
            return f"minValues asks for {minimum.min_values} values of {minimum.key}, {len(values)} are available"
    return ""
