"""Launching a fleet: the CreateFleet request for a choice of offerings, and what its answer means."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from sawhorse_catalog.account import BLOCK, PlacementGroup, Reservation
from sawhorse_catalog.aws.node_class import placement_selector, reservations_of
from sawhorse_cloud.cloud import Instance, LaunchResult
from sawhorse_cloud.errors import CloudError, FailedOffering, InsufficientCapacityError, NodeClassNotReadyError
from sawhorse_cloud.scopes import Scope, ScopeKind, parse_scope
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.calls import TEMPLATE_NOT_FOUND, call, error_code, is_too_large, tag_list
from sawhorse_cloud_aws.choice import Candidate, Choice, choose, has_relaxed_minimum, wanted
from sawhorse_cloud_aws.launch_fields import (
    CpuRequest,
    InterfacePlan,
    connection_tracking,
    cpu_request,
    interface_plan,
)
from sawhorse_cloud_aws.launched import describe_launch, fleet_instances
from sawhorse_cloud_aws.outcomes import (
    SUBNET_FULL,
    UNFULFILLABLE,
    Limits,
    failed_offerings,
    is_spread_limit,
    launch_error,
    launch_word,
    name_cause,
    with_quotas,
)
from sawhorse_cloud_aws.partitions import FullPartitions, partition_for
from sawhorse_cloud_aws.reserved import by_id
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.tags import TOKEN_TAG, fleet_tags
from sawhorse_cloud_aws.template_data import TemplateRequest, template_data
from sawhorse_cloud_aws.templates import LaunchTemplates
from sawhorse_cloud_aws.user_data import LARGEST_BYTES, build_user_data, user_data_bytes, uses_max_pods
from sawhorse_model.aws import NODECLASS_LABEL, EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.manifests.fields import ManifestError
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.resources import CPU, PODS

# What a pod requests that runs in an enclave of its machine.
NITRO_SANDBOX = "eks.amazonaws.com/nitro-sandbox"
# EC2 takes no more templates in one request.
MOST_TEMPLATES = 50
_TOKEN_USED = "IdempotentParameterMismatch"
# Requests kept for a repeat with the same token; after a restart the instances' tag is what leads back.
_REMEMBERED = 128


@dataclass(frozen=True, slots=True)
class Launch:
    """What one call of `launch` works with."""

    token: str
    claims: tuple[NodeClaim, ...]  # in order of name
    node_class: EC2NodeClass
    types: Mapping[str, InstanceType]
    choice: Choice
    subnets: Mapping[str, str]  # zone → id
    tags: Mapping[str, str]
    reservations: Mapping[str, Reservation]
    group: PlacementGroup | None
    partition: int  # of the placement group; 0 without

    @property
    def aimed(self) -> dict[tuple[str, str], str]:
        """(instance type, zone) → reservation; empty unless the launch is into reservations."""
        offered = ((c.type.name, o) for c in self.choice.candidates for o in c.offerings)
        return {(name, o.zone): o.reservation_id for name, o in offered if o.reservation_id}

    @property
    def zones(self) -> dict[str, str]:
        """Subnet id → zone."""
        return {subnet.id: subnet.zone for subnet in self.node_class.subnets}

    @property
    def limits(self) -> Limits:
        """What the launch is confined to."""
        group = self.group
        return Limits(
            zones=self.zones,
            subnets=self.subnets,
            reservations=self.aimed,
            group=str(Scope(ScopeKind.GROUP, group.id, self.partition)) if group is not None else "",
            spread=group is not None and group.strategy == "spread",
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Types that one template serves: all in which templates of a launch may differ."""

    image_id: str
    pods: int  # 0 where the user data does not name it
    interfaces: InterfacePlan
    cpu: CpuRequest
    reservation: Reservation | None = None


