"""The system clock is aware, in UTC, and never goes back."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest

from sawhorse_runtime.clock import Clock, SystemClock


def test_now_is_aware_and_in_utc() -> None:
    clock: Clock = SystemClock()

    assert clock.now().tzinfo is UTC
    assert clock.now().utcoffset() == timedelta(0)


def test_monotonic_never_goes_back() -> None:
    clock = SystemClock()

    readings = [clock.monotonic() for _ in range(100)]

    assert readings == sorted(readings)


@pytest.mark.looptime
async def test_sleep_waits_on_the_loop_and_takes_negative_as_none(looptime: Any) -> None:
    clock = SystemClock()

    await clock.sleep(30)
    await clock.sleep(-5)

    assert looptime == 30
