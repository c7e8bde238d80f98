"""What was decided and why, for the console and `explain`: the streams `plans` and `interruptions`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sawhorse_state.connection import State

PLANS = "plans"
INTERRUPTIONS = "interruptions"

_KEPT = 1000


class Journal:
    """One stream of records, trimmed to about a thousand. A record is a JSON object."""

    def __init__(self, state: State, name: str) -> None:
        self._state = state
        self._key = state.key(name)

    async def append(self, record: Mapping[str, Any]) -> str:
        """Add a record; returns its id.

        Raises:
            StateUnavailableError: it is not recorded.
        """
        fields: dict[Any, Any] = {"json": msgspec.json.encode(record)}
        made = await self._state.do(
            "append to the journal", self._state.redis.xadd(self._key, fields, maxlen=_KEPT, approximate=True)
        )
        return str(made.decode())

    async def tail(self, n: int) -> tuple[Mapping[str, Any], ...]:
        """The last `n` records, oldest first, each with its `id`.

        Raises:
            StateUnavailableError: they cannot be read.
        """
        found = await self._state.do("read the journal", self._state.redis.xrevrange(self._key, count=n))
        return tuple({**msgspec.json.decode(fields[b"json"]), "id": id_.decode()} for id_, fields in reversed(found))
