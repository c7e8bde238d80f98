"""How often the cloud is asked for fleets: a token bucket that yields when the cloud says that it is asked too much."""

import asyncio

PER_SECOND, BURST = 10.0, 100  # as Karpenter's; what an account really grants is learnt from being throttled
_SLOWEST = 0.5  # calls a second
_RECOVERY = 1.2  # the rate grows by this with each answer


class LaunchRate:
    """One bucket for all fleets of a process. Times are the running loop's."""

    def __init__(self, per_second: float = PER_SECOND, burst: int = BURST) -> None:
        if per_second < _SLOWEST or burst < 1:
            raise ValueError(f"need at least {_SLOWEST} a second and a burst of 1, got {per_second} and {burst}")
        self._top = self._rate = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled: float | None = None

    @property
    def per_second(self) -> float:
        """The rate now."""
        return self._rate

    async def turn(self) -> None:
        """Return when a call may be made; callers are served in the order in which they came."""
        self._fill()
        self._tokens -= 1
        if self._tokens < 0:
            # What is below zero has been promised to those who came before.
            await asyncio.sleep(-self._tokens / self._rate)

    def throttled(self) -> None:
        """The cloud refused a call as one too many: half as fast, and no burst."""
        self._fill()
        self._rate = max(self._rate / 2, _SLOWEST)
        self._tokens = min(self._tokens, 0.0)

    def answered(self) -> None:
        """The cloud took a call: a little faster again, up to the full rate."""
        self._fill()
        self._rate = min(self._rate * _RECOVERY, self._top)

    def _fill(self) -> None:
        now = asyncio.get_running_loop().time()
        since = 0.0 if self._filled is None else now - self._filled
        self._tokens = min(self._burst, self._tokens + since * self._rate)
        self._filled = now
