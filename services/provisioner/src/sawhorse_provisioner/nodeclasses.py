"""NodeClass status: what it selects in the cloud, looked up each minute and at changes, and its orderly end."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_cloud.errors import CloudError, NodeClassNotReadyError
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.meta import find_condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Judgement, Writer

log = structlog.get_logger(__name__)

_CONFLICT_RETRY = 0.2
_WAIT_FOR_CLAIMS = 10.0
_TELL_WAITING_EVERY = timedelta(minutes=10)
_LISTED = 5
_SOONEST_REPEAT = 5.0  # seconds: our own status write must not cause the next look-up


class NodeClasses:
    """Handles NodeClasses by name; `look` is a KeyedQueue handler.

    Args:
        changed: told the name of a class whose status changed.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        words: NodeClassWords,
        announcer: Announcer,
        refresh: timedelta,
        changed: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._words = words
        self._announcer = announcer
        self._refresh = refresh.total_seconds()
        self._changed = changed
        self._looked: dict[str, tuple[tuple[str, int], float]] = {}  # name → (uid, generation) and loop time

    async def look(self, name: str) -> float | None:
        """Look one class up; returns seconds until the next time.

        Raises:
            CloudError: the cloud could not be asked; the status stays as it is.
        """
        node_class = self._state.node_class(name)
        if node_class is None:
            self._looked.pop(name, None)
            return None
        try:
            if node_class.meta.is_deleting:
                return await self._finish(node_class)
            return await self._resolve(node_class)
        except ConflictError:
            return _CONFLICT_RETRY
        except NotFoundError:
            return None

    async def _resolve(self, node_class: NodeClass) -> float | None:
        name, kind = node_class.meta.name, self._words.kind
        now = asyncio.get_running_loop().time()
        identity = (node_class.meta.uid, node_class.meta.generation)
        last = self._looked.get(name)
        if last is not None and last[0] == identity and now - last[1] < min(_SOONEST_REPEAT, self._refresh):
            return last[1] + self._refresh - now
        if self._words.finalizer not in node_class.meta.finalizers:
            node_class = await self._writer.add_finalizer(kind, node_class, self._words.finalizer)
        resolved = await self._cloud.resolve_node_class(node_class)
        self._looked[name] = (identity, now)
        stamp = {self._words.hash: resolved.hash, self._words.hash_version: resolved.hash_version}
        if any(node_class.meta.annotations.get(k) != v for k, v in stamp.items()):
            node_class = await self._writer.annotate(kind, node_class, stamp)
        before = {k: v for k, v in node_class.status.items() if k != "conditions"}
        after = dict(resolved.status)
        extra: dict[str, object] = {k: v for k, v in after.items() if before.get(k) != v}
        extra |= dict.fromkeys(before.keys() - after.keys())
        written = await self._writer.judge(
            kind,
            node_class,
            [Judgement(c.type, c.status, c.reason, c.message) for c in resolved.conditions],
            dependents=resolved.dependents,
            extra_status=extra,
        )
        if written is not node_class:
            log.info("node class resolved", nodeclass=name, ready=written.is_ready)
            self._changed(name)
        return self._refresh

    async def _finish(self, node_class: NodeClass) -> float | None:
        """Keep a deleting class as long as claims use it; then take back what was made for it."""
        if self._words.finalizer not in node_class.meta.finalizers:
            return None
        name = node_class.meta.name
        claims: list[NodeClaim] = [
            c
            for c in (await self._kube.list(NODECLAIM)).objects
            if self._state.is_managed(c) and c.node_class_ref.name == name
        ]
        if claims:
            names = ", ".join(sorted(c.meta.name for c in claims)[:_LISTED])
            self._announcer.tell(
                self._words.kind,
                node_class.meta,
                "WaitingOnNodeClaimTermination",
                f"Waiting for {len(claims)} NodeClaims to end: {names}",
                _TELL_WAITING_EVERY,
            )
            return _WAIT_FOR_CLAIMS
        await self._cloud.release_node_class(node_class)
        await self._writer.release(self._words.kind, name, node_class.meta.uid, self._words.finalizer)
        self._looked.pop(name, None)
        log.info("node class released", nodeclass=name)
        return None


def launchable_class(state: ClusterState, name: str) -> NodeClass:
    """The NodeClass of a launch; whether it is ready is the cloud's to say.

    Raises:
        NodeClassNotReadyError: it does not exist, or goes.
        CloudError: it is being looked at, after a change for example: no reason to give its claims up.
    """
    node_class = state.node_class(name)
    if node_class is None or node_class.meta.is_deleting:
        raise NodeClassNotReadyError(f"NodeClass {name} does not exist")
    ready = find_condition(node_class.conditions, "Ready")
    if ready is None or ready.status == "Unknown":
        raise CloudError(f"NodeClass {name} has not been judged yet", reason="NodeClassReadinessUnknown")
    return node_class
