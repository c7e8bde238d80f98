"""Measured memory: what the nodes that joined really have, remembered so that the next plans need not estimate.

An estimate keeps back a share of memory that is far too much on large machines. One node of a type, image and kubelet
settings knows better. A measurement that is lost costs nothing but the better figure: nodes are measured again.
"""

import asyncio
from typing import Protocol

import structlog

from sawhorse_catalog.measured import kubelet_hash
from sawhorse_model.labels import INSTANCE_TYPE
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.resources import MEMORY
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

MEMORY_SOURCE = "sawhorse.dev/memory"
"""Annotation of a NodeClaim: whether the memory in its status was `measured` on such a node or is an `estimate`."""

_REPEAT = 600.0  # seconds: what the store has lost comes back this soon
_LONGEST = 3.0
_PAUSE = 10.0  # seconds without a try once the store did not answer: nodes are many


class Memory(Protocol):
    """What is needed of `sawhorse_state.memory.MeasuredMemory`."""

    async def put(self, instance_type: str, image: str, kubelet_hash: str, memory_bytes: int) -> int: ...


class MemoryMeter:
    """Measures the nodes of a leader's term; at its start all that are there already."""

    def __init__(self, *, memory: Memory, state: ClusterState, words: NodeClassWords, clock: Clock) -> None:
        self._memory = memory
        self._state = state
        self._words = words
        self._clock = clock
        self._known: dict[tuple[str, str, str], tuple[int, float]] = {}  # what counts, and when it was written
        self._not_before = 0.0

    async def measure(self, claim: NodeClaim, node: Node) -> None:
        """Remember what a registered node reports. Cheap to repeat; a failure holds nothing up."""
        size = node.capacity.get(MEMORY, 0)
        key = self._key(claim)
        now = self._clock.monotonic()
        if key is None or size <= 0 or now < self._not_before:
            return
        lowest, written = self._known.get(key, (size, -_REPEAT))
        if size >= lowest and now - written < _REPEAT:
            return
        # At once, so that the other nodes of a batch do not write the same.
        self._known[key] = (min(size, lowest), now)
        try:
            async with asyncio.timeout(_LONGEST):
                kept = await self._memory.put(*key, size)
        except Exception as error:
            del self._known[key]
            self._not_before = now + _PAUSE
            log.warning("measured memory not stored", instance_type=key[0], error=describe(error))
            return
        self._known[key] = (kept, now)
        log.debug("memory measured", instance_type=key[0], image_id=key[1], memory_bytes=size, lowest_bytes=kept)

    def _key(self, claim: NodeClaim) -> tuple[str, str, str] | None:
        """Type, image and kubelet settings of a claim's node; None where one of them is not certain."""
        instance_type = claim.meta.labels.get(INSTANCE_TYPE, "")
        node_class = self._state.node_class(claim.node_class_ref.name)
        if not instance_type or not claim.image_id or node_class is None or not self._is_of(claim, node_class):
            return None
        return instance_type, claim.image_id, kubelet_hash(node_class.spec)

    def _is_of(self, claim: NodeClaim, node_class: NodeClass) -> bool:
        """Whether the claim was launched with the NodeClass as it is: if not, its kubelet settings may be others."""
        keys = (self._words.hash, self._words.hash_version)
        launched, now = ([o.meta.annotations.get(k, "") for k in keys] for o in (claim, node_class))
        return launched == now
