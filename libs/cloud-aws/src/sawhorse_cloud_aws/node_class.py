"""Resolving an EC2NodeClass: subnets, security groups, images, instance profile; its conditions and its hash."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sawhorse_cloud.cloud import ResolvedNodeClass
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.amis import AmiFinder, UnsupportedAliasError, tag_filters
from sawhorse_cloud_aws.calls import call, error_code, pages
from sawhorse_cloud_aws.user_data import unsupported
from sawhorse_model.aws import EC2NodeClass, SelectorTerm
from sawhorse_model.manifests.fields import requirement_to_raw
from sawhorse_model.meta import Condition

# Our own word, so that claims of a cluster that moves over are re-stamped and not taken for drifted.
HASH_VERSION = "sawhorse-v1"

SUBNETS, GROUPS, AMIS = "SubnetsReady", "SecurityGroupsReady", "AMIsReady"
PROFILE, VALIDATION = "InstanceProfileReady", "ValidationSucceeded"
PLACEMENT = "PlacementGroupReady"
DEPENDENTS = (AMIS, SUBNETS, GROUPS, PROFILE, VALIDATION, PLACEMENT)

# Fields that are looked up (their results drift on their own) or that never drift.
_NOT_HASHED = frozenset(
    {
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "amiSelectorTerms",
        "capacityReservationSelectorTerms",
        "ipPrefixCount",
        "amiFamily",
    },
)


def static_hash(node_class: EC2NodeClass) -> str:
    """Hash of the fields whose change drifts nodes, as decimal text. Order of lists and maps does not matter."""
    static = {k: v for k, v in node_class.node_class.spec.items() if k not in _NOT_HASHED and v not in (None, {}, [])}
    static["amiFamily"] = node_class.ami_family
    text = json.dumps(_canonical(static), sort_keys=True, separators=(",", ":"))
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return sorted((_canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    return value


def _ok(kind: str) -> Condition:
    return Condition(kind, "True", kind)


def _bad(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "False", reason, message)


def _unknown(kind: str, error: CloudError) -> Condition:
    return Condition(kind, "Unknown", "LookupFailed", f"{error} {error.action}".strip())


class NodeClassResolver:
    """Looks up what EC2NodeClasses select. `ec2` and `iam` are SDK clients."""

    def __init__(self, *, ec2: Any, iam: Any, amis: AmiFinder, cluster: str, region: str) -> None:
        self._ec2 = ec2
        self._iam = iam
        self._amis = amis
        self._cluster = cluster
        self._region = region

    async def resolve(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Status and conditions. A look-up that finds nothing is False; one that fails is Unknown, with the reason.

        A failed look-up keeps the last good part of the status: nodes of it go on being launched.
        """
        last = node_class.node_class.status
        status: dict[str, Any] = {}
        conditions = [Condition(PLACEMENT, "True", PLACEMENT)]
        for kind, key, look_up in (
            (SUBNETS, "subnets", self._subnets),
            (GROUPS, "securityGroups", self._security_groups),
            (AMIS, "amis", self._images),
        ):
            try:
                found, condition = await look_up(node_class)
            except CloudError as error:
                found, condition = list(last.get(key) or ()), _unknown(kind, error)
            status[key] = found
            conditions.append(condition)
        try:
            profile = await self._profile(node_class)
            conditions.append(_ok(PROFILE))
        except CloudError as error:
            profile = str(last.get("instanceProfile") or "")
            conditions.append(_unknown(PROFILE, error))
        if profile:
            status["instanceProfile"] = profile
        conditions.append(self._validation(node_class, conditions))
        return ResolvedNodeClass(status, tuple(conditions), DEPENDENTS, static_hash(node_class), HASH_VERSION)

    async def _subnets(self, node_class: EC2NodeClass) -> tuple[list[dict[str, str]], Condition]:
        found: dict[str, Mapping[str, Any]] = {}
        for filters in _selector_filters(node_class.subnet_terms, "subnet-id", ""):
            for subnet in await pages("DescribeSubnets", self._ec2, "describe_subnets", "Subnets", Filters=filters):
                found[subnet["SubnetId"]] = subnet
        ordered = sorted(found.values(), key=lambda s: (-int(s.get("AvailableIpAddressCount", 0)), s["SubnetId"]))
        status = [
            {"id": s["SubnetId"], "zone": s["AvailabilityZone"], "zoneID": s.get("AvailabilityZoneId", "")}
            for s in ordered
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

    async def _profile(self, node_class: EC2NodeClass) -> str:
        """The instance profile: the user's own, or one that is made for the role."""
        if node_class.instance_profile:
            return node_class.instance_profile
        role = node_class.role.rsplit("/", 1)[-1]
        # One profile per role and class: a changed role is a new profile, an unchanged one is found again.
        seed = f"{self._region}/{node_class.name}/{node_class.node_class.meta.uid}/{role}"
        name = f"{self._cluster}_{int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], 'big')}"
        try:
            answer = await call("GetInstanceProfile", self._iam.get_instance_profile, InstanceProfileName=name)
            attached = [r["RoleName"] for r in answer["InstanceProfile"].get("Roles", ())]
        except CloudError as error:
            if error_code(error) not in ("NoSuchEntity", "NoSuchEntityException"):
                raise
            await call(
                "CreateInstanceProfile",
                self._iam.create_instance_profile,
                InstanceProfileName=name,
                Path=f"/karpenter/{self._region}/{self._cluster}/{node_class.node_class.meta.uid or node_class.name}/",
            )
            attached = []
        if role not in attached:
            await call(
                "AddRoleToInstanceProfile",
                self._iam.add_role_to_instance_profile,
                InstanceProfileName=name,
                RoleName=role,
            )
        return name

    async def release(self, node_class: EC2NodeClass) -> None:
        """Delete the profile made for a NodeClass; one that is gone already is fine."""
        name = node_class.resolved_profile
        if not name or node_class.instance_profile or not name.startswith(f"{self._cluster}_"):
            return
        try:
            answer = await call("GetInstanceProfile", self._iam.get_instance_profile, InstanceProfileName=name)
            for role in answer["InstanceProfile"].get("Roles", ()):
                await call(
                    "RemoveRoleFromInstanceProfile",
                    self._iam.remove_role_from_instance_profile,
                    InstanceProfileName=name,
                    RoleName=role["RoleName"],
                )
            await call("DeleteInstanceProfile", self._iam.delete_instance_profile, InstanceProfileName=name)
        except CloudError as error:
            if error_code(error) not in ("NoSuchEntity", "NoSuchEntityException"):
                raise

    def _validation(self, node_class: EC2NodeClass, conditions: list[Condition]) -> Condition:
        problem = unsupported(node_class)
        if problem:
            return _bad(VALIDATION, "NotSupported", problem)
        waiting = [c for c in conditions if c.type in (AMIS, PROFILE, GROUPS, SUBNETS) and c.status != "True"]
        if waiting:
            status = "False" if any(c.status == "False" for c in waiting) else "Unknown"
            names = ", ".join(f"{c.type}={c.status}" for c in waiting)
            return Condition(VALIDATION, status, "DependenciesNotReady", names)
        restricted = [
            key
            for key in node_class.tags
            if not key
            or key.startswith("kubernetes.io/cluster")
            or key
            in (
                "eks:eks-cluster-name",
                "karpenter.sh/nodepool",
                "karpenter.sh/nodeclaim",
                "karpenter.k8s.aws/ec2nodeclass",
            )
        ]
        if restricted:
            return _bad(
                VALIDATION, "TagValidationFailed", f"spec.tags: {restricted[0]!r} is set by the autoscaler; remove it"
            )
        return _ok(VALIDATION)


def _selector_filters(terms: tuple[SelectorTerm, ...], id_filter: str, name_filter: str) -> list[list[dict[str, Any]]]:
    """One list of EC2 filters per look-up: all ids and all names together, each tag term alone."""
    result = []
    ids = [t.id for t in terms if t.id]
    if ids:
        result.append([{"Name": id_filter, "Values": ids}])
    names = [t.name for t in terms if t.name and not t.id]
    if names and name_filter:
        result.append([{"Name": name_filter, "Values": names}])
    result += [tag_filters(t.tags) for t in terms if t.tags and not t.id and not t.name]
    return result
