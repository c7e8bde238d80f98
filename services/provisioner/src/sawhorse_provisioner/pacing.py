"""How fast pools may make claims. A pool whose launches fail is slowed down alone; the others never notice.

A launch that fails says which offerings are out, and the next plan goes without them: another zone, type or capacity
type of the pool, at once. Only a pool that keeps failing is left out of planning for a while, so that the next pool
gets its turn, and a failing pool has few claims under way at a time, so that it never makes and deletes claims in
a tight loop.
"""

from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock

FREE_FAILURES = 2
"""Failures in a row after which the pool is still planned with: the next offerings are tried at once."""
PROBES = 2
"""Claims without a machine that a failing pool may have at a time."""

_FIRST, _LONGEST = 10.0, 300.0  # seconds


class PoolPace:
    """Failures in a row by pool, and until when a pool is left out. Belongs to one event loop; nothing of it lasts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._failures: dict[str, int] = {}
        self._held: dict[str, float] = {}  # pool → until
        self._backoff = Backoff(_FIRST, maximum=_LONGEST)

    def hold(self, pool: str) -> float:
        """Plan without this pool for a while that grows with each call; returns seconds."""
        delay = self._backoff.next(pool)
        self._held[pool] = self._clock.monotonic() + delay
        return delay

    def is_held(self, pool: str) -> bool:
        """Whether planning leaves the pool out for now."""
        return self._held.get(pool, 0.0) > self._clock.monotonic()

    def held(self) -> dict[str, float]:
        """Pools that planning leaves out now, by name, with the seconds that are left."""
        now = self._clock.monotonic()
        return {pool: until - now for pool, until in sorted(self._held.items()) if until > now}

    def failed(self, pool: str, *, at_once: bool = False) -> float:
        """A launch of this pool gave nothing; returns for how many seconds the pool is left out, 0 for not.

        Args:
            at_once: nothing was learned that would make the next plan another one: leave the pool out from now on.
        """
        count = self._failures[pool] = self._failures.get(pool, 0) + 1
        return self.hold(pool) if at_once or count > FREE_FAILURES else 0.0

    def worked(self, pool: str) -> bool:
        """A launch of this pool gave machines; returns whether that ends a row of failures."""
        self._held.pop(pool, None)
        self._backoff.reset(pool)
        return self._failures.pop(pool, 0) > 0

    def room(self, pool: str, under_way: int) -> int | None:
        """How many claims the pool may make now; None: as many as it likes.

        Args:
            under_way: its claims that have no machine yet.
        """
        return max(0, PROBES - under_way) if pool in self._failures else None


class PoolSlots:
    """At most so many fleets of one pool are launched at a time: one that is slow must not keep the others waiting."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[str, str] = {}  # token → pool
        self._waiting: dict[str, str] = {}  # the same, of those that were turned away, oldest first

    def enter(self, token: str, pool: str) -> bool:
        """Take a slot; False when the pool has none: the token is remembered."""
        if sum(other == pool for other in self._running.values()) >= self._most:
            self._waiting[token] = pool
            return False
        self._waiting.pop(token, None)
        self._running[token] = pool
        return True

    def leave(self, token: str) -> str | None:
        """Give the slot back; returns the token of the pool that has waited longest, to be looked at now."""
        pool = self._running.pop(token)
        found = next((waiting for waiting, other in self._waiting.items() if other == pool), None)
        if found is not None:
            del self._waiting[found]
        return found

    def forget(self, token: str) -> None:
        """A fleet that is no more."""
        self._waiting.pop(token, None)
