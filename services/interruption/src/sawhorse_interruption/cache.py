"""All that this service uses Redis for. Each use saves time or work, none is needed: without Redis all goes on.

The mirror is the one other use; see `index` and `draining`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from sawhorse_interruption.breaker import Breaker
from sawhorse_runtime.clock import Clock
from sawhorse_state.connection import State
from sawhorse_state.instances import InstanceIndex
from sawhorse_state.journal import INTERRUPTIONS, Journal
from sawhorse_state.marks import DrainHeartbeat, SeenMarks
from sawhorse_state.unavailable import UnavailableOfferings
from sawhorse_state.wake import wake

CALL_SECONDS = 1.0
REST_SECONDS = 5.0

Offering = tuple[str, str, str]
"""Capacity type, instance type, zone."""


class Cache(Protocol):
    """Bounded, and never raises: the answers are those of an empty cache when it is out of reach."""

    async def seen(self, key: str) -> bool:
        """Whether the message with this key was dealt with."""
        ...

    async def remember(self, key: str) -> None:
        """Note that it was."""
        ...

    async def claim_of(self, instance_id: str) -> str:
        """Name of the claim that an instance belongs to; empty when it is not known."""
        ...

    async def wake_provisioner(self, claim: str, node: str) -> None:
        """Tell the provisioner to look now."""
        ...

    async def mark_unavailable(self, offering: Offering, reason: str) -> bool:
        """Leave an offering out of launches for a while; whether it is marked."""
        ...

    async def renew_drain(self, node: str, owner: str) -> bool:
        """Whether `owner` may drain the node: nobody else says that he does."""
        ...

    async def drop_drain(self, node: str, owner: str) -> None:
        """`owner` drains it no more."""
        ...

    async def record(self, entry: Mapping[str, Any]) -> None:
        """Note what was done, for the console."""
        ...


class NoCache:
    """A `Cache` that is always out of reach."""

    async def seen(self, key: str) -> bool:
        return False

    async def remember(self, key: str) -> None:
        return None

    async def claim_of(self, instance_id: str) -> str:
        return ""

    async def wake_provisioner(self, claim: str, node: str) -> None:
        return None

    async def mark_unavailable(self, offering: Offering, reason: str) -> bool:
        return False

    async def renew_drain(self, node: str, owner: str) -> bool:
        return True

    async def drop_drain(self, node: str, owner: str) -> None:
        return None

    async def record(self, entry: Mapping[str, Any]) -> None:
        return None


class RedisCache:
    """A `Cache` in Redis."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._marks = SeenMarks(state)
        self._instances = InstanceIndex(state)
        self._unavailable = UnavailableOfferings(state)
        self._heartbeat = DrainHeartbeat(state)
        self._journal = Journal(state, INTERRUPTIONS)
        self._breaker = Breaker(clock, "redis", seconds=CALL_SECONDS, rest=REST_SECONDS)

    async def seen(self, key: str) -> bool:
        return await self._breaker.call(lambda: self._marks.seen(key), False)

    async def remember(self, key: str) -> None:
        await self._breaker.call(lambda: self._marks.mark_seen(key), None)

    async def claim_of(self, instance_id: str) -> str:
        return await self._breaker.call(lambda: self._instances.get(instance_id), None) or ""

    async def wake_provisioner(self, claim: str, node: str) -> None:
        await self._breaker.call(
            lambda: wake(self._state, "provisioner", "node-interrupted", claim=claim, node=node), None
        )

    async def mark_unavailable(self, offering: Offering, reason: str) -> bool:
        length = await self._breaker.call(lambda: self._unavailable.mark(*offering, reason), None)
        return length is not None

    async def renew_drain(self, node: str, owner: str) -> bool:
        return await self._breaker.call(lambda: self._heartbeat.renew(node, owner), True)

    async def drop_drain(self, node: str, owner: str) -> None:
        await self._breaker.call(lambda: self._heartbeat.drop(node, owner), None)

    async def record(self, entry: Mapping[str, Any]) -> None:
        await self._breaker.call(lambda: self._journal.append(entry), "")
