"""Launching a fleet: which types and offerings to ask for, the CreateFleet request, and what its answer means.

Choosing is pure; `FleetLauncher` does the calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sawhorse_cloud.cloud import Instance, InstanceState, Launched, LaunchResult
from sawhorse_cloud.errors import CloudError, FailedOffering, InsufficientCapacityError, NodeClassNotReadyError
from sawhorse_cloud_aws.amis import match_ami
from sawhorse_cloud_aws.calls import TEMPLATE_NOT_FOUND, call, error_code, tag_list
from sawhorse_cloud_aws.node_class import HASH_VERSION, static_hash
from sawhorse_cloud_aws.tags import TOKEN_TAG, fleet_tags
from sawhorse_cloud_aws.templates import LaunchTemplates, template_data
from sawhorse_cloud_aws.user_data import LARGEST_BYTES, ClusterFacts, build_user_data
from sawhorse_model.aws import (
    AMD_GPU,
    GAUDI,
    INSTANCE_PROFILE_ANNOTATION,
    NEURON,
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODECLASS_LABEL,
    NVIDIA_GPU,
    SIZE,
    TENANCY,
    ZONE_ID,
    EC2NodeClass,
)
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, NODEPOOL, ZONE
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import PODS, fits

MOST_TYPES = 60

# Codes that say "not here, not now". The offering is set aside; anything else among the errors is a fault to report.
UNFULFILLABLE = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "UnsupportedOperation",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    },
)
_EXOTIC = (NVIDIA_GPU, AMD_GPU, GAUDI, NEURON)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a launch asks for: one capacity type, and per instance type the offerings in zones with a subnet."""

    capacity_type: CapacityType
    types: tuple[tuple[InstanceType, tuple[Offering, ...]], ...]  # cheapest first


def wanted(claim: NodeClaim) -> Requirements:
    """What a claim asks of its machine: requirements and labels together."""
    return Requirements.from_specs(claim.requirements).intersection(Requirements.from_labels(claim.meta.labels))


def _usable(claim: NodeClaim, requirements: Requirements, types: Sequence[InstanceType]) -> list[InstanceType]:
    found = []
    for kind in types:
        if not kind.requirements.intersects(requirements) or not fits(claim.requests, kind.allocatable):
            continue
        offerings = tuple(o for o in kind.offerings if o.available and o.allowed_by(requirements))
        if offerings:
            found.append(replace(kind, offerings=offerings))
    return found


def _is_exotic(kind: InstanceType) -> bool:
    size = kind.requirements.get(SIZE)
    metal = size is not None and any("metal" in value for value in size.values)
    return metal or any(kind.capacity.get(resource, 0) for resource in _EXOTIC)


def _without_dear_spot(types: list[InstanceType]) -> list[InstanceType]:
    """Where both are offered, spot that costs more than the cheapest on-demand is no bargain."""
    on_demand = [o.price for t in types for o in t.offerings if o.capacity_type is CapacityType.ON_DEMAND]
    if not on_demand or all(o.capacity_type is CapacityType.ON_DEMAND for t in types for o in t.offerings):
        return types
    limit = min(on_demand)
    kept = []
    for kind in types:
        offerings = tuple(o for o in kind.offerings if o.capacity_type is not CapacityType.SPOT or o.price <= limit)
        if offerings:
            kept.append(replace(kind, offerings=offerings))
    return kept


def choose(claim: NodeClaim, types: Sequence[InstanceType], zones: frozenset[str]) -> Choice:
    """Which types and offerings to ask for.

    Args:
        claim: one of the fleet; all ask for the same.
        types: those of the NodeClass.
        zones: zones with a subnet of the NodeClass.
    Raises:
        InsufficientCapacityError: nothing is left to ask for.
    """
    requirements = wanted(claim)
    usable = _usable(claim, requirements, types)
    if not usable:
        raise InsufficientCapacityError(
            "no available instance type meets the claim's requirements and requests",
            action="Allow more instance types or zones in the NodePool.",
        )
    flexible = not any(spec.min_values for spec in claim.requirements)
    if flexible:
        usable = [t for t in usable if not _is_exotic(t)] or usable
        usable = _without_dear_spot(usable)
    reachable = []
    for kind in usable:
        offerings = tuple(o for o in kind.offerings if o.zone in zones)
        if offerings:
            reachable.append(replace(kind, offerings=offerings))
    offered = {o.capacity_type for t in reachable for o in t.offerings}
    capacity_type = CapacityType.SPOT if CapacityType.SPOT in offered else CapacityType.ON_DEMAND
    chosen = []
    for kind in reachable:
        offerings = tuple(o for o in kind.offerings if o.capacity_type is capacity_type)
        if offerings:
            chosen.append((kind, offerings))
    chosen.sort(key=lambda pair: (min(o.price for o in pair[1]), pair[0].name))
    if not chosen:
        raise InsufficientCapacityError(
            "no offering is left in a zone that has a subnet of the NodeClass",
            action="Add subnets or zones to the NodeClass.",
        )
    return Choice(capacity_type, tuple(chosen[:MOST_TYPES]))


