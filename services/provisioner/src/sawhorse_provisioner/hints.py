"""Step `hinted`: tells kube-scheduler, before a node is opened, which pending pods were planned for it.

`status.nominatedNodeName` is set while the taint `karpenter.sh/unregistered` still keeps every pod off, so that the
node fills as planned. A hint binds nothing: losing one costs a pod another place. Hints of nodes that never come are
cleared. Own hints are told from a preemption's by their field manager.
"""

import asyncio

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, KubeError, NotFoundError
from sawhorse_kube.kinds import POD
from sawhorse_model.labels import HINT_MANAGER
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.together import each
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

OLDEST_SERVER = (1, 35)  # older ones clear a nomination that is not their own
_SWEEP_EVERY = 10.0
_LONGEST = 5.0  # seconds: a node is not kept closed for hints
_PARALLEL = 32


class Hints:
    """Hints pods of a leader's term.

    Args:
        mode: auto (by the server's version), on or off.
    """

    def __init__(self, *, kube: Kube, state: ClusterState, mode: str) -> None:
        self._kube = kube
        self._state = state
        self._mode = mode
        self._enabled: bool | None = None if mode == "auto" else mode == "on"

    async def hinted(self, claim: NodeClaim, node: Node) -> bool:
        """Hint the pods that are expected on a claim; the node may be opened afterwards, whatever came of it."""
        if not await self._is_enabled():
            return True
        waiting = [p for p in self._state.pods() if p.is_provisionable and p.nominated_node != node.meta.name]
        assigned = self._state.expected.assign(self._state, waiting)
        mine = [p for p in waiting if assigned.get(p.meta.key) == claim.meta.name]
        try:
            async with asyncio.timeout(_LONGEST):
                done = await each(mine, lambda pod: self._nominate(pod, node.meta.name), limit=_PARALLEL)
        except (TimeoutError, KubeError) as error:
            log.warning("hints not all given", node=node.meta.name, error=describe(error))
            return True
        if done:
            log.info("pods hinted", node=node.meta.name, nodeclaim=claim.meta.name, pods=sum(done))
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Clear hints of nodes that are not there, until `stop`."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(_SWEEP_EVERY):
                    await stop.wait()
            except TimeoutError:
                await self._sweep()

    async def _sweep(self) -> None:
        lost = [
            p
            for p in self._state.pods()
            if p.nominated_by == HINT_MANAGER and not p.node_name and self._state.node(p.nominated_node) is None
        ]
        try:
            await each(lost, lambda pod: self._nominate(pod, None), limit=_PARALLEL)
        except KubeError as error:
            log.warning("old hints not cleared", error=describe(error))

    async def _nominate(self, pod: Pod, node: str | None) -> bool:
        body = {"metadata": {"uid": pod.meta.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._kube.patch(
                POD, pod.meta.name, body, namespace=pod.meta.namespace, subresource="status", manager=HINT_MANAGER
            )
        except (NotFoundError, ConflictError):
            return False  # gone or another pod by now
        return True

    async def _is_enabled(self) -> bool:
        if self._enabled is None:
            try:
                self._enabled = await self._kube.server_version() >= OLDEST_SERVER
            except KubeError as error:
                log.warning("server version not known, no hints", error=describe(error))
                return False
        return self._enabled
