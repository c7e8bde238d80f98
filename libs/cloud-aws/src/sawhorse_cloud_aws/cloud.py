"""The Cloud protocol over EC2: one object over the parts of this package."""

import ipaddress
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from sawhorse_cloud.cloud import Instance, Launched, LaunchResult, ResolvedNodeClass
from sawhorse_cloud.errors import CloudError, NodeClassNotReadyError, UnauthorizedError
from sawhorse_cloud_aws.account import PlacementGroups
from sawhorse_cloud_aws.amis import AmiFinder, minor_version
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.calls import call, client
from sawhorse_cloud_aws.catalog_source import describe_types
from sawhorse_cloud_aws.dry_runs import DryRunMode, DryRuns
from sawhorse_cloud_aws.fleet import FleetLauncher
from sawhorse_cloud_aws.instances import Instances
from sawhorse_cloud_aws.launched import describe_launch
from sawhorse_cloud_aws.node_class import NodeClassResolver
from sawhorse_cloud_aws.profiles import InstanceProfiles
from sawhorse_cloud_aws.spec import read_node_class
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.survey import InstanceTypeSurveyor
from sawhorse_cloud_aws.templates import LaunchTemplates
from sawhorse_model.instances import InstanceType
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """How to reach AWS and the cluster. Empty cluster facts are asked from EKS.

    `dry_runs`: whether permissions are tried before a NodeClass counts as valid, and what a refusal does.
    `attempts` is how often the SDK makes a call that is throttled or gets no answer before we hear of it.
    """

    cluster_name: str
    region: str
    endpoint_url: str = ""
    cluster_endpoint: str = ""
    cluster_ca: str = ""
    service_cidr: str = ""
    kubernetes_version: str = ""
    attempts: int = 3
    dry_runs: DryRunMode = DryRunMode.OFF


