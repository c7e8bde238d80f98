"""From an instance id to its NodeClaim and Node: by the mirror, by the index in Redis, in the end by a live list.

Mirror and index only give names; what is returned was read live and is checked to be about that instance.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sawhorse_interruption.cache import Cache
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_runtime.clock import Clock


class MirrorView(Protocol):
    """What is needed of `sawhorse_state.mirror.Mirror`."""

    @property
    def synced(self) -> bool: ...
    def all(self, kind: str) -> Mapping[str, Any]: ...
    def pods_on(self, node_name: str) -> Sequence[Pod]: ...
    def node_by_provider_id(self, provider_id: str) -> Node | None: ...
    def subscribe(self, callback: Callable[[str, str, str], None]) -> None: ...


class ClaimIndex:
    """Finds claims and nodes.

    Args:
        mirror: None, or a mirror that is not synced: everything is read live.
        cache: for the index of instances that the provisioner keeps.
        list_age: seconds for which a live list answers further look-ups, so that a flood of unknown instances costs
            one list and not a list each.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        cache: Cache,
        *,
        mirror: MirrorView | None = None,
        list_age: float = 2.0,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._mirror = mirror
        self._cache = cache
        self._list_age = list_age
        self._by_instance: dict[str, str] | None = None
        self._listed: dict[str, str] = {}
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()
        if mirror is not None:
            mirror.subscribe(self._changed)

    @property
    def synced(self) -> bool:
        """Whether the mirror is complete, so that most look-ups cost one read."""
        return self._mirror is not None and self._mirror.synced

    async def find(self, instance_id: str) -> NodeClaim | None:
        """The claim of an instance, read live; None when no claim has it.

        Raises:
            KubeError: Kubernetes does not answer, so nothing is known.
        """
        tried: set[str] = set()
        for lookup in (self._mirrored, self._cache.claim_of, self._listed_live):
            name = await lookup(instance_id)
            if not name or name in tried:
                continue
            tried.add(name)
            claim = await self.read(name)
            if claim is not None and claim.instance_id == instance_id:
                return claim
        return None

    async def read(self, name: str) -> NodeClaim | None:
        """A claim by name, live; None when there is none.

        Raises:
            KubeError: Kubernetes does not answer.
        """
        try:
            claim: NodeClaim = await self._kube.get(NODECLAIM, name)
        except NotFoundError:
            return None
        return claim

    async def node_name(self, claim: NodeClaim) -> str:
        """The name of the claim's node; empty when it has not joined.

        Raises:
            KubeError: Kubernetes does not answer.
        """
        if claim.node_name:
            return claim.node_name
        if not claim.provider_id:
            return ""
        node = self._mirror.node_by_provider_id(claim.provider_id) if self._mirror and self.synced else None
        if node is not None:
            return node.meta.name
        # A node joins before its claim says so, and this may be the moment in between.
        listing = await self._kube.list(NODE)
        return next((n.meta.name for n in listing.objects if n.provider_id == claim.provider_id), "")

    async def _mirrored(self, instance_id: str) -> str:
        if self._mirror is None or not self._mirror.synced:
            return ""
        if self._by_instance is None:
            claims = self._mirror.all("NodeClaim").values()
            self._by_instance = {c.instance_id: c.meta.name for c in claims if c.provider_id}
        return self._by_instance.get(instance_id, "")

    async def _listed_live(self, instance_id: str) -> str:
        asked = self._clock.monotonic()
        async with self._listing:
            if self._listed_at < asked - self._list_age:
                began = self._clock.monotonic()
                listing = await self._kube.list(NODECLAIM)
                self._listed = {c.instance_id: c.meta.name for c in listing.objects if c.provider_id}
                self._listed_at = began
        return self._listed.get(instance_id, "")

    def _changed(self, kind: str, key: str, op: str) -> None:
        if kind == "NodeClaim":
            self._by_instance = None