class FleetLauncher:
    """CreateFleet and its answers.

    Args:
        ec2: an SDK client.
        find: living instances by launch token, in order of id.
        group_of: the placement group that a NodeClass selects.
        template_step: entered while the templates of a launch are made sure of; crash tests die at its edges.
        monotonic: a clock in seconds.
    """

    def __init__(
        self,
        *,
        ec2: Any,
        templates: LaunchTemplates,
        subnets: SubnetPicker,
        find: Callable[[str], Awaitable[Sequence[Instance]]],
        group_of: Callable[[EC2NodeClass], Awaitable[PlacementGroup | None]],
        cluster: ClusterFacts,
        region: str,
        template_step: Callable[[], AbstractContextManager[None]] = nullcontext,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ec2 = ec2
        self._partitions = FullPartitions(monotonic=monotonic)
        self._template_step = template_step
        self._templates = templates
        self._subnets = subnets
        self._find = find
        self._group_of = group_of
        self._cluster = cluster
        self._region = region
        self._asked: dict[str, tuple[Launch, Mapping[str, Any]]] = {}  # by token
        self._fruitless: dict[str, int] = {}  # by token: answers without a machine

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: EC2NodeClass, types: Sequence[InstanceType]
    ) -> LaunchResult:
        """See Cloud.launch."""
        if not claims:
            return LaunchResult({})
        self._check_ready(node_class)
        group = await self._group_of(node_class)
        if group is None and placement_selector(node_class):
            raise NodeClassNotReadyError(f"NodeClass {node_class.name}: its placement group is not there")
        subnets = self._subnets.choose(node_class.subnets)
        # A zone whose subnets are all full is left alone while there is another; with none EC2 is asked again.
        subnets = {z: s for z, s in subnets.items() if not self._subnets.is_full(s)} or subnets
        reservations = by_id(reservations_of(node_class))
        choice = choose(claims[0], types, subnets, node_class.amis, reservations)
        full = self._partitions.full(group.id, choice.pairs) if group is not None else frozenset()
        launch = Launch(
            token=token,
            claims=tuple(sorted(claims, key=lambda c: c.meta.name)),
            node_class=node_class,
            types={t.name: t for t in types},
            choice=choice,
            subnets=subnets,
            tags=fleet_tags(self._cluster.name, claims[0], node_class),
            reservations=reservations,
            group=group,
            partition=partition_for(wanted(claims[0]), group, token, full),
        )
        charged = _charges(launch)
        for subnet_id, addresses in charged.items():
            self._subnets.charge(subnet_id, addresses)
        used: set[str] = set()
        try:
            result = await self._launch(launch)
            used = {launch.subnets[i.zone] for i in _machines(result) if i.zone in launch.subnets}
        finally:
            for subnet_id, addresses in charged.items():
                if subnet_id not in used:
                    self._subnets.charge(subnet_id, -addresses)
        return result

    def _check_ready(self, node_class: EC2NodeClass) -> None:
        if not node_class.node_class.is_ready:
            raise NodeClassNotReadyError(f"NodeClass {node_class.name} is not ready", action="See its conditions.")
        parts = {
            "subnets": node_class.subnets,
            "security groups": node_class.security_groups,
            "images": node_class.amis,
            "instance profile": node_class.resolved_profile,
        }
        if missing := [name for name, found in parts.items() if not found]:
            raise NodeClassNotReadyError(f"NodeClass {node_class.name} has no {' and no '.join(missing)} in its status")
        try:
            connection_tracking(node_class)
        except ManifestError as error:
            raise NodeClassNotReadyError(f"NodeClass {node_class.name}: {error}") from error

    async def _launch(self, launch: Launch) -> LaunchResult:
        if launch.token in self._asked:
            # To the letter what was asked before: EC2 refuses a token that comes with another request.
            earlier, request = self._asked[launch.token]
            launch = replace(earlier, claims=launch.claims)
        else:
            with self._template_step():
                configs = await self._configs(launch)
            request = self._request(launch, configs)
        try:
            answer = await self._call(launch, request)
        except CloudError as error:
            code = error_code(error)
            if code == _TOKEN_USED:
                return await self._earlier(launch, error)
            if code in TEMPLATE_NOT_FOUND:
                # Somebody deleted a template under us: make it again, once. EC2 refused the call as a whole, so the
                # token is still unused.
                self._templates.forget(_names(request))
                configs = await self._configs(launch)
            elif is_too_large(error):
                configs = await self._configs(launch, most=len(launch.choice.pairs) // 2)
            else:
                raise
            request = self._request(launch, configs)
            answer = await self._call(launch, request)
        return self._result(launch, request, answer)

    async def _earlier(self, launch: Launch, error: CloudError) -> LaunchResult:
        """The machines of an earlier call with this token whose request differed: prices and subnets do change."""
        found = await self._find(launch.token)
        if not found:
            raise CloudError(
                "CreateFleet: the launch token was used for another request, and no machine of it lives",
                reason=_TOKEN_USED,
                action="Launch with a new token.",
            ) from error
        return _paired(launch, found, ())

    async def _configs(self, launch: Launch, *, most: int | None = None) -> list[dict[str, Any]]:
        choice = launch.choice if most is None else launch.choice.cheapest(max(most, 1))
        groups: dict[str, tuple[Group, list[Candidate]]] = {}
        for candidate in _by_reservation(choice.candidates):  # cheapest first, and so the groups
            group = self._group(launch, candidate)
            groups.setdefault(repr(group), (group, []))[1].append(candidate)
        return [await self._config(launch, group, members) for group, members in list(groups.values())[:MOST_TEMPLATES]]

    def _group(self, launch: Launch, candidate: Candidate) -> Group:
        kind, node_class = candidate.type, launch.node_class
        return Group(
            image_id=candidate.ami.id,
            pods=kind.capacity.get(PODS, 0) if uses_max_pods(node_class) else 0,
            interfaces=interface_plan(node_class, launch.claims[0], kind),
            cpu=cpu_request(node_class, kind),
            reservation=launch.reservations.get(candidate.offerings[0].reservation_id),
        )

    async def _config(self, launch: Launch, group: Group, members: Sequence[Candidate]) -> dict[str, Any]:
        claim, node_class = launch.claims[0], launch.node_class
        user_data = build_user_data(
            node_class,
            self._cluster,
            labels={
                **claim.meta.labels,
                CAPACITY_TYPE: launch.choice.capacity_type.value,
                NODECLASS_LABEL: node_class.name,
            },
            taints=(*claim.taints, *claim.startup_taints),
            max_pods=group.pods,
        )
        size = user_data_bytes(user_data)
        if size > LARGEST_BYTES:
            raise CloudError(
                f"user data of NodeClass {node_class.name} is {size} bytes long; EC2 takes {LARGEST_BYTES}",
                action="Shorten spec.userData, or use fewer labels and taints.",
                reason="UserDataSizeLimitExceeded",
            )
        data = template_data(
            node_class,
            TemplateRequest(
                image_id=group.image_id,
                user_data=user_data,
                tags=launch.tags,
                spot=launch.choice.capacity_type is CapacityType.SPOT,
                region=self._region,
                tenancy=launch.choice.tenancy,
                ipv6=self._cluster.is_ipv6,
                interfaces=group.interfaces,
                cpu=group.cpu,
                reservation=group.reservation,
                group_id=launch.group.id if launch.group is not None else "",
                partition=launch.partition,
                enclaves=claim.requests.get(NITRO_SANDBOX, 0) > 0,
            ),
        )
        name = await self._templates.ensure(node_class, data, launch.tags)
        return {
            "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
            "Overrides": [
                {
                    "InstanceType": candidate.type.name,
                    "SubnetId": launch.subnets[offering.zone],
                    "ImageId": group.image_id,
                    # The zone is in the subnet already; stated, so that errors carry it back.
                    "AvailabilityZone": offering.zone,
                    "Priority": offering.price,
                }
                for candidate in members
                for offering in candidate.offerings
            ],
        }

    def _request(self, launch: Launch, configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        spot = launch.choice.capacity_type is CapacityType.SPOT
        block = any(launch.reservations[r].kind == BLOCK for r in launch.aimed.values())
        tags = tag_list({**launch.tags, TOKEN_TAG: launch.token})
        request: dict[str, Any] = {
            "Type": "instant",
            "ClientToken": self._client_token(launch.token),
            "LaunchTemplateConfigs": configs,
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": len(launch.claims),
                "DefaultTargetCapacityType": "spot" if spot else BLOCK if block else "on-demand",
            },
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume", "fleet")],
        }
        if spot:
            request["SpotOptions"] = {"AllocationStrategy": "price-capacity-optimized"}
        elif not block:
            request["OnDemandOptions"] = {"AllocationStrategy": "lowest-price"}
        if launch.node_class.context and not has_relaxed_minimum(launch.claims[0]):
            request["Context"] = launch.node_class.context
        return request

    async def _call(self, launch: Launch, request: Mapping[str, Any]) -> Mapping[str, Any]:
        _remember(self._asked, launch.token, (launch, request))
        try:
            answer: Mapping[str, Any] = await call("CreateFleet", self._ec2.create_fleet, **request)
        except CloudError as error:
            name_cause(error, error_code(error))
            raise
        return answer

    def _client_token(self, token: str) -> str:
        tries = self._fruitless.get(token, 0)
        return f"{token}-{tries}" if tries else token

    def _result(self, launch: Launch, request: Mapping[str, Any], answer: Mapping[str, Any]) -> LaunchResult:
        errors: Sequence[Mapping[str, Any]] = answer.get("Errors") or ()
        zones = launch.zones
        failed = failed_offerings(errors, launch.choice.capacity_type.value, launch.limits)
        full = self._note_full(launch, failed)
        instances = fleet_instances(
            answer,
            token=launch.token,
            capacity_type=launch.choice.capacity_type.value,
            tags=launch.tags,
            zones=zones,
            images={c.type.name: c.ami.id for c in launch.choice.candidates},
            reservations=launch.aimed,
            partition=launch.partition,
        )
        if instances:
            return _paired(launch, instances, failed)
        # EC2 would give this answer again for ever. No machine came of it, so another client token cannot double any.
        _remember(self._fruitless, launch.token, self._fruitless.get(launch.token, 0) + 1)
        self._asked.pop(launch.token, None)
        failed = with_quotas(failed, {name: t.capacity.get(CPU, 0) // 1000 for name, t in launch.types.items()})
        spread = launch.limits.spread
        others = [
            e for e in errors if e.get("ErrorCode", "") not in UNFULFILLABLE and not (spread and is_spread_limit(e))
        ]
        if others:
            first = min(others, key=lambda e: str(e.get("ErrorCode", "")))
            if first.get("ErrorCode") in TEMPLATE_NOT_FOUND:
                self._templates.forget(_names(request))
            raise launch_error(str(first.get("ErrorCode", "")), str(first.get("ErrorMessage", "")), failed=failed)
        if full and all(f.code == SUBNET_FULL for f in failed):
            word, action = launch_word(SUBNET_FULL, "")
            raise InsufficientCapacityError(
                f"no free address in {', '.join(full)}, and no other zone is left",
                failed=failed,
                reason=word,
                action=action,
            )
        asked = sum(len(c["Overrides"]) for c in request["LaunchTemplateConfigs"])
        codes = sorted({f.code for f in failed})
        # Where it is a quota or a missing role everywhere, more types would not help: say what does.
        words = {launch_word(code, "") for code in codes}
        word, action = words.pop() if len(words) == 1 else ("", "")
        raise InsufficientCapacityError(
            f"no capacity in any of {asked} offerings ({', '.join([launch.choice.capacity_type, *codes])})",
            failed=failed,
            reason=word,
            action=action or "Allow more instance types or zones in the NodePool.",
        )

    def _note_full(self, launch: Launch, failed: Sequence[FailedOffering]) -> list[str]:
        """Remember what is full for the next choice: subnets, and partitions of the group; returns the subnets' ids."""
        full = set()
        for each in failed:
            match parse_scope(each.scope):
                case Scope(ScopeKind.SUBNET, subnet):
                    full.add(subnet)
                case Scope(ScopeKind.GROUP, group, partition) if partition:
                    self._partitions.mark(group, partition, (each.instance_type, each.zone))
                case _:
                    continue
        for subnet_id in full:
            self._subnets.mark_full(subnet_id)
        return sorted(full)


def _remember(memory: dict[str, Any], token: str, what: Any) -> None:
    memory[token] = what
    while len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]


def _by_reservation(candidates: Sequence[Candidate]) -> list[Candidate]:
    """A candidate for each reservation that is aimed at: a template can name only one."""
    found = []
    for each in candidates:
        offerings: dict[str, list[Offering]] = {}
        for offering in each.offerings:
            offerings.setdefault(offering.reservation_id, []).append(offering)
        found += [replace(each, offerings=tuple(some)) for some in offerings.values()]
    return found


def _charges(launch: Launch) -> dict[str, int]:
    """Addresses that each subnet may lose: in its zone the smallest pod count of the types, for each claim."""
    smallest: dict[str, int] = {}
    for candidate in launch.choice.candidates:
        pods = candidate.type.capacity.get(PODS, 0)
        for offering in candidate.offerings:
            subnet_id = launch.subnets[offering.zone]
            smallest[subnet_id] = min(pods, smallest.get(subnet_id, pods))
    return {subnet_id: pods * len(launch.claims) for subnet_id, pods in smallest.items()}


def _names(request: Mapping[str, Any]) -> list[str]:
    return [c["LaunchTemplateSpecification"]["LaunchTemplateName"] for c in request["LaunchTemplateConfigs"]]


def _machines(result: LaunchResult) -> list[Instance]:
    return [launched.instance for launched in result.launched.values()]


def _paired(launch: Launch, instances: Sequence[Instance], failed: Sequence[Any]) -> LaunchResult:
    """Claims and machines in sorted order: adoption after a crash finds the same pairs."""
    pairs = zip(launch.claims, instances, strict=False)  # fewer machines than claims, or more, are both told
    launched = {
        claim.meta.name: describe_launch(claim, launch.node_class, each, launch.types.get(each.instance_type))
        for claim, each in pairs
    }
    return LaunchResult(launched, tuple(failed), tuple(i.id for i in instances[len(launch.claims) :]))
