"""Which NodeClaim an instance belongs to, so that a queue message finds its claim in one read."""

from collections.abc import Mapping

from sawhorse_state.connection import State


class InstanceIndex:
    """Hash `instances`: instance id -> NodeClaim name. Every method raises StateUnavailableError without Redis."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._key = state.key("instances")

    async def put(self, instance_id: str, claim: str) -> None:
        """Remember an instance's claim."""
        await self._state.do("index an instance", self._state.redis.hset(self._key, instance_id, claim))

    async def drop(self, instance_id: str) -> None:
        """Forget an instance. May be repeated."""
        await self._state.do("index an instance", self._state.redis.hdel(self._key, instance_id))

    async def get(self, instance_id: str) -> str | None:
        """The claim's name, or None when the index does not know: then ask Kubernetes."""
        found = await self._state.do("find an instance", self._state.redis.hget(self._key, instance_id))
        return found.decode() if found is not None else None

    async def all(self) -> Mapping[str, str]:
        """Everything."""
        found = await self._state.do("read the instances", self._state.redis.hgetall(self._key))
        return {k.decode(): v.decode() for k, v in found.items()}

    async def replace(self, claims: Mapping[str, str]) -> None:
        """Make the index exactly this, at once: after a flush, from the claims themselves."""
        async with self._state.redis.pipeline(transaction=True) as pipe:
            pipe.delete(self._key)
            if claims:
                pipe.hset(self._key, mapping=dict(claims))
            await self._state.do("rebuild the instances", pipe.execute())
