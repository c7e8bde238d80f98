"""Step `hinted`: tells kube-scheduler, before a node is opened, which pending pods were planned for it.

`status.nominatedNodeName` is set while the taint `karpenter.sh/unregistered` still keeps every pod off, so that the
node fills as planned. A hint binds nothing: losing one costs a pod another place. Whenever a node opens, kube-scheduler
tries all pods that wait, and drops the hints of those that find their own node closed. So nodes that come at about the
same time are hinted and opened together (`Gathering`). Some pods must not be hinted together (`hint_rules`): as long as
pods are expected on an open node, hints are given anew. Hints of nodes that never come, and of pods that are expected
elsewhere by now, are cleared. Own hints are told from a preemption's by their field manager.
"""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from sawhorse_kube.kinds import POD
from sawhorse_model.labels import HINT_MANAGER
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_model.resources import Resources, subtract
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.expectations import by_target
from sawhorse_provisioner.gathering import Gathering
from sawhorse_provisioner.hint_rules import harmless
from sawhorse_provisioner.together import each
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

OLDEST_SERVER = (1, 35)  # older ones clear a nomination that is not their own
_SWEEP_EVERY = 10.0
_FOLLOW_EVERY = 0.1  # seconds: kube-scheduler places some hundred pods a second, also those that lost their hint
_FOLLOW_SHARE = 4  # where a look takes long, at most every so many times as long
_LONGEST = 30.0  # seconds for the hints of nodes that open together
_WAIT = 40.0  # seconds: whatever happens, a node is opened then
_SEEN_WITHIN = 2.0  # seconds
_AGAIN = 2.0  # seconds until a hint that has not come back to us is given anew
_REMEMBERED = 60.0  # seconds: in that time a node is not hinted by the hook once more, and what is dropped is noticed
_PARALLEL = 32
_LOOK = 0.05
_STILL = 0.5  # seconds without a dropped hint after which kube-scheduler is taken to be done with trying
_RESTLESS = 20.0  # seconds: then nodes are opened in any case


@dataclass(frozen=True, slots=True)
class _Given:
    """A hint as Kubernetes took it."""

    node: str
    at: float  # the loop's time
    version: int  # of the pod that has it


