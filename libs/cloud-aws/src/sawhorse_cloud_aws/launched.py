"""From EC2's answers to instances, and from an instance to what its claim learns. Pure."""

from collections.abc import Mapping
from typing import Any

from sawhorse_catalog.account import Reservation
from sawhorse_catalog.aws.node_class import reservations_of
from sawhorse_cloud.cloud import Instance, InstanceState, Launched
from sawhorse_cloud_aws.calls import tag_map
from sawhorse_cloud_aws.choice import tenancy_of, wanted
from sawhorse_cloud_aws.hashing import HASH_VERSION, static_hash
from sawhorse_cloud_aws.launch_fields import has_efa
from sawhorse_cloud_aws.reserved import RESERVATION_LABELS, by_id, reservation_labels
from sawhorse_cloud_aws.tags import TOKEN_TAG
from sawhorse_model.aws import (
    EFA,
    INSTANCE_PROFILE_ANNOTATION,
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODECLASS_LABEL,
    PLACEMENT_GROUP_PARTITION,
    TENANCY,
    ZONE_ID,
    EC2NodeClass,
)
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from sawhorse_model.nodeclaim import NodeClaim

_AIMED = "capacity-reservations-only"


def provider_id(zone: str, instance_id: str) -> str:
    """As the cloud controller writes it on Nodes."""
    return f"aws:///{zone}/{instance_id}"


def described_instance(raw: Mapping[str, Any]) -> Instance:
    """One instance of DescribeInstances.

    Raises:
        KeyError, ValueError: not an instance as we know it.
    """
    tags = tag_map(raw.get("Tags"))
    placement = raw.get("Placement") or {}
    zone = placement.get("AvailabilityZone", "")
    # One that merely happens to run in an open reservation was bought on demand.
    aim = (raw.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    reservation_id = str(raw.get("CapacityReservationId") or "") if aim == _AIMED else ""
    return Instance(
        id=raw["InstanceId"],
        provider_id=provider_id(zone, raw["InstanceId"]),
        state=InstanceState(raw["State"]["Name"]),
        instance_type=raw.get("InstanceType", ""),
        zone=zone,
        capacity_type=_capacity_type(raw, reservation_id),
        image_id=raw.get("ImageId", ""),
        launched=raw.get("LaunchTime"),
        tags=tags,
        token=tags.get(TOKEN_TAG, ""),
        reservation_id=reservation_id,
        partition=str(placement.get("PartitionNumber") or ""),
    )


def _capacity_type(raw: Mapping[str, Any], reservation_id: str) -> str:
    if reservation_id:
        return CapacityType.RESERVED.value
    return (CapacityType.SPOT if raw.get("InstanceLifecycle") == "spot" else CapacityType.ON_DEMAND).value


def fleet_instances(
    answer: Mapping[str, Any],
    *,
    token: str,
    capacity_type: str,
    tags: Mapping[str, str],
    zones: Mapping[str, str],
    images: Mapping[str, str],
    reservations: Mapping[tuple[str, str], str] | None = None,
    partition: int = 0,
) -> list[Instance]:
    """Instances of an answer to CreateFleet, in order of id.

    Args:
        tags: what the request put on instances, the token aside.
        zones: subnet id → zone, where the answer does not say the zone.
        images: instance type → image id, where the answer does not say the image.
        reservations: (instance type, zone) → reservation that the request aimed at.
        partition: of the placement group; 0 without.
    """
    found = []
    for entry in answer.get("Instances") or ():
        overrides = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        zone = overrides.get("AvailabilityZone") or zones.get(overrides.get("SubnetId", ""), "")
        name = entry.get("InstanceType") or overrides.get("InstanceType", "")
        reservation_id = (reservations or {}).get((name, zone), "")
        # EC2 calls what runs in a reservation on-demand.
        bought = CapacityType.RESERVED.value if reservation_id else entry.get("Lifecycle") or capacity_type
        for instance_id in entry.get("InstanceIds", ()):
            found.append(
                Instance(
                    id=instance_id,
                    provider_id=provider_id(zone, instance_id),
                    state=InstanceState.PENDING,
                    instance_type=name,
                    zone=zone,
                    capacity_type=bought,
                    image_id=overrides.get("ImageId") or images.get(name, ""),
                    tags={**tags, TOKEN_TAG: token},
                    token=token,
                    reservation_id=reservation_id,
                    partition=str(partition or ""),
                ),
            )
    return sorted(found, key=lambda i: i.id)


def describe_launch(
    claim: NodeClaim, node_class: EC2NodeClass | None, instance: Instance, kind: InstanceType | None
) -> Launched:
    """What a claim learns from its instance. A type that the catalogue has lost gives the certain labels only."""
    labels = dict(kind.requirements.labels()) if kind is not None else {}
    for key in (*RESERVATION_LABELS, ZONE_ID):
        labels.pop(key, None)
    offerings = kind.offerings if kind is not None else ()
    zone_id = next((o.zone_id for o in offerings if o.zone == instance.zone and o.zone_id), "")
    if not zone_id and node_class is not None:
        zone_id = next((s.zone_id for s in node_class.subnets if s.zone == instance.zone), "")
    labels |= {
        INSTANCE_TYPE: instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
        TENANCY: tenancy_of(wanted(claim)),
    }
    if zone_id:
        labels[ZONE_ID] = zone_id
    if instance.reservation_id:
        known = by_id(reservations_of(node_class)) if node_class is not None else {}
        reservation = known.get(instance.reservation_id) or Reservation(
            id=instance.reservation_id, instance_type=instance.instance_type, zone=instance.zone
        )
        labels |= reservation_labels(reservation)
    if instance.partition:
        labels[PLACEMENT_GROUP_PARTITION] = instance.partition
    if pool := claim.nodepool or instance.tags.get(NODEPOOL, ""):
        labels[NODEPOOL] = pool
    annotations = {}
    if node_class is not None:
        labels[NODECLASS_LABEL] = node_class.name
        annotations = {
            NODECLASS_HASH: static_hash(node_class),
            NODECLASS_HASH_VERSION: HASH_VERSION,
            INSTANCE_PROFILE_ANNOTATION: node_class.resolved_profile,
        }
    # A type's EFA interfaces count only where the launch made them.
    absent = frozenset() if has_efa(claim, node_class) else frozenset({EFA})
    return Launched(
        instance=instance,
        labels=labels,
        capacity=_present(kind.capacity if kind is not None else {}, absent),
        allocatable=_present(kind.allocatable if kind is not None else {}, absent),
        annotations=annotations,
    )


def _present(resources: Mapping[str, int], absent: frozenset[str]) -> dict[str, int]:
    return {name: amount for name, amount in resources.items() if amount > 0 and name not in absent}