class AwsCloud:
    """See Cloud."""

    def __init__(
        self,
        *,
        resolver: NodeClassResolver,
        templates: LaunchTemplates,
        launcher: FleetLauncher,
        instances: Instances,
    ) -> None:
        self._resolver = resolver
        self._templates = templates
        self._launcher = launcher
        self._instances = instances

    async def resolve_node_class(self, node_class: NodeClass) -> ResolvedNodeClass:
        """Look up what a NodeClass selects. A spec that cannot be read is a False condition, the rest is looked up."""
        return await self._resolver.resolve(*read_node_class(node_class))

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: NodeClass, instance_types: Sequence[InstanceType]
    ) -> LaunchResult:
        """One instance per claim, as one fleet."""
        parsed, misfits = read_node_class(node_class)
        if misfits:
            raise NodeClassNotReadyError(f"NodeClass {node_class.meta.name}: {misfits[0].message}")
        return await self._launcher.launch(token, claims, parsed, instance_types)

    async def find_by_token(self, token: str) -> Sequence[Instance]:
        """Living instances launched with this token."""
        return await self._instances.by_token(token)

    async def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Instances by id, freshly read; terminated ones included while EC2 still shows them."""
        return await self._instances.by_id(instance_ids)

    async def list_instances(self) -> Sequence[Instance]:
        """All living instances of this cluster that we launched."""
        return await self._instances.ours()

    async def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; one that is unknown never keeps the others alive."""
        await self._instances.terminate(instance_ids)

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add tags."""
        await self._instances.tag(instance_id, tags)

    async def adopt(
        self,
        claims: Sequence[NodeClaim],
        instances: Sequence[Instance],
        node_class: NodeClass | None,
        instance_types: Sequence[InstanceType],
    ) -> Mapping[str, Launched]:
        """What `launch` would have answered for these pairs."""
        by_name = {t.name: t for t in instance_types}
        parsed = read_node_class(node_class)[0] if node_class is not None else None
        return {
            claim.meta.name: describe_launch(claim, parsed, instance, by_name.get(instance.instance_type))
            for claim, instance in zip(claims, instances, strict=True)
        }

    async def release_node_class(self, node_class: NodeClass) -> None:
        """Delete templates and profiles of a NodeClass."""
        parsed, _ = read_node_class(node_class)
        await self._templates.delete_of(parsed)
        await self._resolver.release(parsed)

    async def collect_templates(self, in_use: Sequence[NodeClass]) -> int:
        """Delete launch templates that no launch used for a while, and instance profiles that nobody has any more."""
        gone = await self._templates.collect()
        try:
            await self._resolver.collect([read_node_class(each)[0] for each in in_use], self._instances.profiles)
        except UnauthorizedError as error:
            # Where all NodeClasses name their profiles, the controller needs no right to look at others.
            log.debug("instance profiles not collected", error=str(error))
        return gone


def connect(settings: AwsSettings, service: str) -> AbstractAsyncContextManager[Any]:
    """A client of one service."""
    return client(service, region=settings.region, endpoint_url=settings.endpoint_url, attempts=settings.attempts)


async def fetch_cluster_facts(settings: AwsSettings) -> ClusterFacts:
    """The cluster as settings say, the rest from EKS.

    Raises:
        CloudError: neither settings nor EKS tell what nodes need to join.
    """
    known = (
        settings.cluster_endpoint,
        settings.cluster_ca,
        settings.service_cidr,
        settings.kubernetes_version,
    )
    described: Mapping[str, Any] = {}
    if not all(known):
        async with connect(settings, "eks") as eks:
            described = (await call("DescribeCluster", eks.describe_cluster, name=settings.cluster_name))["cluster"]
    network = described.get("kubernetesNetworkConfig") or {}
    facts = ClusterFacts(
        name=settings.cluster_name,
        endpoint=settings.cluster_endpoint or described.get("endpoint", ""),
        ca=settings.cluster_ca or (described.get("certificateAuthority") or {}).get("data", ""),
        service_cidr=settings.service_cidr or network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or "",
        version=minor_version(settings.kubernetes_version or described.get("version", "")),
    )
    if not facts.endpoint:
        raise _missing(settings, "its endpoint is not known", "Set --cluster-endpoint.")
    if facts.service_cidr:  # without one AL2023 classes are not ready, and say so; others do not need it
        try:
            ipaddress.ip_network(facts.service_cidr, strict=False)
        except ValueError as error:
            raise _missing(settings, f"{facts.service_cidr!r} is no address range", "Set --service-cidr.") from error
    return facts


def _missing(settings: AwsSettings, problem: str, action: str) -> CloudError:
    return CloudError(f"cluster {settings.cluster_name}: {problem}", action=action, reason="ClusterFactsMissing")


def _utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # the default of a seam; tests pass their own clock


@asynccontextmanager
async def connect_cloud(
    settings: AwsSettings, *, template_step: Callable[[], AbstractContextManager[None]] = nullcontext
) -> AsyncIterator[AwsCloud]:
    """A Cloud for one cluster.

    Args:
        template_step: see `FleetLauncher`.
    Raises:
        CloudError: EKS does not describe the cluster and settings do not either.
    """
    facts = await fetch_cluster_facts(settings)
    region = settings.region
    async with connect(settings, "ec2") as ec2, connect(settings, "ssm") as ssm, connect(settings, "iam") as iam:
        templates = LaunchTemplates(ec2=ec2, cluster=facts.name, monotonic=time.monotonic)
        subnets = SubnetPicker(monotonic=time.monotonic)
        instances = Instances(ec2=ec2, cluster=facts.name)
        groups = PlacementGroups(ec2=ec2, monotonic=time.monotonic)
        yield AwsCloud(
            resolver=NodeClassResolver(
                ec2=ec2,
                amis=AmiFinder(ec2=ec2, ssm=ssm, minor=facts.version, clock=_utc_now),
                profiles=InstanceProfiles(iam=iam, cluster=facts.name, region=region),
                subnets=subnets,
                cluster=facts,
                groups=groups,
                surveyor=InstanceTypeSurveyor(
                    fetch=lambda: describe_types(ec2, region),
                    monotonic=time.monotonic,
                ),
                dry_runs=DryRuns(
                    ec2=ec2, cluster=facts, region=region, mode=settings.dry_runs, monotonic=time.monotonic
                ),
                clock=_utc_now,
            ),
            templates=templates,
            launcher=FleetLauncher(
                ec2=ec2,
                templates=templates,
                subnets=subnets,
                find=instances.by_token,
                group_of=groups.of,
                cluster=facts,
                region=region,
                template_step=template_step,
            ),
            instances=instances,
        )
