"""A small town in virtual time: a world of the provisioner's tests with a workload in it, whose leaders come and go.

Three pods want a node each. Leaders die, are paused, or lose what they talk to; in the end everything must be as if
nothing had happened, and no machine may have been launched twice.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sawhorse_kube.kinds import NODE, NODECLAIM, NODEPOOL, VOLUMEATTACHMENT
from sawhorse_model.labels import DISRUPTED_TAINT, DRAIN_OWNER, INTERRUPTED_AT, TERMINATION_TIMESTAMP
from sawhorse_model.manifests import format_time
from sawhorse_testing.crashes import Crash, Crashed
from sawhorse_testing.invariants import Machine, Scene, problems
from sawhorse_testing.workload import Workload

PODS = 3
SETTINGS = {
    "launch_lookup_window": timedelta(seconds=10),
    "garbage_collection_interval": timedelta(seconds=10),
    "garbage_collection_age": timedelta(seconds=15),
    "volume_detach_timeout": timedelta(seconds=8),
}
COLLECTED = 30.0  # seconds after which nothing leaked may be left
TEMPLATE = "template"

Happening = Callable[[Any], Awaitable[None]]


class Templates:
    """A cloud that makes sure of its templates before it launches, as a real one does within the step `fleet`."""

    def __init__(self, cloud: Any, crash: Crash) -> None:
        self._cloud = cloud
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    async def launch(self, *asked: Any) -> Any:
        self._crash.failpoint(TEMPLATE, "before")
        await asyncio.sleep(0)
        self._crash.failpoint(TEMPLATE, "after")
        return await self._cloud.launch(*asked)


@dataclass
class Town:
    """The world, with a workload in it."""

    world: Any
    workload: Workload

    async def survives(self, crash: Crash, happening: Happening, *, claims: int = PODS) -> None:
        """One leader dies at the crash, the next goes on; all is well in the end, and stays so.

        Args:
            claims: how many NodeClaims, each with one machine, may have been made in all.
        """
        async with asyncio.TaskGroup() as group:
            others = group.create_task(self.workload.run())
            assert await self.life(crash, happening), f"never came to {crash}"
            async with self.world.leading():
                await self.settled()
                await asyncio.sleep(COLLECTED)
            others.cancel()
        self.check(claims)

    async def life(self, crash: Crash, happening: Happening, *, within: float = 150.0) -> bool:
        """A leader's life; whether it ended with the crash."""

        def link(part: Any) -> Any:
            linked = crash.link(part)
            return Templates(linked, crash) if part is self.world.cloud else linked

        crashed = False
        try:
            async with asyncio.timeout(within), self.world.leading(failpoint=crash.failpoint, link=link) as replica:
                await happening(replica)
                await asyncio.sleep(within)
        except* Crashed:
            crashed = True
        except* TimeoutError:
            crashed = False
        return crashed

    async def settled(self, seconds: float = 150.0) -> None:
        """Wait until nothing is wrong, and is not a moment later either."""
        deadline = self.world.clock.monotonic() + seconds
        well = 0
        while well < 4:
            wrong = self.problems()
            assert self.world.clock.monotonic() < deadline, f"after {seconds:g} s: {wrong}"
            well = 0 if wrong else well + 1
            await asyncio.sleep(0.5)

    def check(self, claims: int) -> None:
        """All is well, and no more was made than that many NodeClaims with one machine each."""
        assert not self.problems(), self.problems()
        assert self.made() == (claims, claims), f"claims and machines made: {self.made()}, not {claims} of each"

    def problems(self) -> list[str]:
        """What is not as it must be now."""
        kube = self.world.kube
        scene = Scene(
            pods=self.workload.pods(),
            nodes=[kube.raw(NODE, n) for n in kube.names(NODE)],
            claims=[kube.raw(NODECLAIM, n) for n in kube.names(NODECLAIM)],
            machines=[Machine(i.id, i.token) for i in self.world.cloud.alive()],
        )
        return problems(scene, pods=PODS)

    def made(self) -> tuple[int, int]:
        """NodeClaims and machines that there ever were."""
        return len(set(self.world.kube.called("create", "NodeClaim"))), len(self.world.cloud.instances)

    def machines_per_claim(self) -> int:
        """The most machines that are alive for one claim, told by their token."""
        claims, machines = Counter[str](), Counter[str]()
        for claim in self.world.claims():
            claims[claim.launch_token] += 1
        for instance in self.world.cloud.alive():
            machines[instance.token] += 1
        return max((-(-count // max(1, claims[token])) for token, count in machines.items()), default=0)

    # What happens in it

    async def grows(self, replica: Any) -> None:
        """Three pods want a node each."""
        if not self.world.kube.names(NODEPOOL):
            self.world.node_class()
            self.world.pool()

    async def stops(self, replica: Any) -> None:
        """The leader is told to stop in the middle of a launch."""
        self.world.cloud.launch_latency = 3.0
        await self.grows(replica)
        await self.world.until(lambda: bool(self.world.cloud.launches()))
        replica.stop.set()

    def loses_a_node(self, crash: Crash, how: Happening) -> Happening:
        """All stands; then one node has to go, and from then on the leader may die."""
        crash.armed = False

        async def happening(replica: Any) -> None:
            await self.grows(replica)
            await self.settled()
            crash.armed = True
            await how(self.world.claims()[0])

        return happening

    async def interrupted(self, claim: Any) -> None:
        """What the interruption service does up to the deletion. It drains nothing, so that this is left to others."""
        kube, now = self.world.kube, self.world.clock.now()
        annotations = {
            INTERRUPTED_AT: format_time(now),
            DRAIN_OWNER: "interruption",
            TERMINATION_TIMESTAMP: format_time(now + timedelta(seconds=110)),
        }
        await kube.patch(NODECLAIM, claim.meta.name, {"metadata": {"annotations": annotations}})
        cordon = {"unschedulable": True, "taints": [{"key": DISRUPTED_TAINT, "effect": "NoSchedule"}]}
        await kube.patch(NODE, claim.node_name, {"spec": cordon})
        await kube.delete(NODECLAIM, claim.meta.name, uid=claim.meta.uid)

    async def node_deleted(self, claim: Any) -> None:
        """`kubectl delete node`, of a node whose volume is slow to go."""
        attached = {"nodeName": claim.node_name, "source": {"persistentVolumeName": "pv-1"}}
        raw = {"metadata": {"name": "va-1"}, "spec": attached, "status": {"attached": True}}
        self.world.kube.put(VOLUMEATTACHMENT, raw)
        await self.world.kube.delete(NODE, claim.node_name)

    async def claim_deleted(self, claim: Any) -> None:
        """`kubectl delete nodeclaim`."""
        await self.world.kube.delete(NODECLAIM, claim.meta.name)


def a_town(world: Any) -> Town:
    """A town over a world, with one type, on which one of the pods fits."""
    world.settings = dict(SETTINGS)
    world.catalog.types = world.catalog.types[:1]
    workload = Workload(world.kube, make=lambda name: world.pod(name, cpu="1500m"), bind=world.bind, replicas=PODS)
    return Town(world, workload)