@dataclass(frozen=True, slots=True)
class _Told:
    """The hints of a node before it opened: when they were given, and to which pods, each with the node's name."""

    at: float  # the loop's time
    due: Sequence[tuple[Pod, str]]


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
        self._given: dict[str, _Given] = {}  # by the uid of a pod
        self._told: dict[str, _Told] = {}  # by node
        self._stilled = -math.inf  # when kube-scheduler was last waited for, the loop's time
        self._gathering = Gathering(self._others_come, self._hint_all, self._hint_dropped)

    async def hinted(self, claim: NodeClaim, node: Node) -> bool:
        """Hint the pods that are expected on a claim; the node may be opened afterwards, whatever came of it."""
        if not await self._is_enabled():
            return True
        now = asyncio.get_running_loop().time()
        self._told = {name: told for name, told in self._told.items() if now - told.at < _REMEMBERED}
        if node.meta.name in self._told:
            return True
        try:
            async with asyncio.timeout(_WAIT):
                await self._gathering.join(claim.meta.name, node.meta.name)
        except (TimeoutError, KubeError) as error:
            log.warning("hints not all given", node=node.meta.name, error=describe(error))
        return True

    async def opening(self, claim: str) -> None:
        """Wait a moment until the nodes that were hinted together can be opened together."""
        await self._gathering.leave(claim)

    def _others_come(self, here: Collection[str]) -> bool:
        """Whether more nodes are on their way for which there are pods, besides the claims that are here."""
        claims = (self._state.claim(name) for name in self._state.expected.targets() if name not in here)
        return any(c is not None and not c.is_registered and not self._state.is_going(c) for c in claims)

    async def _hint_all(self, nodes: Mapping[str, str]) -> Sequence[str]:
        """Hint for nodes that open together, by claim; in which order they should open."""
        expected = by_target(*self._expected())
        due = [(pod, node) for claim, node in nodes.items() for pod in self._due(expected.get(claim, []), node)]
        try:
            async with asyncio.timeout(_LONGEST):
                done = await each(due, lambda pair: self._nominate(*pair), limit=_PARALLEL)
                await self._until_told([pod for pod, _ in due])
                await self._until_still(due)
        except (TimeoutError, KubeError) as error:
            log.warning("hints not all given", nodes=len(nodes), hints=len(due), error=describe(error))
        else:
            log.info(
                "pods hinted", nodes=len(nodes), pods=sum(done), expected=sum(len(expected.get(c, ())) for c in nodes)
            )
        now = self._stilled = asyncio.get_running_loop().time()
        self._told |= {name: _Told(now, [pair for pair in due if pair[1] == name]) for name in nodes.values()}
        return self._fullest_first(nodes)

    def _fullest_first(self, nodes: Mapping[str, str]) -> list[str]:
        """Claims by how many small pods their node has room for beside those that are hinted to it.

        All open within a moment, in which kube-scheduler tries some pods whose node is not open yet. On a node that is
        full they find no room, and are hinted again; with room they would stay, and whoever follows them.
        """
        asked = {name: [pod.spec.requests for pod, _ in self._told[name].due] for name in nodes.values()}
        smallest: dict[str, int] = {}
        for requests in (r for found in asked.values() for r in found):
            for resource, amount in requests.items():
                if amount:
                    smallest[resource] = min(amount, smallest.get(resource, amount))

        def room(claim: str) -> int:
            node = self._state.node(nodes[claim])
            if node is None:
                return 0
            free: Resources = node.allocatable
            for requests in asked[nodes[claim]]:
                free = subtract(free, requests)
            return min((free.get(resource, 0) // amount for resource, amount in smallest.items()), default=0)

        return sorted(nodes, key=room)

    async def _until_still(self, due: Sequence[tuple[Pod, str]]) -> None:
        """Hint again what is dropped until kube-scheduler has tried all that it wants to try.

        New nodes are a reason for it to try every pod that waits, one after the other, for seconds where there are
        many. Who is tried while its node is closed loses its hint, and then others take its place. Where it is never
        done, nodes that come group after group must not wait for it each time: no longer than since the last wait.
        """
        loop = asyncio.get_running_loop()
        began = last = loop.time()
        longest = min(_RESTLESS, began - self._stilled)
        while due and (now := loop.time()) - last < _STILL and now - began < longest:
            if await self._hint_again(due):
                last = loop.time()
            else:
                await asyncio.sleep(_LOOK)

    async def _hint_dropped(self, nodes: Mapping[str, str]) -> None:
        """What was dropped between the hints and the moment at which all nodes are about to open."""
        due = [pair for name in nodes.values() if name in self._told for pair in self._told[name].due]
        try:
            await self._hint_again(due)
        except KubeError as error:
            log.warning("hints not all given", nodes=len(nodes), hints=len(due), error=describe(error))

    async def _hint_again(self, due: Sequence[tuple[Pod, str]]) -> bool:
        """Hint those again that have lost it; whether there were any."""
        dropped = self._dropped(due)
        await each(dropped, lambda pair: self._nominate(*pair), limit=_PARALLEL)
        await self._until_told([pod for pod, _ in dropped])
        return bool(dropped)

    async def run(self, stop: asyncio.Event) -> None:
        """Follow up on open nodes and clear what is out of date, until `stop`."""
        loop = asyncio.get_running_loop()
        swept = followed = loop.time()
        version = -1
        pause = _FOLLOW_EVERY
        while not stop.is_set():
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                if self._mode == "off":
                    continue
                began = loop.time()
                try:
                    if version != self._state.version or (self._given and began - followed >= _AGAIN):
                        version, followed = self._state.version, began
                        await self._follow()
                    if loop.time() - swept >= _SWEEP_EVERY:
                        swept = loop.time()
                        await self._sweep()
                except KubeError as error:
                    log.warning("hints not brought up to date", error=describe(error))
                pause = max(_FOLLOW_EVERY, _FOLLOW_SHARE * (loop.time() - began))

    def _expected(self) -> tuple[dict[str, str], dict[str, Pod]]:
        """Where pods are expected, by key, and the pods that wait, by key."""
        waiting = {p.meta.key: p for p in self._state.pods() if p.is_provisionable}
        return self._state.expected.assign(self._state, waiting.values()), waiting

    async def _until_told(self, pods: Sequence[Pod]) -> None:
        """Wait until the hints have come back to us, whatever became of them since.

        kube-scheduler hears of pods and of nodes on two streams. When pods come slowly, it would take an open node for
        empty whose hints it has not read yet. No longer: who is tried while its node is closed loses its hint.
        """
        try:
            async with asyncio.timeout(_SEEN_WITHIN):
                while any(not self._is_told(pod) for pod in pods):  # noqa: ASYNC110  a bounded look
                    await asyncio.sleep(0.02)
        except TimeoutError:
            untold = sum(not self._is_told(pod) for pod in pods)
            log.info("hints not told in time", hints=len(pods), untold=untold)

    def _is_told(self, pod: Pod) -> bool:
        now = self._state.pod(pod.meta.key)
        given = self._given.get(pod.meta.uid)
        if now is None or given is None or now.meta.uid != pod.meta.uid:
            return True
        return _version(now) >= given.version

    def _dropped(self, due: Sequence[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
        found = []
        for pod, node in due:
            now = self._state.pod(pod.meta.key)
            if (
                now is not None
                and pod.meta.uid in self._given
                and now.meta.uid == pod.meta.uid
                and now.is_provisionable
                and not now.nominated_node
                and self._is_told(pod)
            ):
                found.append((now, node))
        return found

    def _due(self, expected: Sequence[Pod], node: str) -> list[Pod]:
        """Which of the pods that are expected on a node lack a hint and may be hinted now."""
        now = asyncio.get_running_loop().time()
        there: list[Pod] = []
        more: list[Pod] = []
        for pod in expected:
            given = self._given.get(pod.meta.uid)
            is_fresh = given is not None and given.node == node and now - given.at < _AGAIN
            # What kube-scheduler drops is given again at once; what somebody else writes over it, as another leader
            # may for a moment, is not fought about.
            is_on_its_way = is_fresh and (pod.nominated_node != "" or not self._is_told(pod))
            is_there = pod.nominated_node == node or is_on_its_way
            (there if is_there else more).append(pod)
        return harmless(there, more)

    async def _follow(self) -> None:
        """Hints of pods that are expected on open nodes and have none, or none any more."""
        now = asyncio.get_running_loop().time()
        self._given = {uid: given for uid, given in self._given.items() if now - given.at < _REMEMBERED}
        is_open = {target: name for target in self._state.expected.targets() if (name := self._open_node(target))}
        if not is_open or not await self._is_enabled():
            return  # as most of the time: who waits need not be looked through
        due: list[tuple[Pod, str]] = []
        for target, pods in by_target(*self._expected()).items():
            if (node := is_open.get(target)) is not None:
                due += [(pod, node) for pod in self._due(pods, node)]
        # Only as it was seen: kube-scheduler may be about to bind the pod, and says so in the same field.
        await each(due, lambda pair: self._nominate(*pair, as_seen=True), limit=_PARALLEL)

    def _open_node(self, target: str) -> str:
        """The node of a claim that kube-scheduler may fill; empty while there is none."""
        claim = self._state.claim(target)
        nodes = self._state.nodes_of(claim.provider_id) if claim is not None else []
        return nodes[0].meta.name if len(nodes) == 1 and nodes[0].is_registered else ""

    async def _sweep(self) -> None:
        """Clear hints of nodes that are not there, and those that hold room where the pod is not expected any more."""
        hinted = [p for p in self._state.pods() if p.nominated_by == HINT_MANAGER and p.nominated_node]
        if not any(p.is_provisionable for p in hinted):
            return
        assigned, waiting = self._expected()
        lost = []
        for pod in hinted:
            if pod.meta.key not in waiting:
                continue
            node = self._state.node(pod.nominated_node)
            claim = self._state.claim_of(node) if node is not None else None
            place = assigned.get(pod.meta.key)
            if node is None or place not in (node.meta.name, claim.meta.name if claim is not None else None):
                lost.append(pod)
        await each(lost, lambda pod: self._nominate(pod, None), limit=_PARALLEL)

    async def _nominate(self, pod: Pod, node: str | None, *, as_seen: bool = False) -> bool:
        lock = {"resourceVersion": pod.meta.resource_version} if as_seen else {}
        body = {"metadata": {"uid": pod.meta.uid, **lock}, "status": {"nominatedNodeName": node}}
        try:
            hinted: Pod = await self._kube.patch(
                POD, pod.meta.name, body, namespace=pod.meta.namespace, subresource="status", manager=HINT_MANAGER
            )
        except (NotFoundError, ConflictError, InvalidError):
            return False  # gone, another pod, changed or bound by now
        if node is not None:
            self._given[pod.meta.uid] = _Given(node, asyncio.get_running_loop().time(), _version(hinted))
        return True

    async def _is_enabled(self) -> bool:
        if self._enabled is None:
            try:
                self._enabled = await self._kube.server_version() >= OLDEST_SERVER
            except KubeError as error:
                log.warning("server version not known, no hints", error=describe(error))
                return False
        return self._enabled


def _version(pod: Pod) -> int:
    version = pod.meta.resource_version
    return int(version) if version.isdigit() else 0
