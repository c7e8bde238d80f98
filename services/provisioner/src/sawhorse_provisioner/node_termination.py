"""The end of a Node that is ours: `tainted`, `draining`, `drained`, `volumes`, `instance`, `released`.

One look reads the Node live and does the next thing. While the interruption service drains, eviction is left to it.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_kube.api import Kube
from sawhorse_kube.drain import Drainer, deadline_of, policy_of
from sawhorse_kube.drain_plan import pods_to_drain, tolerates_disruption
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE
from sawhorse_model.cluster import VolumeAttachment
from sawhorse_model.labels import (
    DISRUPTED_TAINT,
    DRAIN_OWNER,
    EXCLUDE_BALANCERS,
    TERMINATION_FINALIZER,
    ZONE,
)
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_model.meta import find_condition, is_true
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED, NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_model.taints import NO_SCHEDULE
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.machines import LOOK_EVERY, end_machine, is_gone
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.writes import Judgement, Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

INTERRUPTION = "interruption"  # value of the annotation drain-owner

_OTHER_DRAINS = 1.0  # seconds between looks while somebody else drains
_VOLUME_LOOK = 1.0
_CONFLICT_RETRY = 0.2
_LISTED = 5


class Heartbeats(Protocol):
    """What is needed of `sawhorse_state.marks.DrainHeartbeat`."""

    async def holder(self, node: str) -> str: ...


class NodeTermination:
    """Handles Nodes by name; `look` is a KeyedQueue handler."""

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        drainer: Drainer,
        heartbeats: Heartbeats,
        announcer: Announcer,
        instruments: Instruments,
        clock: Clock,
        volume_timeout: timedelta,
        steps: Steps,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._drainer = drainer
        self._heartbeats = heartbeats
        self._announcer = announcer
        self._instruments = instruments
        self._clock = clock
        self._volume_timeout = volume_timeout
        self._steps = steps
        self._volumes_since: dict[str, datetime] = {}  # uid of a node → when waiting for its volumes began

    async def look(self, name: str) -> float | None:
        """The next step of one node; returns seconds until the next look, or None for "at the next change"."""
        node = self._state.node(name)
        if node is None or not node.meta.is_deleting or TERMINATION_FINALIZER not in node.meta.finalizers:
            return None
        if not self._state.is_ours(node):
            return None
        try:
            raw = await self._kube.get_raw(NODE, name)
        except NotFoundError:
            self._state.note_deleted(node.meta.uid)
            return None
        live: Node = NODE.parse(raw)
        if live.meta.uid != node.meta.uid or not live.meta.is_deleting:
            return _CONFLICT_RETRY
        if TERMINATION_FINALIZER not in live.meta.finalizers:
            return None
        try:
            return await self._end(live, raw)
        except ConflictError:
            return _CONFLICT_RETRY

    async def _end(self, node: Node, raw: Any) -> float | None:
        claim = self._state.claim_of(node)
        if claim is not None and not self._state.is_going(claim):
            # `kubectl delete node`: the claim goes with it.
            await self._writer.delete_claim(claim, "node_deleted")
            claim = self._state.claim(claim.meta.name) or claim
        instance_id = node.provider_id.rsplit("/", 1)[-1]
        if not node.is_ready and instance_id and await is_gone(self._cloud, instance_id):
            log.info("node of a dead instance", node=node.meta.name, instance_id=instance_id)
            return await self._release(node)
        deadline = deadline_of(claim) if claim is not None else None
        if deadline is not None:
            message = f"All pods of the node will be deleted by {deadline.isoformat()}"
            self._announcer.warn(NODE, node.meta, "TerminationGracePeriodExpiring", message)
        with self._steps.at(Step.TAINTED):
            await self._taint(node, raw)
        wait = await self._drain(node, claim, deadline)
        if wait is None:
            with self._steps.at(Step.VOLUMES):
                wait = await self._await_volumes(node, claim, deadline)
        if wait is not None:
            return wait
        if claim is not None and not await self._end_instance(claim):
            return LOOK_EVERY
        return await self._release(node)

    # Step `tainted`

    async def _taint(self, node: Node, raw: Any) -> None:
        """Keep new pods off, and balancers away, in one locked patch."""
        taints: Sequence[dict[str, Any]] = (raw.get("spec") or {}).get("taints") or ()
        wanted = {"key": DISRUPTED_TAINT, "effect": NO_SCHEDULE}
        if any(t.get("key") == DISRUPTED_TAINT and t.get("effect") == NO_SCHEDULE for t in taints) and (
            EXCLUDE_BALANCERS in node.meta.labels
        ):
            return
        body = {
            "metadata": {
                "resourceVersion": node.meta.resource_version,
                "labels": {EXCLUDE_BALANCERS: DISRUPTED_TAINT.partition("/")[2]},
            },
            "spec": {"taints": [*(t for t in taints if t.get("key") != DISRUPTED_TAINT), wanted]},
        }
        self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, body))
        log.info("node tainted", node=node.meta.name)

    # Steps `draining` and `drained`

    async def _drain(self, node: Node, claim: NodeClaim | None, deadline: datetime | None) -> float | None:
        """Seconds until the next look; None when nothing is left to drain."""
        if claim is not None and is_true(claim.conditions, DRAINED):
            return None
        if claim is not None and await self._other_drains(node, claim):
            return _OTHER_DRAINS
        policy = policy_of(claim) if claim is not None else None
        pods = self._state.pods_on(node.meta.name)
        if pods_to_drain(pods, self._clock.now()):
            with self._steps.at(Step.DRAINING):
                step = await self._drainer.step(node, pods, deadline, policy, claim)
        else:
            self._steps.before(Step.DRAINED)
            step = await self._drainer.step(node, pods, deadline, policy, claim)
        if not step.done:
            return max(0.05, step.next_look.total_seconds())
        self._steps.after(Step.DRAINED)
        self._instruments.nodes_drained.labels(node.meta.labels.get(NODEPOOL_LABEL, "")).inc()
        log.info("node drained", node=node.meta.name)
        return None

    async def _other_drains(self, node: Node, claim: NodeClaim) -> bool:
        """Whether the interruption service drains this node now: its heartbeat is fresh."""
        if claim.meta.annotations.get(DRAIN_OWNER) != INTERRUPTION:
            return False
        try:
            async with asyncio.timeout(3.0):
                return bool(await self._heartbeats.holder(node.meta.name))
        except Exception as error:
            # The store is away: nobody can tell, and an overlap is harmless.
            log.debug("drain heartbeat not read", node=node.meta.name, error=describe(error))
            return False

    # Step `volumes`

    async def _await_volumes(self, node: Node, claim: NodeClaim | None, deadline: datetime | None) -> float | None:
        """Seconds until the next look; None when no volume holds the machine any more, or time is up."""
        now = self._clock.now()
        attached = self._blocking_volumes(node)
        since = self._volumes_since.setdefault(node.meta.uid, now)
        until = deadline if deadline is not None else since + self._volume_timeout
        if attached and now < until:
            names = ", ".join(sorted(a.meta.name for a in attached)[:_LISTED])
            self._announcer.tell(NODE, node.meta, "AwaitingVolumeDetachment", f"Waiting for volumes: {names}")
            await self._say_volumes(claim, Judgement(VOLUMES_DETACHED, "Unknown", "AwaitingVolumeDetachment"))
            return _VOLUME_LOOK
        if attached:
            message = f"{len(attached)} volumes are still attached"
            await self._say_volumes(
                claim, Judgement(VOLUMES_DETACHED, "False", "TerminationGracePeriodElapsed", message)
            )
        else:
            await self._say_volumes(claim, Judgement(VOLUMES_DETACHED, "True"))
        return None

    async def _say_volumes(self, claim: NodeClaim | None, judgement: Judgement) -> None:
        if claim is None:
            return
        known = find_condition(claim.conditions, VOLUMES_DETACHED)
        if known is None or (known.status, known.reason) != (judgement.status, judgement.reason or judgement.type):
            await self._drainer.set_condition(
                claim,
                judgement.type,
                judgement.status,
                reason=judgement.reason or judgement.type,
                message=judgement.message,
            )

    def _blocking_volumes(self, node: Node) -> list[VolumeAttachment]:
        """Attachments that a drained pod will give back; those of pods that stay do not count."""
        stays = {
            name
            for pod in self._state.pods_on(node.meta.name)
            if not pod.is_terminal and (tolerates_disruption(pod) or pod.is_mirror)
            for name in self._volumes_of(pod)
        }
        return [
            a for a in self._state.volume_attachments(node.meta.name) if a.volume_name and a.volume_name not in stays
        ]

    def _volumes_of(self, pod: Pod) -> list[str]:
        claims = (self._state.volume_claim(f"{pod.meta.namespace}/{name}") for name in pod.spec.claims)
        return [c.volume_name for c in claims if c is not None and c.volume_name]

    # Steps `instance` and `released`

    async def _end_instance(self, claim: NodeClaim) -> bool:
        with self._steps.at(Step.INSTANCE):
            gone = await end_machine(self._cloud, claim.instance_id)
            if not is_true(claim.conditions, INSTANCE_TERMINATING):
                await self._writer.judge_claim(claim, [Judgement(INSTANCE_TERMINATING, "True")])
        return gone

    async def _release(self, node: Node) -> float | None:
        with self._steps.at(Step.RELEASED):
            await self._writer.release(NODE, node.meta.name, node.meta.uid, TERMINATION_FINALIZER)
        self._volumes_since.pop(node.meta.uid, None)
        pool = node.meta.labels.get(NODEPOOL_LABEL, "")
        self._instruments.nodes_terminated.labels(pool, node.meta.labels.get(ZONE, "")).inc()
        if node.meta.deletion_timestamp is not None:
            took = (self._clock.now() - node.meta.deletion_timestamp).total_seconds()
            self._instruments.node_termination_seconds.labels(pool).observe(max(0.0, took))
        log.info("node gone", node=node.meta.name, nodepool=pool)
        return None
