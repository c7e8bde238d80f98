"""Wires the provisioner: the one module that knows which cloud it is."""

import os
import socket
from asyncio import Event
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sawhorse_cloud_aws import AwsSettings, DryRunMode, connect_cloud, expiring_blocks
from sawhorse_kube.client import connect_kube
from sawhorse_kube.kinds import EC2_NODECLASS, MIRRORED
from sawhorse_kube.leases import LeaderElector
from sawhorse_model import aws
from sawhorse_proto.catalog.v1 import catalog_pb2_grpc
from sawhorse_proto.provisioner.v1 import provisioner_pb2_grpc
from sawhorse_provisioner.catalog_client import CatalogClient
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.fence import CLOUD_WRITES, KUBE_WRITES, fenced
from sawhorse_provisioner.grpc_api import NAME, ProvisionerApi
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.planning import Planner
from sawhorse_provisioner.service import CATALOGUE, MIRROR, Replica
from sawhorse_provisioner.settings import Settings
from sawhorse_provisioner.snapshots import nomination_window
from sawhorse_provisioner.solver import process_solver
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.term import Surroundings
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.errors import RemoteError, Retry
from sawhorse_runtime.failpoints import Steps, steps_or_exit
from sawhorse_runtime.health import Readiness, serve_http
from sawhorse_runtime.logs import setup_logging
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready
from sawhorse_runtime.rpc import call, channel, grpc_server, tls_from
from sawhorse_runtime.settings import load_or_exit
from sawhorse_runtime.supervise import run_service, supervise
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_state.connection import connect_state
from sawhorse_state.instances import InstanceIndex
from sawhorse_state.journal import PLANS, Journal
from sawhorse_state.marks import DrainHeartbeat
from sawhorse_state.memory import MeasuredMemory
from sawhorse_state.mirror import Mirror
from sawhorse_state.placements import PlacementStore
from sawhorse_state.wake import Wake, wake

log = structlog.get_logger(__name__)

SERVICE = "provisioner"
PROG = "sawhorse-provisioner"
CATALOG_SERVICE = "sawhorse.catalog.v1.CatalogService"

AWS_WORDS = NodeClassWords(
    kind=EC2_NODECLASS,
    finalizer=aws.NODECLASS_FINALIZER,
    label=aws.NODECLASS_LABEL,
    hash=aws.NODECLASS_HASH,
    hash_version=aws.NODECLASS_HASH_VERSION,
    tagged=aws.TAGGED,
    well_known=aws.WELL_KNOWN,
    attachments=aws.ATTACHMENTS,
    exotic=frozenset({aws.NVIDIA_GPU, aws.AMD_GPU, aws.GAUDI, aws.NEURON, aws.NEURON_CORE}),
    exotic_labels=aws.EXOTIC_LABELS,
    hints=aws.HINTS,
    closed_values=aws.CLOSED_VALUES,
    tagged_also=(aws.CLUSTER_NAME_TAGGED,),
    plugins={
        aws.NVIDIA_GPU: "the NVIDIA device plugin",
        aws.AMD_GPU: "the AMD GPU device plugin",
        aws.GAUDI: "the Habana AI device plugin",
        aws.NEURON: "the Neuron device plugin",
        aws.NEURON_CORE: "the Neuron device plugin",
        aws.EFA: "the EFA device plugin",
        aws.POD_ENI: "the VPC CNI with ENABLE_POD_ENI",
    },
    reservation=aws.RESERVATION_ID,
    reservation_labels=(aws.RESERVATION_ID, aws.RESERVATION_TYPE, aws.RESERVATION_INTERRUPTIBLE),
    placement_group=aws.PLACEMENT_GROUP_ID,
    partition=aws.PLACEMENT_GROUP_PARTITION,
    expiring=expiring_blocks,
)


def main() -> int:
    """The entry point; returns the exit code of the process."""
    settings = load_or_exit(
        Settings,
        prog=PROG,
        description="Makes nodes when pods need them: plans, launches, registers and ends them.",
    )
    steps = steps_or_exit(Step, prog=PROG)
    setup_logging(settings.log_level, SERVICE)

    async def run(stop: Event) -> None:
        await serve(settings, stop, steps)

    return run_service(run)


