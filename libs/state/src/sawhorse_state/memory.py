"""Measured memory of nodes: what an instance type really offers under an image and kubelet settings."""

from datetime import timedelta

from sawhorse_state.connection import State

KEPT = timedelta(days=60)

# KEYS: the measurement. ARGV: bytes, ms. A higher value than the known one changes nothing, not even its end: what
# counts is the least that a machine of the kind was seen to have. Returns the value that counts now.
_KEEP_LOWEST = """
local known = tonumber(redis.call('GET', KEYS[1]) or '')
if known and known < tonumber(ARGV[1]) then return string.format('%d', known) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""


class MeasuredMemory:
    """`memory:<type>:<image>:<kubelet hash>`: bytes, the least that a node of the kind reported.

    Kept for 60 days after it was last seen. Every method raises StateUnavailableError without Redis.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    async def put(self, instance_type: str, image: str, kubelet_hash: str, memory_bytes: int) -> int:
        """Remember a measurement in bytes unless a lower one is known; returns the one that counts. May be repeated."""
        kept = await self._state.eval(
            "store a measurement",
            _KEEP_LOWEST,
            [f"memory:{instance_type}:{image}:{kubelet_hash}"],
            [memory_bytes, int(KEPT.total_seconds() * 1000)],
        )
        return int(kept)

    async def get(self, instance_type: str, image: str, kubelet_hash: str) -> int | None:
        """The measurement in bytes, or None."""
        key = self._state.key(f"memory:{instance_type}:{image}:{kubelet_hash}")
        found = await self._state.do("read a measurement", self._state.redis.get(key))
        return int(found) if found is not None else None
