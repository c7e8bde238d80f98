"""The Cloud protocol over EC2: one object over the parts of this package."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sawhorse_cloud.cloud import Instance, InstanceState, Launched, LaunchResult, ResolvedNodeClass
from sawhorse_cloud.errors import CloudError, InstanceNotFoundError
from sawhorse_cloud_aws.amis import AmiFinder
from sawhorse_cloud_aws.calls import INSTANCE_NOT_FOUND, call, client, error_code, pages, tag_list, tag_map
from sawhorse_cloud_aws.fleet import FleetLauncher, describe_launch
from sawhorse_cloud_aws.node_class import NodeClassResolver
from sawhorse_cloud_aws.tags import CLUSTER_TAG, TOKEN_TAG
from sawhorse_cloud_aws.templates import LaunchTemplates
from sawhorse_cloud_aws.user_data import ClusterFacts
from sawhorse_model.aws import NODECLASS_LABEL, parse_ec2_node_class
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import NODEPOOL
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass

# Terminated ones stay in EC2's answers for an hour; to us they are gone.
_LIVING = ["pending", "running", "stopping", "stopped", "shutting-down"]
_DESCRIBE_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """How to reach AWS and the cluster. Empty cluster facts are asked from EKS."""

    cluster_name: str
    region: str
    endpoint_url: str = ""
    cluster_endpoint: str = ""
    cluster_ca: str = ""
    service_cidr: str = ""
    kubernetes_version: str = ""


class AwsCloud:
    """See Cloud."""

    def __init__(
        self,
        *,
        ec2: Any,
        resolver: NodeClassResolver,
        templates: LaunchTemplates,
        launcher: FleetLauncher,
        cluster: str,
    ) -> None:
        self._ec2 = ec2
        self._resolver = resolver
        self._templates = templates
        self._launcher = launcher
        self._cluster = cluster

    async def resolve_node_class(self, node_class: NodeClass) -> ResolvedNodeClass:
        """Look up what a NodeClass selects."""
        return await self._resolver.resolve(parse_ec2_node_class(node_class))

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: NodeClass, instance_types: Sequence[InstanceType]
    ) -> LaunchResult:
        """One instance per claim, as one fleet."""
        return await self._launcher.launch(token, claims, parse_ec2_node_class(node_class), instance_types)

    async def find_by_token(self, token: str) -> Sequence[Instance]:
        """Living instances launched with this token."""
        found = await self._describe([{"Name": f"tag:{TOKEN_TAG}", "Values": [token]}])
        return sorted((i for i in found if not i.state.is_gone), key=lambda i: i.id)

    async def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Instances by id, freshly read; terminated ones included while EC2 still shows them."""
        result: dict[str, Instance] = {}
        for start in range(0, len(instance_ids), _DESCRIBE_AT_ONCE):
            ids = list(instance_ids[start : start + _DESCRIBE_AT_ONCE])
            # By filter, not by InstanceIds: an unknown id must not fail the others.
            filters = [{"Name": "instance-id", "Values": ids}]
            result |= {i.id: i for i in await self._describe(filters, living=False)}
        return result

    async def list_instances(self) -> Sequence[Instance]:
        """All living instances of this cluster that we launched."""
        return await self._describe(
            [
                {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
                {"Name": "tag-key", "Values": [NODEPOOL]},
                {"Name": "tag-key", "Values": [NODECLASS_LABEL]},
            ],
        )

    async def _describe(self, filters: list[dict[str, Any]], *, living: bool = True) -> list[Instance]:
        if living:
            filters = [*filters, {"Name": "instance-state-name", "Values": _LIVING}]
        reservations = await pages(
            "DescribeInstances",
            self._ec2,
            "describe_instances",
            "Reservations",
            Filters=filters,
            PaginationConfig={"PageSize": 1000},
        )
        return [_instance(raw) for r in reservations for raw in r.get("Instances", ())]

    async def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; one that is unknown never keeps the others alive."""
        if not instance_ids:
            return
        try:
            await call("TerminateInstances", self._ec2.terminate_instances, InstanceIds=list(instance_ids))
        except CloudError as error:
            if error_code(error) not in INSTANCE_NOT_FOUND:
                raise
            if len(instance_ids) > 1:
                for instance_id in instance_ids:
                    await self.terminate([instance_id])

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add tags."""
        try:
            await call("CreateTags", self._ec2.create_tags, Resources=[instance_id], Tags=tag_list(tags))
        except CloudError as error:
            if error_code(error) in INSTANCE_NOT_FOUND:
                raise InstanceNotFoundError(f"no instance {instance_id}") from error
            raise

    async def adopt(
        self,
        claims: Sequence[NodeClaim],
        instances: Sequence[Instance],
        node_class: NodeClass | None,
        instance_types: Sequence[InstanceType],
    ) -> Mapping[str, Launched]:
        """What `launch` would have answered for these pairs."""
        by_name = {t.name: t for t in instance_types}
        parsed = parse_ec2_node_class(node_class) if node_class is not None else None
        return {
            claim.meta.name: describe_launch(parsed, instance, by_name.get(instance.instance_type))
            for claim, instance in zip(claims, instances, strict=True)
        }

    async def release_node_class(self, node_class: NodeClass) -> None:
        """Delete templates and profile of a NodeClass."""
        parsed = parse_ec2_node_class(node_class)
        await self._templates.delete_of(parsed)
        await self._resolver.release(parsed)

    async def collect_templates(self, in_use: Sequence[NodeClass]) -> int:
        """Delete launch templates that no launch used for a while."""
        return await self._templates.collect()


def _instance(raw: Mapping[str, Any]) -> Instance:
    tags = tag_map(raw.get("Tags"))
    zone = raw.get("Placement", {}).get("AvailabilityZone", "")
    return Instance(
        id=raw["InstanceId"],
        provider_id=f"aws:///{zone}/{raw['InstanceId']}",
        state=InstanceState(raw["State"]["Name"]),
        instance_type=raw.get("InstanceType", ""),
        zone=zone,
        capacity_type="spot" if raw.get("InstanceLifecycle") == "spot" else "on-demand",
        image_id=raw.get("ImageId", ""),
        launched=raw.get("LaunchTime"),
        tags=tags,
        token=tags.get(TOKEN_TAG, ""),
    )


async def _cluster_facts(settings: AwsSettings) -> ClusterFacts:
    """The cluster as settings say, the rest from EKS."""
    known = (
        settings.cluster_endpoint,
        settings.cluster_ca,
        settings.service_cidr,
        settings.kubernetes_version,
    )
    described: Mapping[str, Any] = {}
    if not all(known):
        async with client("eks", region=settings.region, endpoint_url=settings.endpoint_url) as eks:
            described = (await call("DescribeCluster", eks.describe_cluster, name=settings.cluster_name))["cluster"]
    network = described.get("kubernetesNetworkConfig") or {}
    return ClusterFacts(
        name=settings.cluster_name,
        endpoint=settings.cluster_endpoint or described.get("endpoint", ""),
        ca=settings.cluster_ca or (described.get("certificateAuthority") or {}).get("data", ""),
        service_cidr=settings.service_cidr or network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or "",
        version=settings.kubernetes_version or described.get("version", ""),
    )


@asynccontextmanager
async def connect_cloud(settings: AwsSettings) -> AsyncIterator[AwsCloud]:
    """A Cloud for one cluster.

    Raises:
        CloudError: EKS does not describe the cluster and settings do not either.
    """
    facts = await _cluster_facts(settings)
    if not (facts.endpoint and facts.service_cidr and facts.version):
        raise CloudError(
            f"cluster {settings.cluster_name}: endpoint, service range or version is not known",
            action="Set --cluster-endpoint, --service-cidr and --kubernetes-version.",
            reason="ClusterFactsMissing",
        )
    region, endpoint = settings.region, settings.endpoint_url
    async with (
        client("ec2", region=region, endpoint_url=endpoint) as ec2,
        client("ssm", region=region, endpoint_url=endpoint) as ssm,
        client("iam", region=region, endpoint_url=endpoint) as iam,
    ):
        templates = LaunchTemplates(ec2=ec2, cluster=facts.name, monotonic=time.monotonic)
        yield AwsCloud(
            ec2=ec2,
            resolver=NodeClassResolver(
                ec2=ec2,
                iam=iam,
                amis=AmiFinder(ec2=ec2, ssm=ssm, minor=facts.version),
                cluster=facts.name,
                region=region,
            ),
            templates=templates,
            launcher=FleetLauncher(ec2=ec2, templates=templates, cluster=facts, region=region),
            cluster=facts.name,
        )


__all__ = ["AwsCloud", "AwsSettings", "InstanceState", "connect_cloud"]
