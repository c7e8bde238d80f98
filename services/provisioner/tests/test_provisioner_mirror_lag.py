"""The mirror may lag behind what we wrote, for as long as no watcher runs: nothing is made twice for that."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.manifests import nodeclaim_to_raw
from sawhorse_provisioner.catch_up import catch_up
from sawhorse_testing.crashes import Fault

pytestmark = pytest.mark.looptime


async def test_claims_are_not_made_again_while_no_watcher_tells_of_them(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="3")
    world.join_after = 60.0

    async with world.leading() as replica:
        claims_told = replica.mirror.watched[NODECLAIM.name]
        claims_told.clear()
        await world.until(lambda: bool(world.claims()))
        await asyncio.sleep(45)  # several looks of the provisioner, and longer than any write is remembered by time
        replica.mirror.view.expire(asyncio.get_running_loop().time())
        await replica.term.provisioner.round()
        alone = len(world.claims())
        claims_told.set()
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    assert alone == 1
    assert len(world.claims()) == 1


async def test_a_new_leader_sees_the_claims_that_the_mirror_lags_behind_with(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="3")
    async with world.leading():
        await world.until(lambda: bool(world.claims()))
    claim = world.claim()

    async with world.leading(act=False) as replica:
        await world.until(lambda: replica.mirror.synced)
        replica.mirror.watched[NODECLAIM.name].clear()
        late = {**nodeclaim_to_raw(claim), "metadata": {"name": "late", "labels": dict(claim.meta.labels)}}
        await world.kube.create(NODECLAIM, late)
        before = sorted(c.meta.name for c in replica.state.claims())
        done = await catch_up(world.kube, replica.state, world.clock, asyncio.Event())
        after = sorted(c.meta.name for c in replica.state.claims())

    assert done
    assert before == [claim.meta.name]
    assert after == sorted([claim.meta.name, "late"])


async def test_a_new_leader_waits_until_the_claims_can_be_listed(world: Any, looptime: Any) -> None:
    fault = Fault(lambda: KubeUnavailableError("no answer"))
    fault.down = True

    async with world.leading(act=False) as replica:
        stop = asyncio.Event()
        waiting = asyncio.ensure_future(catch_up(fault.link(world.kube), replica.state, world.clock, stop))
        await asyncio.sleep(20)
        meanwhile = waiting.done()
        fault.down = False
        done = await asyncio.wait_for(waiting, timeout=30)

    assert not meanwhile
    assert done
    assert fault.refused > 3


class _LostAnswer:
    """Kubernetes whose first answer to a creation is lost on its way, and which does not answer for a while then."""

    def __init__(self, kube: Any, away: timedelta) -> None:
        self._kube = kube
        self._away = away.total_seconds()
        self._until = 0.0
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def create(self, kind: Any, raw: Any) -> Any:
        if kind is NODECLAIM and not self.lost:
            self.lost += 1
            await self._kube.create(kind, raw)
            self._until = asyncio.get_running_loop().time() + self._away
            raise KubeUnavailableError("the connection was closed")
        return await self._kube.create(kind, raw)

    async def get(self, kind: Any, *names: str) -> Any:
        if asyncio.get_running_loop().time() < self._until:
            raise KubeUnavailableError("no answer")
        return await self._kube.get(kind, *names)


@pytest.mark.parametrize("away", [0, 8])
async def test_a_claim_whose_creation_was_not_answered_is_found_and_not_made_again(
    world: Any, looptime: Any, away: int
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="3")
    broken = _LostAnswer(world.kube, timedelta(seconds=away))

    async with world.leading(link=lambda part: broken if part is world.kube else part) as replica:
        claims_told = replica.mirror.watched[NODECLAIM.name]
        claims_told.clear()
        await world.until(lambda: broken.lost == 1)
        await asyncio.sleep(30)
        made = len(world.claims())
        claims_told.set()
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    assert made == 1
    assert len(world.claims()) == 1
