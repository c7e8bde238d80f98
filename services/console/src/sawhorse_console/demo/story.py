"""The demo's story: pods that wait get nodes, a spot node is warned, its pods move in time.

Each chapter waits for a state with a bound and says what it saw; what does not happen in time is a StoryError that
names it. Times are monotonic seconds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sawhorse_console.demo import manifests
from sawhorse_console.demo.observer import ENDED, Look, Observer
from sawhorse_console.demo.report import Interruption, Report
from sawhorse_console.demo.view import View
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import AlreadyExistsError
from sawhorse_kube.kinds import DAEMONSET, EC2_NODECLASS, NODEPOOL, Kind, raw_kind
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.node import Node
from sawhorse_sandbox.aws import AwsSandbox
from sawhorse_sandbox.world import World

T = TypeVar("T")

DEPLOYMENT = raw_kind("Deployment", "apps", "v1", "deployments", namespaced=True)

PLAN_SECONDS = 40.0
RUNNING_SECONDS = 90.0
CORDON_SECONDS = 15.0
ORDERED_SECONDS = 20.0
READY_SECONDS = 60.0
TERMINATED_SECONDS = 120.0
SETTLED_SECONDS = 60.0
LEAK_SECONDS = 90.0  # garbage collection looks every ten seconds and spares the young
_POLL = 0.1


class StoryError(Exception):
    """Something did not happen in time."""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A plan as the provisioner wrote it down."""

    nodes: int
    pods: int
    price_per_hour: float
    lower_bound_per_hour: float | None


PlanReader = Callable[[], Awaitable[PlanLine | None]]
Warn = Callable[[str], Awaitable[tuple[str, float]]]  # node name → what was sent, and when