async def serve(settings: Settings, stop: Event, steps: Steps) -> None:
    """Wire the real dependencies, run until `stop`, close them in reverse order."""
    metrics, clock, words = Metrics(), SystemClock(), AWS_WORDS
    instruments = Instruments(metrics)
    readiness = Readiness((MIRROR, CATALOGUE))
    tls = tls_from(settings)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        ports = await enter(serve_http(settings, readiness, metrics.registry))
        store = await enter(connect_state(settings.read_redis_url(), settings.cluster_name))
        kube = await enter(
            connect_kube(
                kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None,
                qps=settings.kube_client_qps,
                burst=settings.kube_client_burst,
            )
        )
        version = settings.kubernetes_version
        if not version:
            version = ".".join(map(str, await kube.server_version()))
        cloud = await enter(
            connect_cloud(aws_settings(settings, version), template_step=lambda: steps.at(Step.TEMPLATE))
        )
        pricing = await enter(channel(settings.pricing_address, tls=tls, insecure_allowed=settings.insecure_grpc))
        catalog = CatalogClient(catalog_pb2_grpc.CatalogServiceStub(pricing), words.kind)
        health: Any = health_pb2_grpc.HealthStub(pricing)  # its stub types lack the methods

        async def ask_catalogue() -> None:
            request = health_pb2.HealthCheckRequest(service=CATALOG_SERVICE)
            answer = await call(health.Check, request, timeout=4.0, service="pricing")
            if answer.status != health_pb2.HealthCheckResponse.SERVING:
                raise RemoteError("pricing has no catalogue yet", code="UNAVAILABLE", retry=Retry.BACKOFF)

        mirror = Mirror(store, [kind.name for kind in (*MIRRORED, words.kind)])
        state = ClusterState(
            mirror, words=words, clock=clock, nomination=nomination_window(settings.batch_max_duration)
        )
        solver = await enter(process_solver(settings.solve_timeout))
        planner = Planner(state=state, catalog=catalog, solver=solver, options=solve_options(settings), clock=clock)
        election = LeaderElector(
            kube,
            settings.leader_election_name,
            settings.leader_election_namespace,
            f"{socket.gethostname()}-{os.getpid()}",
            settings.leader_election_lease_duration,
            clock=clock,
        )
        around = Surroundings(
            kube=fenced(kube, KUBE_WRITES, lambda: election.is_leading),
            cloud=fenced(cloud, CLOUD_WRITES, lambda: election.is_leading),
            catalog=catalog,
            state=state,
            planner=planner,
            index=InstanceIndex(store),
            heartbeats=DrainHeartbeat(store),
            memory=MeasuredMemory(store),
            placements=PlacementStore(store),
            journal=Journal(store, PLANS),
            instruments=instruments,
            metrics=metrics,
            clock=clock,
            words=words,
            settings=settings,
            steps=steps,
        )
        replica = Replica(
            around,
            readiness=readiness,
            wake_ups=Wake(store, SERVICE),
            mirror_missing=lambda: mirror.missing,
            ask_catalogue=ask_catalogue,
        )
        mirror.subscribe(replica.changed)

        async def look_now(why: str) -> None:
            await wake(store, SERVICE, why)

        api = ProvisionerApi(state=state, planner=planner, is_leading=lambda: replica.is_leading, look_now=look_now)
        port = None
        if settings.grpc_address:
            port = await enter(
                grpc_server(
                    settings.grpc_address,
                    servicers={
                        NAME: lambda server: provisioner_pb2_grpc.add_ProvisionerServiceServicer_to_server(api, server)
                    },
                    readiness=readiness,
                    tls=tls,
                    insecure_allowed=settings.insecure_grpc,
                    default_deadline=settings.solve_timeout,
                    metrics=metrics,
                )
            )
        stack.callback(readiness.close)
        await supervise(
            {
                "mirror": mirror.run,
                "check": replica.check,
                "listen": replica.listen,
                "lead": replica.campaign(election),
                "ready-file": announce_ready(settings.ready_file, readiness, grpc=port, ports=ports),
            },
            stop=stop,
            drain=settings.drain_timeout,
        )


def aws_settings(settings: Settings, kubernetes_version: str) -> AwsSettings:
    """How the cloud is reached, as the settings say."""
    return AwsSettings(
        cluster_name=settings.cluster_name,
        region=settings.aws_region,
        endpoint_url=settings.aws_endpoint_url,
        cluster_endpoint=settings.cluster_endpoint,
        cluster_ca=settings.cluster_ca_bundle,
        service_cidr=settings.service_cidr,
        kubernetes_version=kubernetes_version,
        dry_runs=DryRunMode.ADVISE if settings.disable_dry_run else DryRunMode.REQUIRE,
    )


def solve_options(settings: Settings) -> SolveOptions:
    """How plans are made, as the settings say."""
    return SolveOptions(
        well_known=AWS_WORDS.well_known,
        exotic=AWS_WORDS.exotic,
        exotic_labels=AWS_WORDS.exotic_labels,
        hints=AWS_WORDS.hints,
        attachments=AWS_WORDS.attachments,
        reservation_labels=AWS_WORDS.reservation_labels,
        ignore_preferences=settings.preference_policy == "Ignore",
        min_values_strict=settings.min_values_policy == "Strict",
        max_instance_types=settings.max_instance_types,
        default_spread=settings.scheduler_config,
        minimize_expected=settings.minimize == "expected",
        slack=settings.node_slack,
        fixed_cost=settings.node_fixed_cost,
        max_pods_per_node=settings.max_pods_per_node or None,
        time_limit_seconds=settings.solve_timeout.total_seconds() / 2,
    )
