"""Marks that save double work between replicas: messages seen, and who drains a node. Nothing relies on them."""

from datetime import timedelta

from sawhorse_state.connection import State

SEEN_FOR = timedelta(seconds=600)
HEARTBEAT = timedelta(seconds=10)

# KEYS: the node's mark. ARGV: owner, ms. Returns who holds it.
_RENEW = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

_DROP = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class SeenMarks:
    """Which queue messages have had their effect."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def seen(self, envelope_id: str) -> bool:
        """Whether the message was marked in the last 10 minutes."""
        found = await self._state.do("read a mark", self._state.redis.exists(self._state.key(f"seen:{envelope_id}")))
        return bool(found)

    async def mark_seen(self, envelope_id: str) -> None:
        """Mark a message whose effects are durable."""
        await self._state.do(
            "set a mark", self._state.redis.set(self._state.key(f"seen:{envelope_id}"), b"1", ex=SEEN_FOR)
        )


class DrainHeartbeat:
    """Who drains a node now. Stale after `ttl`: then another may go on."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def renew(self, node: str, owner: str, ttl: timedelta = HEARTBEAT) -> bool:
        """Say that `owner` drains the node; False when somebody else does."""
        holder = await self._state.eval(
            "renew a drain", _RENEW, [f"drain:{node}"], [owner, int(ttl.total_seconds() * 1000)]
        )
        return bool(holder.decode() == owner)

    async def holder(self, node: str) -> str:
        """Who drains the node; empty when nobody does."""
        found = await self._state.do("read a drain", self._state.redis.get(self._state.key(f"drain:{node}")))
        return found.decode() if found else ""

    async def drop(self, node: str, owner: str) -> None:
        """Stop, so that another need not wait for the mark to become stale."""
        await self._state.eval("end a drain", _DROP, [f"drain:{node}"], [owner])