@dataclass(slots=True)
class Story:
    """Tells the story once.

    `read_plan` gives the newest plan that made nodes, `warn` sends a spot warning for a node through the queue.
    """

    world: World
    kube: Kube
    observer: Observer
    view: View
    report: Report
    read_plan: PlanReader
    warn: Warn

    async def tell(self) -> None:
        """All chapters; fills the report as far as it comes.

        Raises:
            StoryError: naming what did not happen in time.
        """
        await self.observer.load_prices()
        self.report.instance_types_in_catalog = self.observer.instance_types
        self.report.pods = manifests.PODS
        await self._pods_get_nodes()
        await self._a_spot_node_is_warned()
        await self._nothing_is_left_over()
        look = await self.observer.look()
        self.report.pods_running = look.running
        self.report.nodes = self.observer.rows(look)
        self.report.price_per_hour = sum(row.price_per_hour for row in self.report.nodes)
        self.report.ok = True

    async def _pods_get_nodes(self) -> None:
        self.view.step(f"applying an EC2NodeClass, a NodePool, a DaemonSet and {manifests.PODS} pods in 3 Deployments")
        begun = time.monotonic()
        await self._create(EC2_NODECLASS, manifests.node_class(self.world.cluster, self.world.account.role_name))
        await self._create(NODEPOOL, manifests.node_pool())
        await self._create(DAEMONSET, manifests.daemon_set())
        for deployment in manifests.deployments():
            await self._create(DEPLOYMENT, deployment)

        async def planned() -> PlanLine | None:
            self._show(await self.observer.look())
            return await self.read_plan()

        plan = await _until(planned, PLAN_SECONDS, "no plan was made for the pods")
        self.report.seconds["plan"] = time.monotonic() - begun
        bound = plan.lower_bound_per_hour
        self.report.lower_bound_per_hour = bound
        gap = f", lower bound ${bound:.4f} (+{plan.price_per_hour / bound - 1:.1%})" if bound else ""
        self.view.step(f"plan: {plan.nodes} nodes for {plan.pods} pods at ${plan.price_per_hour:.4f} an hour{gap}")

        async def all_running() -> bool:
            look = await self.observer.look()
            self._show(look)
            return look.running >= manifests.PODS

        await _until(all_running, RUNNING_SECONDS, f"not all {manifests.PODS} pods ran")
        self.report.seconds["allRunning"] = time.monotonic() - begun
        self.view.step(f"all {manifests.PODS} pods run, {self.report.seconds['allRunning']:.1f} s after they were made")

    async def _a_spot_node_is_warned(self) -> None:
        look = await self.observer.look()
        node = _busiest_spot_node(look)
        old = {claim.meta.uid for claim in look.claims}
        claim = look.claim_of(node)
        assert claim is not None  # a node of ours has a claim while it lives
        event = Interruption(node=node.meta.name)
        self.report.interruption = event
        self.view.step(f"sending a spot warning for {node.meta.name} through the queue")
        sent, begun = await self.warn(node.meta.name)
        self.view.step(f"  {sent}")

        async def watch_effects() -> bool:
            now = await self.observer.look()
            passed = time.monotonic() - begun
            self._show(now)
            current = now.node(node.meta.name)
            if event.seconds_to_cordon is None and (current is None or current.unschedulable):
                event.seconds_to_cordon = passed
                self.view.step(f"  cordoned after {passed:.1f} s")
            fresh = [c for c in now.claims if c.meta.uid not in old]
            if event.seconds_to_replacement_ordered is None and fresh:
                event.seconds_to_replacement_ordered = passed
                self.view.step(f"  replacement ordered after {passed:.1f} s: {', '.join(c.meta.name for c in fresh)}")
            if event.seconds_to_replacement_ready is None and fresh and all(c.is_initialized for c in fresh):
                event.seconds_to_replacement_ready = passed
                self.view.step(f"  replacement ready after {passed:.1f} s")
            gone = current is None and all(c.meta.uid != claim.meta.uid for c in now.claims)
            if gone and event.seconds_to_terminated is None:
                event.seconds_to_terminated = passed
                self.view.step(f"  node drained and instance ended after {passed:.1f} s")
            for seconds, limit, what in (
                (event.seconds_to_cordon, CORDON_SECONDS, "the node was not cordoned"),
                (event.seconds_to_replacement_ordered, ORDERED_SECONDS, "no replacement was ordered"),
                (event.seconds_to_replacement_ready, READY_SECONDS, "the replacement was not ready"),
            ):
                if seconds is None and passed > limit:
                    raise StoryError(f"{what} within {limit:.0f} s of the spot warning")
            return gone and event.seconds_to_replacement_ready is not None

        await _until(watch_effects, TERMINATED_SECONDS, "the warned node was not terminated")

        async def settled() -> bool:
            now = await self.observer.look()
            self._show(now)
            event.pods_running_after = now.running
            return now.running >= manifests.PODS

        await _until(settled, SETTLED_SECONDS, f"not all {manifests.PODS} pods ran again after the interruption")

    async def _nothing_is_left_over(self) -> None:
        async def accounted() -> bool:
            self.report.leaked_instances = len(await self.leaked())
            return self.report.leaked_instances == 0

        await _until(accounted, LEAK_SECONDS, "instances run that no NodeClaim accounts for", every=1.0)

    async def leaked(self) -> list[str]:
        """Living instances of the sandbox that no NodeClaim names."""
        claims = (await self.observer.look()).claims
        known = {claim.instance_id for claim in claims}
        aws: AwsSandbox = self.world.aws
        return [
            i["instanceId"] for i in await aws.instances() if i["state"] not in ENDED and i["instanceId"] not in known
        ]

    async def _create(self, kind: Kind, raw: dict[str, Any]) -> None:
        try:
            await self.kube.create(kind, raw)
        except AlreadyExistsError:
            return

    def _show(self, look: Look) -> None:
        self.view.progress(look.running, manifests.PODS, self.observer.rows(look))


def _busiest_spot_node(look: Look) -> Node:
    counts = {
        node.meta.name: sum(1 for p in look.pods if p.node_name == node.meta.name)
        for node in look.nodes
        if node.meta.labels.get(CAPACITY_TYPE) == "spot"
    }
    if not counts:
        raise StoryError("there is no spot node to warn; spot was not cheaper than on-demand")
    name = min(counts, key=lambda key: (-counts[key], key))
    found = look.node(name)
    assert found is not None  # the name came from this look
    return found


async def _until(condition: Callable[[], Awaitable[T | None]], seconds: float, what: str, every: float = _POLL) -> T:
    """Ask until the answer is true; bounded."""
    deadline = time.monotonic() + seconds
    while True:
        found = await condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise StoryError(f"{what} within {seconds:.0f} s")
        await asyncio.sleep(every)
