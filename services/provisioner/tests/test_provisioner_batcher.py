"""Batches: one idle time after the last new key, never longer than the longest."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_provisioner.batcher import Batcher

pytestmark = pytest.mark.looptime


def a_batcher() -> Batcher:
    """One second idle, ten at most."""
    return Batcher(idle=timedelta(seconds=1), longest=timedelta(seconds=10))


async def test_a_batch_closes_one_idle_time_after_the_last_new_key(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("pod-a")
    asyncio.get_running_loop().call_later(0.6, batcher.add, "pod-b")

    assert await batcher.next_batch() == {"pod-a", "pod-b"}
    assert looptime == 1.6


async def test_a_key_that_is_in_the_window_does_not_keep_it_open(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("pod-a")
    asyncio.get_running_loop().call_later(0.6, batcher.add, "pod-a")

    await batcher.next_batch()

    assert looptime == 1.0


async def test_new_keys_without_end_close_the_window_at_the_longest(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("pod-0")
    for number in range(1, 40):
        asyncio.get_running_loop().call_later(number * 0.5, batcher.add, f"pod-{number}")

    batch = await batcher.next_batch()

    assert looptime == 10.0
    assert len(batch) in (20, 21)


async def test_an_interrupted_node_does_not_wait_for_the_idle_time(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("pod-a")
    batcher.add("interrupted", urgent=True)

    assert await batcher.next_batch() == {"pod-a", "interrupted"}
    assert looptime == 0.25


async def test_a_key_becomes_urgent_when_it_is_said_again(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("claim")
    asyncio.get_running_loop().call_later(0.1, lambda: batcher.add("claim", urgent=True))

    await batcher.next_batch()

    assert 0.3 < float(looptime) < 0.4


async def test_keys_that_come_while_a_batch_is_worked_on_are_the_next_batch(looptime: Any) -> None:
    batcher = a_batcher()
    batcher.add("pod-a")
    await batcher.next_batch()
    batcher.add("pod-b")

    assert await batcher.next_batch() == {"pod-b"}
    assert not batcher.is_open
