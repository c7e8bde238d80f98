"""Garbage collection, the net under every launch: machines without a claim, claims and Nodes without a machine.

One item that cannot be read or removed is logged and tried again; it never keeps the others.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from sawhorse_cloud.cloud import Cloud, Instance
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.labels import LAUNCH_TOKEN
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.indexing import Index, index_drop
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.machines import is_over
from sawhorse_provisioner.together import each
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

_LONGEST_ROUND = 120.0
_LONGEST_ITEM = 30.0  # seconds: one that hangs must not use up the round of the others
_TEMPLATES_EVERY = 20  # rounds


@dataclass(frozen=True, slots=True)
class Holdings:
    """All NodeClaims, and what those hold that could not be read: provider ids and launch tokens."""

    claims: tuple[NodeClaim, ...]
    provider_ids: frozenset[str] = frozenset()
    tokens: frozenset[str] = frozenset()


def leaked_instances(
    instances: Iterable[Instance], holdings: Holdings, now: datetime, age: timedelta
) -> list[Instance]:
    """Machines that nobody will ever use: in no claim, old enough, and no open launch may still take them.

    A token whose claims all have machines holds no more: what else carries it is surplus.

    Args:
        holdings: read after `instances`, so that a claim written meanwhile is seen.
    """
    known = holdings.claims
    held = {c.provider_id for c in known if c.provider_id} | holdings.provider_ids
    open_tokens = {c.launch_token for c in known if not c.provider_id and c.launch_token} | holdings.tokens
    return [
        i
        for i in instances
        if not i.state.is_gone
        and i.provider_id not in held
        and i.token not in open_tokens
        and i.launched is not None
        and now - i.launched > age
    ]


def lost_claims(claims: Iterable[NodeClaim], instances: Iterable[Instance]) -> list[NodeClaim]:
    """Launched claims whose machine is not among those listed (after them)."""
    alive = {i.id for i in instances if not i.state.is_gone}
    return [c for c in claims if c.provider_id and not c.meta.is_deleting and c.instance_id not in alive]


def stale_nodes(nodes: Iterable[Node], holdings: Holdings, instances: Iterable[Instance]) -> list[Node]:
    """Nodes of machines that are in no claim and not listed: a new machine may need their name.

    Args:
        nodes: ours; a Node without a provider id says nothing of its machine and is left alone.
    """
    held = {c.provider_id for c in holdings.claims if c.provider_id} | holdings.provider_ids
    alive = {i.provider_id for i in instances if not i.state.is_gone}
    return [n for n in nodes if n.provider_id and not n.meta.is_deleting and n.provider_id not in held | alive]


class Collector:
    """Rounds of collection. One per leader's term."""

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        index: Index,
        announcer: Announcer,
        instruments: Instruments,
        clock: Clock,
        interval: timedelta,
        age: timedelta,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._index = index
        self._announcer = announcer
        self._instruments = instruments
        self._clock = clock
        self._interval = interval.total_seconds()
        self._age = age
        self._rounds = 0
        self._suspects: frozenset[str] = frozenset()  # uids of Nodes that looked stale in the last round

    async def run(self, stop: asyncio.Event) -> None:
        """A round each interval until `stop`; a failed one is logged."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(self._interval):
                    await stop.wait()
            except TimeoutError:
                pass
            if stop.is_set():
                return
            try:
                async with asyncio.timeout(_LONGEST_ROUND):
                    await self.round()
            except Exception as error:
                log.warning("garbage collection failed, will try again", error=describe(error))

    async def round(self) -> None:
        """Collect once. One bad item never stops the rest."""
        before = await self._claims()
        instances = await self._cloud.list_instances()
        after = await self._claims()
        leaked = leaked_instances(instances, after, self._clock.now(), self._age)
        await each(leaked, lambda i: self._guarded("instance", i.id, self._end(i)))
        lost = lost_claims(before.claims, instances)
        await each(lost, lambda c: self._guarded("nodeclaim", c.meta.name, self._give_up(c)))
        ours = [n for n in self._state.nodes() if self._state.is_ours(n)]
        stale = stale_nodes(ours, after, instances)
        # Twice in a row: one look may come between a machine and its claim.
        again = [n for n in stale if n.meta.uid in self._suspects]
        await each(again, lambda n: self._guarded("node", n.meta.name, self._remove(n)))
        self._suspects = frozenset(n.meta.uid for n in stale)
        self._rounds += 1
        if self._rounds % _TEMPLATES_EVERY == 0:
            await self._guarded("launch_template", "all", self._collect_templates())

    async def _collect_templates(self) -> bool:
        return await self._cloud.collect_templates(self._state.node_classes()) > 0

    async def _claims(self) -> Holdings:
        """All NodeClaims, live: ending a machine must not rest on a copy that lags."""
        listing = await self._kube.list(NODECLAIM)
        if not listing.unreadable:
            return Holdings(listing.objects)
        # One that makes no sense holds its machine all the same; where it says so is easily read.
        readable = {claim.meta.name for claim in listing.objects}
        provider_ids, tokens = set[str](), set[str]()
        for raw in (await self._kube.list_raw(NODECLAIM)).objects:
            if (raw.get("metadata") or {}).get("name") in readable:
                continue
            metadata, status = (raw.get(part) or {} for part in ("metadata", "status"))
            provider_ids.add(str(status.get("providerID") or ""))
            tokens.add(str((metadata.get("annotations") or {}).get(LAUNCH_TOKEN) or ""))
        return Holdings(listing.objects, frozenset(provider_ids - {""}), frozenset(tokens - {""}))

    async def _guarded(self, kind: str, name: str, work: Awaitable[bool]) -> None:
        try:
            async with asyncio.timeout(_LONGEST_ITEM):
                done = await work
            if done:
                self._instruments.collected.labels(kind).inc()
        except Exception as error:
            log.warning("not collected, will try again", kind=kind, name=name, error=describe(error))

    async def _end(self, instance: Instance) -> bool:
        log.warning("instance without a nodeclaim terminated", instance_id=instance.id, token=instance.token)
        await self._cloud.terminate([instance.id])
        await index_drop(self._index, instance.id)
        for node in self._state.nodes_of(instance.provider_id):
            if self._state.claim_of(node) is not None:
                continue
            try:
                await self._kube.delete(NODE, node.meta.name, uid=node.meta.uid)
            except (NotFoundError, ConflictError):
                continue
        return True

    async def _give_up(self, claim: NodeClaim) -> bool:
        created = claim.meta.created
        if created is not None and self._clock.now() - created <= self._age:
            return False  # the cloud may not list it yet
        if not is_over((await self._cloud.describe([claim.instance_id])).get(claim.instance_id)):
            return False
        for node in self._state.nodes_of(claim.provider_id):
            live: Node = await self._kube.get(NODE, node.meta.name)
            if live.is_ready:
                return False  # somebody lives there; the cloud's word alone does not count
        log.warning("nodeclaim without an instance deleted", nodeclaim=claim.meta.name, instance_id=claim.instance_id)
        message = f"Deleted, as its instance {claim.instance_id} does not exist any more"
        self._announcer.warn(NODECLAIM, claim.meta, "InstanceGone", message)
        await self._writer.delete_claim(claim, "garbage_collected")
        return True

    async def _remove(self, node: Node) -> bool:
        """Delete a Node whose machine has ended. Found by provider id alone: names and addresses are used again."""
        created = node.meta.created
        if created is not None and self._clock.now() - created <= self._age:
            return False
        instance_id = node.provider_id.rsplit("/", 1)[-1]
        if not is_over((await self._cloud.describe([instance_id])).get(instance_id)):
            return False
        try:
            await self._kube.delete(NODE, node.meta.name, uid=node.meta.uid)
        except (NotFoundError, ConflictError):
            return False
        log.warning("node of an ended instance deleted", node=node.meta.name, instance_id=instance_id)
        return True
