"""Offerings that are out of capacity: for a while, longer at each repeat, then tried again.

- `unavailable:<capacity type>:<type>:<zone>[:<scope>]` reason and attempt; unavailable until its TTL ends
- `unavailable` sorted set of the same, by the moment they end: so that all can be read at once
- `unavailable-attempts:…` how often it failed lately; outlives the first by half an hour
- `unavailable-version` grows with each mark
"""

from dataclasses import dataclass
from datetime import timedelta

from sawhorse_state.connection import State

Offering = tuple[str, str, str]
"""Capacity type, instance type, zone."""

FIRST = timedelta(minutes=3)
LONGEST = timedelta(minutes=30)

_INDEX = "unavailable"
_VERSION = "unavailable-version"

# KEYS: the mark, its attempts, index, version. ARGV: member, reason, first ms, longest ms.
# A repeat while the mark lives is the same shortage seen again: it starts the pause anew but does not lengthen it.
_MARK = """
local attempt = tonumber(redis.call('GET', KEYS[2]) or '0')
if redis.call('EXISTS', KEYS[1]) == 0 then attempt = attempt + 1 end
if attempt < 1 then attempt = 1 end
local ttl = math.min(tonumber(ARGV[3]) * 2 ^ math.min(attempt - 1, 20), tonumber(ARGV[4]))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], cjson.encode({reason = ARGV[2], attempt = attempt}), 'PX', string.format('%d', ttl))
redis.call('SET', KEYS[2], attempt, 'PX', string.format('%d', ttl + tonumber(ARGV[4])))
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', now))
redis.call('ZADD', KEYS[3], string.format('%d', now + ttl), ARGV[1])
redis.call('INCR', KEYS[4])
return string.format('%d', ttl)
"""

# KEYS: index, version. ARGV: the version that the caller has. Returns {version, now ms, [member, end ms]…}.
_ALL = """
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
local version = redis.call('GET', KEYS[2]) or '0'
if version == ARGV[1] then return {version, now} end
return {version, now, redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'WITHSCORES')}
"""


@dataclass(frozen=True, slots=True)
class _Marked:
    offering: Offering
    scope: str
    ends: float  # ms, by the clock of Redis


class UnavailableOfferings:
    """Marks and reads them. Reads cost one small call while nothing changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._version = "-"
        self._known: tuple[_Marked, ...] = ()

    async def mark(
        self, capacity_type: str, instance_type: str, zone: str, reason: str, *, scope: str = ""
    ) -> timedelta:
        """Say that an offering has no capacity. May be repeated.

        Args:
            reason: a stable word, such as an EC2 error code.
            scope: what it is limited to, such as a reservation or placement group; empty: everybody.
        Returns:
            How long it counts as unavailable: 3 minutes at first, doubled at each repeat to 30.
        Raises:
            StateUnavailableError: it is not marked.
        """
        member = ":".join((capacity_type, instance_type, zone, *([scope] if scope else [])))
        ttl = await self._state.eval(
            "mark an offering",
            _MARK,
            [f"unavailable:{member}", f"unavailable-attempts:{member}", _INDEX, _VERSION],
            [member, reason, _millis(FIRST), _millis(LONGEST)],
        )
        return timedelta(milliseconds=int(ttl))

    async def all(self, *, scope: str = "") -> frozenset[Offering]:
        """What is unavailable now to everybody, and to `scope` when one is given.

        Raises:
            StateUnavailableError: it cannot be read.
        """
        return frozenset(m.offering for m in await self._now() if m.scope in ("", scope))

    async def scoped(self) -> frozenset[tuple[str, str, str, str]]:
        """What is unavailable now to some only: capacity type, instance type, zone, scope.

        Raises:
            StateUnavailableError: it cannot be read.
        """
        return frozenset((*m.offering, m.scope) for m in await self._now() if m.scope)

    async def _now(self) -> list[_Marked]:
        answer = await self._state.eval("read unavailable offerings", _ALL, [_INDEX, _VERSION], [self._version])
        now = int(answer[1])
        if len(answer) > 2:
            self._version = answer[0].decode()
            flat = answer[2]
            self._known = tuple(_marked(flat[i].decode(), float(flat[i + 1])) for i in range(0, len(flat), 2))
        return [m for m in self._known if m.ends > now]


def _marked(member: str, ends: float) -> _Marked:
    capacity_type, instance_type, zone, *scope = member.split(":", 3)
    return _Marked((capacity_type, instance_type, zone), scope[0] if scope else "", ends)


def _millis(length: timedelta) -> int:
    return int(length.total_seconds() * 1000)
