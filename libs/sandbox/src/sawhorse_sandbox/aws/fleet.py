"""CreateFleet: templates and overrides into pools, the choice among them, and the answer. Instances: `launch.py`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.fleets import Fleet
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance

from sawhorse_sandbox.aws.launch import Template, launch_problem, resolve_template, run
from sawhorse_sandbox.aws.pools import Allotment, Pool, Refusal, allot, by_strategy
from sawhorse_sandbox.aws.state import OutOfCapacity
from sawhorse_sandbox.aws.world import GONE, World


@dataclass(frozen=True, slots=True)
class Candidate:
    """An override of the request, joined with its launch template."""

    pool: Pool
    template: Template
    override: Mapping[str, Any]
    subnet_id: str | None


class FleetLauncher:
    """Answers CreateFleet. Callers hold the server's lock."""

    def __init__(self, world: World, launched: Callable[[Instance], None]) -> None:
        self._world = world
        self._launched = launched
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}  # by client token

    def create(self, ec2: EC2Backend, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to CreateFleet, the same one again for the same client token.

        Raises:
            EC2ClientError: the request as a whole is refused.
        """
        token = request.get("ClientToken")
        fingerprint = json.dumps({k: v for k, v in request.items() if k != "ClientToken"}, sort_keys=True, default=str)
        if token and token in self._answers:
            asked, answer = self._answers[token]
            if asked != fingerprint:
                text = f"The client token {token} was used before with different parameters."
                raise EC2ClientError("IdempotentParameterMismatch", text)
            return answer
        answer = self._create(ec2, request)
        if token:
            self._answers[token] = (fingerprint, answer)
        return answer

    def _create(self, ec2: EC2Backend, request: Mapping[str, Any]) -> dict[str, Any]:
        target = request.get("TargetCapacitySpecification") or {}
        wanted = int(target.get("TotalTargetCapacity", 0))
        default = target.get("DefaultTargetCapacityType") or "on-demand"
        spot = default == "spot"
        if request.get("Type") != "instant":
            raise _invalid("Type", "the sandbox launches only fleets of type instant")
        if wanted < 1:
            raise _invalid("TotalTargetCapacity", "must be at least 1")
        candidates = self._candidates(ec2, request, "spot" if spot else "on-demand")
        options = request.get("SpotOptions" if spot else "OnDemandOptions") or {}
        strategy = options.get("AllocationStrategy") or "lowest-price"

        problems = [self._problem(ec2, each) for each in candidates]
        refused = [problem for problem in problems if problem]
        possible = [each.pool for each, problem in zip(candidates, problems, strict=True) if not problem]
        state = self._world.state.current()
        rules = (*state.out_of_capacity, *self._reservation_limits(ec2, candidates))
        allotment = allot(by_strategy(possible, strategy, self._price), wanted, rules)
        for rule, count in allotment.drawn:
            self._world.state.take_capacity(rule, count)
        return self._launch(ec2, request, candidates, allotment, refused)

    def _launch(
        self,
        ec2: EC2Backend,
        request: Mapping[str, Any],
        candidates: Sequence[Candidate],
        allotment: Allotment,
        refused: Sequence[Refusal],
    ) -> dict[str, Any]:
        fleet = _register(ec2, request)
        instances = []
        for pool, count in allotment.taken:
            candidate = candidates[pool.position]
            launched = run(
                ec2,
                candidate.template,
                candidate.override,
                subnet_id=candidate.subnet_id,
                zone=pool.zone,
                count=count,
                spot=pool.capacity_type == "spot",
                fleet_id=fleet.id,
                tag_specifications=request.get("TagSpecifications") or (),
            )
            for instance in launched:
                fleet.on_demand_instances.append({"id": instance.id, "instance": instance, "launch_spec": None})
                self._launched(instance)
            instances.append(
                {
                    "LaunchTemplateAndOverrides": _described(candidate),
                    "Lifecycle": pool.capacity_type,
                    "InstanceIds": [instance.id for instance in launched],
                    "InstanceType": pool.instance_type,
                    **({"Platform": "windows"} if launched[0].platform else {}),
                }
            )
        fleet.fulfilled_capacity = float(sum(count for _, count in allotment.taken))
        errors = [
            {
                "LaunchTemplateAndOverrides": _described(candidates[each.pool.position]),
                "Lifecycle": each.pool.capacity_type,
                "ErrorCode": each.code,
                "ErrorMessage": each.message,
            }
            for each in sorted((*refused, *allotment.refused), key=lambda each: each.pool.position)
        ]
        return {"FleetId": fleet.id, "Errors": errors, "Instances": instances}

    def _candidates(self, ec2: EC2Backend, request: Mapping[str, Any], capacity_type: str) -> list[Candidate]:
        zones = {subnet.id: subnet.availability_zone for by in ec2.subnets.values() for subnet in by.values()}
        found: list[Candidate] = []
        for config in request.get("LaunchTemplateConfigs") or ():
            template = resolve_template(ec2, config.get("LaunchTemplateSpecification") or {})
            overrides: Sequence[Mapping[str, Any]] = config.get("Overrides") or ({},)
            for override in overrides:
                instance_type = override.get("InstanceType") or template.data.get("InstanceType")
                if instance_type not in INSTANCE_TYPES:
                    raise _invalid("InstanceType", f"the instance type {instance_type!r} does not exist")
                subnet_id = override.get("SubnetId") or template.subnet_id
                zone = zones.get(subnet_id or "") or override.get("AvailabilityZone") or f"{ec2.region_name}a"
                priority = override.get("Priority")
                pool = Pool(
                    position=len(found),
                    instance_type=instance_type,
                    zone=zone,
                    capacity_type=capacity_type,
                    priority=None if priority is None else float(priority),
                )
                found.append(Candidate(pool, template, override, subnet_id))
        if not found:
            raise _invalid("LaunchTemplateConfigs", "at least one launch template is required")
        return found

    def _problem(self, ec2: EC2Backend, candidate: Candidate) -> Refusal | None:
        pool = candidate.pool
        if not _is_offered(pool.instance_type, pool.zone, ec2.region_name):
            text = (
                f"Your requested instance type ({pool.instance_type}) is not supported in your requested "
                f"Availability Zone ({pool.zone})."
            )
            return Refusal(pool, "Unsupported", text)
        if pool.capacity_type not in INSTANCE_TYPES[pool.instance_type].get("SupportedUsageClasses", ()):
            text = f"The instance type {pool.instance_type} cannot be launched as {pool.capacity_type}."
            return Refusal(pool, "Unsupported", text)
        if candidate.subnet_id in self._world.state.current().full_subnets:
            text = f"There are not enough free addresses in subnet '{candidate.subnet_id}' to satisfy the request."
            return Refusal(pool, "InsufficientFreeAddressesInSubnet", text)
        problem = launch_problem(ec2, candidate.template, candidate.override, candidate.subnet_id, pool.instance_type)
        return Refusal(pool, *problem) if problem else None

    def _reservation_limits(self, ec2: EC2Backend, candidates: Sequence[Candidate]) -> list[OutOfCapacity]:
        """Turn the reservations that the templates aim at into limits on their type and zone."""
        aimed = {each.template.reservation_id for each in candidates} - {None}
        return [
            OutOfCapacity(
                type=reservation.type,
                zone=reservation.zone,
                capacity_type="on-demand",
                remaining=available(ec2, reservation.id, reservation.count),
                code="ReservationCapacityExceeded",
                message=f"The requested reservation {reservation.id} does not have sufficient capacity.",
            )
            for reservation in self._world.state.current().reservations
            if reservation.id in aimed
        ]

    def _price(self, pool: Pool) -> float | None:
        state, region = self._world.state.current(), self._world.region
        if pool.capacity_type == "spot":
            return self._world.prices.spot(pool.instance_type, pool.zone, region, state)
        return self._world.prices.on_demand(pool.instance_type, region, state)


def available(ec2: EC2Backend, reservation_id: str, count: int) -> int:
    """Return how many instances a reservation of `count` can still take."""
    used = [
        instance.id
        for reservation in ec2.reservations.values()
        for instance in reservation.instances
        if getattr(instance, "capacity_reservation_id", None) == reservation_id and instance.state not in GONE
    ]
    return max(0, count - len(used))


def _register(ec2: EC2Backend, request: Mapping[str, Any]) -> Fleet:
    # Without templates moto launches nothing, and keeps the rest for DescribeFleets.
    fleet = ec2.create_fleet(
        on_demand_options=request.get("OnDemandOptions") or {},
        spot_options=request.get("SpotOptions") or {},
        target_capacity_specification={**request["TargetCapacitySpecification"], "TotalTargetCapacity": 0},
        launch_template_configs=[],
        excess_capacity_termination_policy="termination",
        replace_unhealthy_instances=False,
        terminate_instances_with_expiration=False,
        fleet_type="instant",
        valid_from=None,
        valid_until=None,
        tag_specifications=list(request.get("TagSpecifications") or ()),
    )
    fleet.target_capacity_specification = dict(request["TargetCapacitySpecification"])
    fleet.launch_template_configs = list(request["LaunchTemplateConfigs"])
    fleet.target_capacity = int(request["TargetCapacitySpecification"]["TotalTargetCapacity"])
    return fleet


def _described(candidate: Candidate) -> dict[str, Any]:
    overrides = dict(candidate.override)
    overrides.setdefault("InstanceType", candidate.pool.instance_type)
    overrides.setdefault("AvailabilityZone", candidate.pool.zone)
    if candidate.subnet_id:
        overrides.setdefault("SubnetId", candidate.subnet_id)
    template = candidate.template
    specification = {"LaunchTemplateId": template.id, "Version": str(template.version)}
    return {"LaunchTemplateSpecification": specification, "Overrides": overrides}


def _is_offered(instance_type: str, zone: str, region: str) -> bool:
    if region not in _offered:
        rows = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ())
        _offered[region] = frozenset((row["InstanceType"], row["Location"]) for row in rows)
    return (instance_type, zone) in _offered[region]


_offered: dict[str, frozenset[tuple[str, str]]] = {}  # by region; moto's table never changes


def _invalid(field: str, problem: str) -> EC2ClientError:
    return EC2ClientError("InvalidParameterValue", f"Invalid value for {field}: {problem}.")
