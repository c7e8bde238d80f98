"""Resolving an EC2NodeClass: subnets, security groups, images, instance profile; its conditions and its hash."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sawhorse_catalog.account import PlacementGroup
from sawhorse_catalog.aws.node_class import placement_selector
from sawhorse_cloud.cloud import ResolvedNodeClass
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.account import PlacementGroups, find_reservations, reservation_status
from sawhorse_cloud_aws.amis import AmiFinder, UnsupportedAliasError, tag_filters
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.calls import chunks, pages
from sawhorse_cloud_aws.dry_runs import DryRuns
from sawhorse_cloud_aws.hashing import HASH_VERSION, static_hash
from sawhorse_cloud_aws.profiles import ROLE_NOT_FOUND, InstanceProfiles, LookUp
from sawhorse_cloud_aws.spec import Misfit, read_node_class
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.survey import COMPATIBLE, InstanceTypeSurveyor
from sawhorse_cloud_aws.validation import VALIDATION, validate
from sawhorse_model.aws import EC2NodeClass, SelectorTerm
from sawhorse_model.manifests.fields import requirement_to_raw
from sawhorse_model.meta import Condition, find_condition

SUBNETS, GROUPS, AMIS = "SubnetsReady", "SecurityGroupsReady", "AMIsReady"
PROFILE, PLACEMENT = "InstanceProfileReady", "PlacementGroupReady"
RESERVATIONS = "CapacityReservationsReady"
INTERRUPTIBLE_IGNORED = "InterruptibleIgnored"
DEPENDENTS = (AMIS, SUBNETS, GROUPS, PROFILE, VALIDATION, PLACEMENT, COMPATIBLE)

_LookUp = Callable[[EC2NodeClass], Awaitable[tuple[list[Any], Condition]]]


def _ok(kind: str) -> Condition:
    return Condition(kind, "True", kind)


def _bad(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "False", reason, message)


def _failed(node_class: EC2NodeClass, kind: str, error: CloudError, *, kept: bool) -> Condition:
    """The condition of a look-up that did not work.

    What was found for this very spec still holds, and stays True with the cause beside it: a throttled or forbidden
    call must not stop the launches of a NodeClass that worked a minute ago.

    Args:
        kept: whether the status has an earlier result.
    """
    text = f"{error} {error.action}".strip()
    before = find_condition(node_class.node_class.conditions, kind)
    holds = (
        before is not None
        and before.status == "True"
        and before.observed_generation == node_class.node_class.meta.generation
    )
    if kept and holds:
        return Condition(kind, "True", "LookupFailed", f"the last result is kept: {text}")
    return Condition(kind, "Unknown", "LookupFailed", text)


class NodeClassResolver:
    """Looks up what EC2NodeClasses select. `ec2` is an SDK client."""

    def __init__(
        self,
        *,
        ec2: Any,
        amis: AmiFinder,
        profiles: InstanceProfiles,
        subnets: SubnetPicker,
        cluster: ClusterFacts,
        groups: PlacementGroups,
        surveyor: InstanceTypeSurveyor,
        dry_runs: DryRuns,
        clock: Callable[[], datetime],
    ) -> None:
        self._ec2 = ec2
        self._amis = amis
        self._profiles = profiles
        self._picker = subnets
        self._cluster = cluster
        self._groups = groups
        self._surveyor = surveyor
        self._dry_runs = dry_runs
        self._clock = clock

    async def resolve(self, node_class: EC2NodeClass, misfits: Sequence[Misfit] = ()) -> ResolvedNodeClass:
        """Status and conditions. A look-up that finds nothing is False; one that fails says so in its condition.

        A failed look-up keeps the last good part of the status: nodes of it go on being launched. Without one, or after
        the spec has changed, the condition is Unknown.

        Args:
            misfits: fields of the spec that could not be read; they make ValidationSucceeded False.
        """
        last = node_class.node_class.status
        status: dict[str, Any] = {}
        conditions: list[Condition] = []
        dependents: tuple[str, ...] = DEPENDENTS
        look_ups: list[tuple[str, str, _LookUp]] = [
            (SUBNETS, "subnets", self._subnets),
            (GROUPS, "securityGroups", self._security_groups),
            (AMIS, "amis", self._images),
        ]
        if node_class.node_class.spec.get("capacityReservationSelectorTerms"):
            look_ups.append((RESERVATIONS, "capacityReservations", self._reservations))
            dependents = (*DEPENDENTS, RESERVATIONS)
        for kind, key, look_up in look_ups:
            try:
                found, condition = await look_up(node_class)
            except CloudError as error:
                found, condition = list(last.get(key) or ()), _failed(node_class, kind, error, kept=key in last)
            status[key] = found
            conditions.append(condition)
        try:
            profile = await self._profiles.ensure(node_class)
            conditions.append(_ok(PROFILE))
        except CloudError as error:
            profile = str(last.get("instanceProfile") or "")
            # That there is no such role is an answer: nodes without one never join.
            kept = bool(profile) and error.reason != ROLE_NOT_FOUND
            conditions.append(_failed(node_class, PROFILE, error, kept=kept))
        if profile:
            status["instanceProfile"] = profile
        placement, group = await self._placement(node_class)
        types = await self._surveyor.condition(node_class, placement_strategy=group.strategy if group else "")
        validation = validate(node_class, misfits, conditions, self._cluster)
        if validation.status == "True":
            found_now, _ = read_node_class(replace(node_class.node_class, status=status))
            validation = await self._dry_runs.check(found_now)
        conditions += [validation, placement, types]
        return ResolvedNodeClass(status, tuple(conditions), dependents, static_hash(node_class), HASH_VERSION)

    async def release(self, node_class: EC2NodeClass) -> None:
        """Delete the profiles made for a NodeClass."""
        await self._profiles.release(node_class)

    async def collect(self, in_use: Sequence[EC2NodeClass], attached: LookUp) -> int:
        """Delete profiles that neither a NodeClass nor a machine has any more; see `InstanceProfiles.collect`."""
        return await self._profiles.collect(in_use, attached)

    async def _subnets(self, node_class: EC2NodeClass) -> tuple[list[dict[str, str]], Condition]:
        found: dict[str, Mapping[str, Any]] = {}
        for filters in _selector_filters(node_class.subnet_terms, "subnet-id", ""):
            for subnet in await pages("DescribeSubnets", self._ec2, "describe_subnets", "Subnets", Filters=filters):
                found[subnet["SubnetId"]] = subnet
        free = {key: int(subnet.get("AvailableIpAddressCount", 0)) for key, subnet in found.items()}
        self._picker.observe(free)
        status = [
            {"id": key, "zone": found[key]["AvailabilityZone"], "zoneID": found[key].get("AvailabilityZoneId", "")}
            for key in sorted(found, key=lambda key: (-free[key], key))
        ]
        if status:
            return status, _ok(SUBNETS)
        return status, _bad(SUBNETS, "SubnetsNotFound", "spec.subnetSelectorTerms match no subnet: check tags and ids")

    async def _security_groups(self, node_class: EC2NodeClass) -> tuple[list[dict[str, str]], Condition]:
        found: dict[str, str] = {}
        for filters in _selector_filters(node_class.security_group_terms, "group-id", "group-name"):
            for group in await pages(
                "DescribeSecurityGroups", self._ec2, "describe_security_groups", "SecurityGroups", Filters=filters
            ):
                found[group["GroupId"]] = group.get("GroupName", "")
        status = [{"id": key, "name": found[key]} for key in sorted(found)]
        if status:
            return status, _ok(GROUPS)
        problem = "spec.securityGroupSelectorTerms match no security group: check tags, ids and names"
        return status, _bad(GROUPS, "SecurityGroupsNotFound", problem)

    async def _images(self, node_class: EC2NodeClass) -> tuple[list[dict[str, Any]], Condition]:
        try:
            amis = await self._amis.find(node_class)
        except UnsupportedAliasError as error:
            return [], _bad(AMIS, "UnsupportedAlias", f"spec.amiSelectorTerms: {error} {error.action}".strip())
        status: list[dict[str, Any]] = [
            {
                "id": ami.id,
                "name": ami.name,
                **({"deprecated": True} if ami.deprecated else {}),
                "requirements": [requirement_to_raw(r) for r in ami.requirements],
            }
            for ami in amis
        ]
        if status:
            return status, _ok(AMIS)
        return status, _bad(AMIS, "AMINotFound", "spec.amiSelectorTerms match no available image: check alias and tags")

    async def _reservations(self, node_class: EC2NodeClass) -> tuple[list[dict[str, Any]], Condition]:
        found = await find_reservations(self._ec2, node_class, self._clock())
        # None found is no fault: reservations come and go, and machines outside of them can still be had.
        condition = _ok(RESERVATIONS)
        if left := [each.id for each in found if each.interruptible]:
            text = f"not launched into, as interruptible reservations are not supported yet: {', '.join(left)}"
            condition = Condition(RESERVATIONS, "True", INTERRUPTIBLE_IGNORED, text)
        return [reservation_status(each) for each in found], condition

    async def _placement(self, node_class: EC2NodeClass) -> tuple[Condition, PlacementGroup | None]:
        selector = placement_selector(node_class)
        if not selector:
            return _ok(PLACEMENT), None
        try:
            group = await self._groups.of(node_class)
        except CloudError as error:
            text = f"{error} {error.action}".strip()
            return Condition(PLACEMENT, "Unknown", "PlacementGroupResolutionFailed", text), None
        if group is None:
            wanted = selector.get("id") or selector.get("name")
            problem = f"spec.placementGroupSelector: there is no available placement group {wanted}; check name and id"
            return _bad(PLACEMENT, "PlacementGroupNotFound", problem), None
        return _ok(PLACEMENT), group


def _selector_filters(terms: Sequence[SelectorTerm], id_filter: str, name_filter: str) -> list[list[dict[str, Any]]]:
    """One list of EC2 filters per look-up: ids together and names together, each tag term alone. An id stands alone."""
    ids = sorted({t.id for t in terms if t.id})
    result = [[{"Name": id_filter, "Values": part}] for part in chunks(ids)]
    if name_filter:
        names = sorted({t.name for t in terms if t.name and not t.id})
        result += [[{"Name": name_filter, "Values": part}] for part in chunks(names)]
    result += [tag_filters(t.tags) for t in terms if t.tags and not t.id and not t.name]
    return result