class FleetLauncher:
    """CreateFleet and its answers. `ec2` is an SDK client."""

    def __init__(self, *, ec2: Any, templates: LaunchTemplates, cluster: ClusterFacts, region: str) -> None:
        self._ec2 = ec2
        self._templates = templates
        self._cluster = cluster
        self._region = region

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: EC2NodeClass, types: Sequence[InstanceType]
    ) -> LaunchResult:
        """See Cloud.launch."""
        if not node_class.node_class.is_ready:
            raise NodeClassNotReadyError(f"NodeClass {node_class.name} is not ready")
        subnets: dict[str, str] = {}
        for subnet in node_class.subnets:  # status order: most free addresses first
            subnets.setdefault(subnet.zone, subnet.id)
        choice = choose(claims[0], types, frozenset(subnets))
        tags = fleet_tags(self._cluster.name, claims[0], node_class)
        configs, offerings = await self._configs(claims[0], node_class, choice, subnets, tags)
        try:
            answer = await self._create(token, len(claims), choice.capacity_type, configs, tags, node_class)
        except CloudError as error:
            if error_code(error) not in TEMPLATE_NOT_FOUND:
                raise
            # Somebody deleted a template under us: make it again, once. The token is safe: EC2 refused the call.
            for config in configs:
                self._templates.forget(config["LaunchTemplateSpecification"]["LaunchTemplateName"])
            configs, offerings = await self._configs(claims[0], node_class, choice, subnets, tags)
            answer = await self._create(token, len(claims), choice.capacity_type, configs, tags, node_class)
        return self._result(token, claims, node_class, types, choice, answer, offerings, tags)

    async def _configs(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        choice: Choice,
        subnets: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> tuple[list[dict[str, Any]], int]:
        groups: dict[tuple[str, int], list[tuple[InstanceType, tuple[Offering, ...]]]] = {}
        for kind, offerings in choice.types:
            ami = match_ami(node_class.amis, kind)
            if ami is not None:
                groups.setdefault((ami.id, kind.capacity.get(PODS, 0)), []).append((kind, offerings))
        if not groups:
            raise InsufficientCapacityError(
                f"no image of NodeClass {node_class.name} boots any of the chosen instance types",
                action="Check spec.amiSelectorTerms against the architectures that the NodePool allows.",
            )
        labels = {**claim.meta.labels, CAPACITY_TYPE: choice.capacity_type.value, NODECLASS_LABEL: node_class.name}
        configs = []
        count = 0
        for (image_id, pods), members in groups.items():
            user_data = build_user_data(
                node_class,
                self._cluster,
                labels=labels,
                taints=(*claim.taints, *claim.startup_taints),
                max_pods=pods,
            )
            if len(user_data) * 3 // 4 > LARGEST_BYTES:
                raise CloudError(
                    f"user data of NodeClass {node_class.name} is larger than {LARGEST_BYTES} bytes",
                    action="Shorten spec.userData.",
                    reason="UserDataSizeLimitExceeded",
                )
            data = template_data(
                node_class,
                image_id=image_id,
                user_data=user_data,
                tags=tags,
                spot=choice.capacity_type is CapacityType.SPOT,
                region=self._region,
            )
            name = await self._templates.ensure(node_class, data, tags)
            overrides = [
                {
                    "InstanceType": kind.name,
                    "SubnetId": subnets[offering.zone],
                    "ImageId": image_id,
                    # The zone is in the subnet already; stated, so that errors carry it back.
                    "AvailabilityZone": offering.zone,
                    "Priority": offering.price,
                }
                for kind, offerings in members
                for offering in offerings
            ]
            count += len(overrides)
            configs.append(
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
                    "Overrides": overrides,
                },
            )
        return configs, count

    async def _create(
        self,
        token: str,
        count: int,
        capacity_type: CapacityType,
        configs: list[dict[str, Any]],
        tags: Mapping[str, str],
        node_class: EC2NodeClass,
    ) -> Mapping[str, Any]:
        spot = capacity_type is CapacityType.SPOT
        request: dict[str, Any] = {
            "Type": "instant",
            "ClientToken": token,
            "LaunchTemplateConfigs": configs,
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": "spot" if spot else "on-demand",
            },
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tag_list({**tags, TOKEN_TAG: token})}
                for kind in ("instance", "volume", "fleet")
            ],
        }
        if spot:
            request["SpotOptions"] = {"AllocationStrategy": "price-capacity-optimized"}
        else:
            request["OnDemandOptions"] = {"AllocationStrategy": "lowest-price"}
        if node_class.context:
            request["Context"] = node_class.context
        answer: Mapping[str, Any] = await call("CreateFleet", self._ec2.create_fleet, **request)
        return answer

    def _result(
        self,
        token: str,
        claims: Sequence[NodeClaim],
        node_class: EC2NodeClass,
        types: Sequence[InstanceType],
        choice: Choice,
        answer: Mapping[str, Any],
        offerings_asked: int,
        tags: Mapping[str, str],
    ) -> LaunchResult:
        errors = answer.get("Errors") or ()
        failed = tuple(dict.fromkeys(filter(None, (_failed_offering(e, choice.capacity_type) for e in errors))))
        instances = sorted(_instances(answer, token, choice.capacity_type, tags), key=lambda i: i.id)
        if not instances:
            other = sorted({e.get("ErrorCode", "") for e in errors} - UNFULFILLABLE)
            if other:
                details = next(e for e in errors if e.get("ErrorCode") == other[0])
                raise CloudError(
                    f"CreateFleet: {other[0]}: {details.get('ErrorMessage', '')}"[:300],
                    reason=other[0].replace(".", ""),
                )
            raise InsufficientCapacityError(
                f"no capacity in any of {offerings_asked} offerings ({choice.capacity_type})",
                failed=failed,
                action="Allow more instance types or zones in the NodePool.",
            )
        ordered = sorted(claims, key=lambda c: c.meta.name)
        by_name = {t.name: t for t in types}
        pairs = zip(ordered, instances, strict=False)  # fewer machines than claims, or more, are both told
        launched = {c.meta.name: describe_launch(node_class, i, by_name.get(i.instance_type)) for c, i in pairs}
        return LaunchResult(launched, failed, tuple(i.id for i in instances[len(ordered) :]))


