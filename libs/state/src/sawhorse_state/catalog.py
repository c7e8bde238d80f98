"""The published catalogue: whole versions, and which one counts. What is in a version only `sawhorse_catalog` knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from sawhorse_state.connection import State
from sawhorse_state.errors import StateFormatError

_CURRENT = "catalog:current"
_OLD_SECONDS = 600  # a reader that has just read the old version's name can still load it
_LOAD_SECONDS = 20.0
_TRIES = 3

# KEYS: current, the new version's blob. ARGV: the new current, seconds for the old blob, the prefix of blobs, version.
_FLIP = """
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
local old = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PERSIST', KEYS[2])
if old then
  local name = cjson.decode(old)['version']
  if name ~= ARGV[4] then redis.call('EXPIRE', ARGV[3] .. name, ARGV[2]) end
end
return 1
"""


@dataclass(frozen=True, slots=True)
class Current:
    """Which version counts, and what its publisher says of it."""

    version: str
    meta: Mapping[str, str] = field(default_factory=dict)


class CatalogStore:
    """Publishes and loads catalogues."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def publish(self, version: str, blob: bytes, meta: Mapping[str, str] | None = None) -> None:
        """Store a version whole, then let it count. A crash between the two leaves the old one counting.

        Raises:
            StateUnavailableError: it does not count.
        """
        name = f"catalog:{version}"
        await self._state.do(
            "publish the catalogue",
            # With an end, should we crash before the flip, which removes it.
            self._state.redis.set(self._state.key(name), blob, ex=_OLD_SECONDS),
            seconds=_LOAD_SECONDS,
        )
        current = msgspec.json.encode(Current(version, meta or {}))
        flipped = await self._state.eval(
            "publish the catalogue",
            _FLIP,
            [_CURRENT, name],
            [current, _OLD_SECONDS, self._state.key("catalog:"), version],
        )
        if not flipped:
            raise StateFormatError(f"catalogue {version!r} vanished from Redis before it counted; publish it again")

    async def current(self) -> Current | None:
        """Which version counts; None before the first is published.

        Raises:
            StateUnavailableError: it cannot be read.
        """
        raw = await self._state.do("read the catalogue", self._state.redis.get(self._state.key(_CURRENT)))
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=Current)
        except msgspec.DecodeError as err:
            raise StateFormatError(f"catalog:current cannot be read ({err})") from err

    async def load_current(self) -> tuple[str, bytes] | None:
        """The version that counts and its content; None before the first is published or after a flush.

        Raises:
            StateUnavailableError: it cannot be read.
        """
        for _ in range(_TRIES):
            current = await self.current()
            if current is None:
                return None
            blob = await self._state.do(
                "load the catalogue",
                self._state.redis.get(self._state.key(f"catalog:{current.version}")),
                seconds=_LOAD_SECONDS,
            )
            if blob is not None:
                return current.version, bytes(blob)
            # Flipped and expired between the two reads: look at what counts now.
        return None
