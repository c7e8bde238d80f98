"""Garbage collection, the net under every launch: machines without a claim, and claims without a machine."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from sawhorse_cloud.cloud import Cloud, Instance
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.indexing import Index, index_drop
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.machines import is_over
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

_LONGEST_ROUND = 120.0
_TEMPLATES_EVERY = 20  # rounds


def leaked_instances(
    instances: Iterable[Instance], claims: Iterable[NodeClaim], now: datetime, age: timedelta
) -> list[Instance]:
    """Machines that nobody will ever use: in no claim, old enough, and no open launch may still take them.

    A token whose claims all have machines holds no more: what else carries it is surplus.

    Args:
        claims: read after `instances`, so that a claim written meanwhile is seen.
    """
    known = list(claims)
    held = {c.provider_id for c in known if c.provider_id}
    open_tokens = {c.launch_token for c in known if not c.provider_id and c.launch_token}
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
        self._instruments = instruments
        self._clock = clock
        self._interval = interval.total_seconds()
        self._age = age
        self._rounds = 0

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
        for instance in leaked_instances(instances, after, self._clock.now(), self._age):
            await self._guarded("instance", instance.id, self._end(instance))
        for claim in lost_claims(before, instances):
            await self._guarded("nodeclaim", claim.meta.name, self._give_up(claim))
        self._rounds += 1
        if self._rounds % _TEMPLATES_EVERY == 0:
            await self._cloud.collect_templates(self._state.node_classes())

    async def _claims(self) -> Sequence[NodeClaim]:
        """All NodeClaims, live: ending a machine must not rest on a copy that lags."""
        listing = await self._kube.list(NODECLAIM)
        if listing.unreadable:
            # One that cannot be read may hold any machine.
            raise RuntimeError(f"{listing.unreadable} NodeClaims cannot be read; nothing is collected")
        claims: Sequence[NodeClaim] = listing.objects
        return claims

    async def _guarded(self, kind: str, name: str, work: Awaitable[bool]) -> None:
        try:
            if await work:
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
        await self._writer.delete_claim(claim, "garbage_collected")
        return True
