"""Readiness: a leader with a whole mirror, or a standby that could take over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_runtime.health import Readiness
from sawhorse_state.errors import StateUnavailableError
from sawhorse_testing.eventually import eventually
from sawhorse_watcher.standing import CHECKS, Standing


@dataclass
class World:
    """All that readiness is judged by."""

    looked_at: float = float("inf")
    holder: str = "other"
    is_leading: bool = False
    synced: bool = False
    trouble: str = ""
    redis: bool = True

    async def ping(self) -> None:
        if not self.redis:
            raise StateUnavailableError("ping: refused")


@asynccontextmanager
async def judged(world: World) -> AsyncIterator[Readiness]:
    readiness, stop = Readiness(CHECKS), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(Standing(readiness, world, world, world, fresh=timedelta(seconds=30)).run(stop))
        yield readiness
        stop.set()


async def test_a_standby_that_sees_the_leader_is_ready() -> None:
    async with judged(World()) as readiness:
        await eventually(lambda: readiness.is_ready)

        assert readiness.missing() == {}


async def test_a_standby_that_cannot_read_the_lease_is_not_ready() -> None:
    async with judged(World(looked_at=float("-inf"))) as readiness:
        await eventually(lambda: set(readiness.missing()) == {"kubernetes"})

        assert readiness.missing() == {"kubernetes": "the leader Lease cannot be read"}


async def test_nobody_is_ready_before_somebody_leads() -> None:
    async with judged(World(holder="")) as readiness:
        await eventually(lambda: readiness.missing() == {"mirror": "nobody leads yet"})

        assert not readiness.is_ready


async def test_a_leader_is_ready_once_its_mirror_is_whole_and_says_what_is_missing_until_then() -> None:
    world = World(is_leading=True, trouble="NodePool: install its CRD")

    async with judged(world) as readiness:
        await eventually(lambda: readiness.missing() == {"mirror": "NodePool: install its CRD"})
        world.trouble = ""
        await eventually(lambda: readiness.missing() == {"mirror": "full lists are being written"})
        world.synced = True
        await eventually(lambda: readiness.is_ready)

        assert readiness.missing() == {}


async def test_without_redis_nobody_is_ready() -> None:
    async with judged(World(redis=False)) as readiness:
        await eventually(lambda: readiness.missing() == {"redis": "ping: refused"})

        assert not readiness.is_ready
