"""Back-off: delays that grow per key while it keeps failing. Pure: it waits for nothing and knows no clock."""

from __future__ import annotations

import random
from collections.abc import Hashable
from datetime import timedelta

_MOST_KEYS = 100_000


class Backoff:
    """How long to wait before looking at a key again, growing by `factor` from `initial` to `maximum`.

    Args:
        initial: the first delay, seconds or a timedelta, above zero.
        factor: how much longer each next delay is, at least 1.
        maximum: no delay is longer than this, jitter included.
        jitter: each delay is moved by up to this share, up or down, so that keys that failed together do not
            come back together.
        rng: where the jitter comes from; equal generators give equal delays.

    Keys that are never reset are forgotten oldest first beyond 100,000: a key then starts at `initial` again.
    """

    def __init__(
        self,
        initial: float | timedelta,
        factor: float = 2.0,
        maximum: float | timedelta = 300.0,
        jitter: float = 0.1,
        rng: random.Random | None = None,
    ) -> None:
        self.initial = seconds(initial)
        self.maximum = seconds(maximum)
        if not 0 < self.initial <= self.maximum:
            raise ValueError(f"need 0 < initial <= maximum, got {self.initial} and {self.maximum}")
        if factor < 1 or not 0 <= jitter < 1:
            raise ValueError(f"need factor >= 1 and 0 <= jitter < 1, got {factor} and {jitter}")
        self._factor = factor
        self._jitter = jitter
        self._rng = rng if rng is not None else random.Random()
        self._delays: dict[Hashable, float] = {}

    def next(self, key: Hashable) -> float:
        """Seconds to wait after one more failure of `key`."""
        # The last delay is kept, not the count: factor ** count overflows for a key that fails for weeks.
        last = self._delays.pop(key, None)
        delay = self.initial if last is None else min(last * self._factor, self.maximum)
        if len(self._delays) >= _MOST_KEYS:
            del self._delays[next(iter(self._delays))]
        self._delays[key] = delay
        return min(delay * (1 + self._jitter * self._rng.uniform(-1, 1)), self.maximum)

    def reset(self, key: Hashable) -> None:
        """Forget the failures of `key`, because it worked or is gone. Unknown keys are fine."""
        self._delays.pop(key, None)


def seconds(value: float | timedelta) -> float:
    """A length of time as seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
