"""Machines in capacity reservations: those of one that is about to end are drained, those that outlived one relabelled.

A capacity block takes its machines with it when it ends; any other reservation leaves them running, on demand.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

import structlog

from sawhorse_cloud.cloud import Cloud, Instance
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE, TERMINATION_TIMESTAMP
from sawhorse_model.manifests import ManifestError, format_time, parse_time
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.together import each
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

LOOK_EVERY = 60.0  # seconds
_LONGEST_LOOK = 50.0
_SETTLED = 120.0  # seconds after its launch the cloud certainly says where a machine runs


def ending_claims(
    claims: Iterable[NodeClaim], label: str, expiring: Mapping[str, datetime | None]
) -> list[tuple[NodeClaim, datetime | None]]:
    """Living claims in reservations that are about to end, each with the time by which it should be empty.

    Args:
        label: the label of a claim that names its reservation.
        expiring: reservation → when the cloud begins to end its machines, if it says so.
    """
    return [
        (c, expiring[c.meta.labels[label]])
        for c in claims
        if not c.meta.is_deleting and c.meta.labels.get(label, "") in expiring
    ]


def lapsed_claims(claims: Iterable[NodeClaim], instances: Mapping[str, Instance]) -> list[NodeClaim]:
    """Claims that say reserved, of machines that run and of which the cloud says otherwise."""
    found = []
    for claim in claims:
        instance = instances.get(claim.instance_id)
        if instance is None or instance.state.is_gone or claim.meta.is_deleting:
            continue
        if is_reserved(claim) and instance.capacity_type != CapacityType.RESERVED.value:
            found.append(claim)
    return found


def is_reserved(claim: NodeClaim) -> bool:
    """Whether a claim says that its machine runs in a reservation."""
    return claim.meta.labels.get(CAPACITY_TYPE) == CapacityType.RESERVED.value and bool(claim.provider_id)


class ReservedMachines:
    """Looks each minute. One per leader's term; without reservations in the cloud's words it does nothing."""

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        announcer: Announcer,
        words: NodeClassWords,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._announcer = announcer
        self._words = words
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        """Look each minute until `stop`; what fails is logged and tried again."""
        while not stop.is_set():
            for name, work in (("expiring", self.drain_expiring), ("lapsed", self.relabel_lapsed)):
                try:
                    async with asyncio.timeout(_LONGEST_LOOK):
                        await work()
                except Exception as error:
                    log.warning("reserved machines not looked at", what=name, error=describe(error))
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await stop.wait()
            except TimeoutError:
                continue

    async def drain_expiring(self) -> None:
        """Delete the claims of reservations that are about to end, so that their pods move in time."""
        label = self._words.reservation
        if not label:
            return
        expiring: dict[str, datetime | None] = {}
        for node_class in self._state.node_classes():
            expiring |= self._words.expiring(node_class)
        ending = ending_claims(self._state.claims(), label, expiring)
        await each(ending, lambda pair: self._drain(*pair))

    async def _drain(self, claim: NodeClaim, until: datetime | None) -> None:
        reservation = claim.meta.labels[self._words.reservation]
        if until is not None and until > self._clock.now() and not _is_due_before(claim, until):
            try:
                await self._writer.annotate(NODECLAIM, claim, {TERMINATION_TIMESTAMP: format_time(until)}, locked=True)
            except NotFoundError:
                return
            except ConflictError:
                log.debug("deadline not written, the next look does", nodeclaim=claim.meta.name)
                return
        message = f"Deleted, as capacity reservation {reservation} is about to end"
        self._announcer.warn(NODECLAIM, claim.meta, "CapacityReservationExpiring", message)
        await self._writer.delete_claim(claim, "capacity_reservation_expiring")

    async def relabel_lapsed(self) -> None:
        """Say on-demand of machines that the cloud does not count to a reservation any more."""
        reserved = [c for c in self._state.claims() if is_reserved(c) and not c.meta.is_deleting and self._is_old(c)]
        if not self._words.reservation or not reserved:
            return
        instances = await self._cloud.describe([c.instance_id for c in reserved])
        await each(lapsed_claims(reserved, instances), self._relabel)

    def _is_old(self, claim: NodeClaim) -> bool:
        created = claim.meta.created
        return created is not None and (self._clock.now() - created).total_seconds() > _SETTLED

    async def _relabel(self, claim: NodeClaim) -> None:
        labels: dict[str, str | None] = {CAPACITY_TYPE: CapacityType.ON_DEMAND.value}
        labels |= dict.fromkeys(self._words.reservation_labels)
        try:
            # The Node first: once the claim says on-demand nobody looks here again.
            for node in self._state.nodes_of(claim.provider_id):
                body = {"metadata": {"uid": node.meta.uid, "labels": labels}}
                self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, body))
            await self._writer.annotate(NODECLAIM, claim, {}, labels=labels)
        except (NotFoundError, ConflictError) as error:
            log.debug("not relabelled, the next look does", nodeclaim=claim.meta.name, error=describe(error))
            return
        reservation = claim.meta.labels.get(self._words.reservation, "")
        log.info("reservation lapsed, node is on demand now", nodeclaim=claim.meta.name, reservation=reservation)


def _is_due_before(claim: NodeClaim, until: datetime) -> bool:
    """Whether the claim has a deadline already that is no later."""
    try:
        return parse_time(claim.meta.annotations.get(TERMINATION_TIMESTAMP, ""), TERMINATION_TIMESTAMP) <= until
    except ManifestError:
        return False