def _failed_offering(error: Mapping[str, Any], capacity_type: CapacityType) -> FailedOffering | None:
    code = error.get("ErrorCode", "")
    overrides = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    if code not in UNFULFILLABLE or not overrides.get("InstanceType"):
        return None
    return FailedOffering(
        capacity_type.value, overrides["InstanceType"], overrides.get("AvailabilityZone", ""), str(code)
    )


def _instances(
    answer: Mapping[str, Any], token: str, capacity_type: CapacityType, tags: Mapping[str, str]
) -> list[Instance]:
    found = []
    for entry in answer.get("Instances") or ():
        overrides = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        zone = overrides.get("AvailabilityZone", "")
        for instance_id in entry.get("InstanceIds", ()):
            found.append(
                Instance(
                    id=instance_id,
                    provider_id=f"aws:///{zone}/{instance_id}",
                    state=InstanceState.PENDING,
                    instance_type=entry.get("InstanceType") or overrides.get("InstanceType", ""),
                    zone=zone,
                    capacity_type=entry.get("Lifecycle") or capacity_type.value,
                    image_id=overrides.get("ImageId", ""),
                    tags=dict(tags),
                    token=token,
                ),
            )
    return found


def describe_launch(node_class: EC2NodeClass | None, instance: Instance, kind: InstanceType | None) -> Launched:
    """What a claim learns from its instance. A type that the catalogue has lost gives the certain labels only."""
    labels = dict(kind.requirements.labels()) if kind is not None else {}
    offering = next(
        (
            o
            for o in (kind.offerings if kind is not None else ())
            if o.zone == instance.zone and o.capacity_type.value == instance.capacity_type
        ),
        None,
    )
    labels |= {
        "node.kubernetes.io/instance-type": instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
        TENANCY: "default",
    }
    if offering is not None and offering.zone_id:
        labels[ZONE_ID] = offering.zone_id
    if pool := instance.tags.get(NODEPOOL):
        labels[NODEPOOL] = pool
    annotations = {}
    if node_class is not None:
        labels[NODECLASS_LABEL] = node_class.name
        annotations = {
            NODECLASS_HASH: static_hash(node_class),
            NODECLASS_HASH_VERSION: HASH_VERSION,
            INSTANCE_PROFILE_ANNOTATION: node_class.resolved_profile,
        }
    return Launched(
        instance=instance,
        labels=labels,
        capacity={k: v for k, v in (kind.capacity if kind is not None else {}).items() if v},
        allocatable={k: v for k, v in (kind.allocatable if kind is not None else {}).items() if v},
        annotations=annotations,
    )
