"""ProvisionerService: what would be done now, a nudge, and the nodes. Messages here, model inside."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_proto.provisioner.v1 import provisioner_pb2, provisioner_pb2_grpc
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.planning import Planner
from sawhorse_provisioner.snapshots import price_of, price_table
from sawhorse_runtime.errors import QueueFullError, SawhorseError, describe
from sawhorse_scheduling.plan import Plan

log = structlog.get_logger(__name__)

NAME = "sawhorse.provisioner.v1.ProvisionerService"
MOST_QUESTIONS = 8  # plans asked for at once; each waits with a snapshot of the cluster in memory


class ProvisionerApi(provisioner_pb2_grpc.ProvisionerServiceServicer):
    """Serves every replica; nothing here changes the cluster.

    Args:
        is_leading: whether this replica acts.
        look_now: makes the leader, wherever it is, look at the cluster now.
    """

    def __init__(
        self,
        *,
        state: ClusterState,
        planner: Planner,
        is_leading: Callable[[], bool],
        look_now: Callable[[str], Awaitable[None]],
    ) -> None:
        self._state = state
        self._planner = planner
        self._is_leading = is_leading
        self._look_now = look_now
        self._questions = 0
        self._turn = asyncio.Lock()  # one at a time, so that the leader's own plan waits for no more than one

    async def Plan(self, request: Any, context: Any) -> provisioner_pb2.PlanResponse:
        """See the proto."""
        if self._questions >= MOST_QUESTIONS:
            raise QueueFullError(f"{self._questions} plans are asked for already; ask again in a moment")
        self._questions += 1
        try:
            async with self._turn:
                return await self._plan()
        finally:
            self._questions -= 1

    async def _plan(self) -> provisioner_pb2.PlanResponse:
        warnings = []
        if not self._state.synced:
            warnings.append("The mirror of the cluster is not complete; the plan may be wrong.")
        frozen, _ = await self._planner.freeze()
        plan = await self._planner.solve(frozen)
        response = plan_to_message(plan)
        response.warnings.extend(warnings)
        response.leader = self._is_leading()
        return response

    async def LookNow(self, request: Any, context: Any) -> provisioner_pb2.LookNowResponse:
        """See the proto."""
        log.info("asked to look now", why=request.why)
        await self._look_now(request.why or "look-now")
        return provisioner_pb2.LookNowResponse()

    async def ListNodes(self, request: Any, context: Any) -> provisioner_pb2.ListNodesResponse:
        """See the proto."""
        try:
            prices = price_table(await self._planner.resolve())
        except SawhorseError as error:
            log.warning("nodes listed without prices", error=describe(error))
            prices = {}
        nodes = [
            self._node(claim, price_of(claim.meta.labels, prices))
            for claim in sorted(self._state.claims(), key=lambda c: c.meta.name)
        ]
        return provisioner_pb2.ListNodesResponse(nodes=nodes, price_per_hour=sum(n.price_per_hour for n in nodes))

    def _node(self, claim: NodeClaim, price: float) -> provisioner_pb2.ManagedNode:
        labels = claim.meta.labels
        nodes = self._state.nodes_of(claim.provider_id)
        name = claim.node_name or (nodes[0].meta.name if nodes else "")
        return provisioner_pb2.ManagedNode(
            claim=claim.meta.name,
            node=name,
            node_pool=claim.nodepool,
            instance_type=labels.get(INSTANCE_TYPE, "") if claim.provider_id else "",
            zone=labels.get(ZONE, ""),
            capacity_type=labels.get(CAPACITY_TYPE, ""),
            price_per_hour=price,
            pods=sum(1 for p in self._state.pods_on(name) if p.is_active) if name else 0,
            phase=phase(claim),
        )


def phase(claim: NodeClaim) -> str:
    """How far a claim has come, in one word."""
    if claim.meta.is_deleting:
        return "Deleting"
    if claim.is_initialized:
        return "Initialized"
    if claim.is_registered:
        return "Registered"
    return "Launched" if claim.is_launched else "Pending"


def plan_to_message(plan: Plan) -> provisioner_pb2.PlanResponse:
    """A plan as its message; `leader` and further warnings are the caller's."""
    return provisioner_pb2.PlanResponse(
        new_nodes=[
            provisioner_pb2.PlannedNode(
                name=n.name,
                node_pool=n.nodepool,
                instance_types=n.instance_types,
                zone=n.zone,
                capacity_type=n.capacity_type.value,
                price_per_hour=n.price_per_hour,
                expected_price_per_hour=n.expected_price_per_hour,
                worst_price_per_hour=n.worst_price_per_hour,
                pods=n.pods,
            )
            for n in plan.new_nodes
        ],
        existing_nodes=[provisioner_pb2.FilledNode(name=n.name, pods=n.pods) for n in plan.existing_nodes],
        unschedulable=[
            provisioner_pb2.UnschedulablePods(
                pods=u.pods,
                message=u.message,
                reasons=[
                    provisioner_pb2.Reason(node_pool=r.nodepool, code=r.code, message=r.message) for r in u.reasons
                ],
            )
            for u in plan.unschedulable
        ],
        price_per_hour=plan.price_per_hour,
        lower_bound_per_hour=plan.lower_bound_per_hour,
        warnings=plan.warnings,
    )
