"""Measured memory of nodes: what an instance type really offers under an image and kubelet settings."""

from sawhorse_state.connection import State


class MeasuredMemory:
    """`memory:<type>:<image>:<kubelet hash>`: bytes, as a node of the kind reported them."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def put(self, instance_type: str, image: str, kubelet_hash: str, memory_bytes: int) -> None:
        """Remember a measurement; the last one counts."""
        key = self._state.key(f"memory:{instance_type}:{image}:{kubelet_hash}")
        await self._state.do("store a measurement", self._state.redis.set(key, memory_bytes))

    async def get(self, instance_type: str, image: str, kubelet_hash: str) -> int | None:
        """The measurement in bytes, or None."""
        key = self._state.key(f"memory:{instance_type}:{image}:{kubelet_hash}")
        found = await self._state.do("read a measurement", self._state.redis.get(key))
        return int(found) if found is not None else None
