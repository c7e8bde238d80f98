"""What was planned for a NodeClaim, by owner and class since pods get new names. Losing it only loses hints."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from sawhorse_state.connection import State

KEPT = timedelta(hours=1)

Row = Mapping[str, Any]
"""`{"owner_uid": …, "class": …, "count": …}`"""


class PlacementStore:
    """`placement:<claim>`. Every method raises StateUnavailableError without Redis."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def put(self, claim: str, rows: Sequence[Row]) -> None:
        """Remember what a claim is for, for an hour."""
        key = self._state.key(f"placement:{claim}")
        await self._state.do("store a placement", self._state.redis.set(key, msgspec.json.encode(list(rows)), ex=KEPT))

    async def get(self, claim: str) -> tuple[Row, ...]:
        """What a claim is for; empty when nobody knows any more."""
        found = await self._state.do("read a placement", self._state.redis.get(self._state.key(f"placement:{claim}")))
        try:
            return tuple(msgspec.json.decode(found, type=list[dict[str, Any]])) if found is not None else ()
        except msgspec.DecodeError:
            return ()

    async def drop(self, claim: str) -> None:
        """Forget a claim. May be repeated."""
        await self._state.do("drop a placement", self._state.redis.delete(self._state.key(f"placement:{claim}")))
