"""The trial: all pods wait, then the provisioner starts, and its first plan is followed until every pod runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import EC2_NODECLASS, NODECLAIM, NODEPOOL, POD, STATEFULSET, Kind, raw_kind
from sawhorse_model.pod import Pod
from sawhorse_sandbox.world import World
from sawhorse_testing.agreement.drivers import play_drivers
from sawhorse_testing.agreement.history import History, recorded
from sawhorse_testing.agreement.surroundings import around, pools
from sawhorse_testing.agreement.workload import FAR, NEAR, rows
from sawhorse_testing.eventually import eventually

DEPLOYMENT = raw_kind("Deployment", "apps", "v1", "deployments", namespaced=True)

# Pods of a spread over zones are hinted one after the other and may take each other's room: some slack is for them.
SLACK = 0.03
# A plan is left alone for twice this long once its nodes are complete: on a machine that does everything at once,
# kube-scheduler may take longer than the default of 20 s for some hundred pods.
SLOW_MACHINE = ("--batch-max-duration=30s",)

_LOOK = 0.5  # seconds between looks at all pods
# kube-scheduler has had its time when it bound nothing for so long: it lets a pod that it could not place wait 10 s at
# most, and looks once a second whose time has come. What is planned anew meanwhile counts as a round.
_QUIET = 13.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the first plan."""

    pods: int
    first_claims: int  # NodeClaims of the first plan
    claims: int  # NodeClaims in all, once every pod ran
    rounds: int  # rounds that made NodeClaims
    pending: int  # pods that were left when the first plan's nodes were complete and kube-scheduler had its time
    elsewhere: int  # pods that run in the end on nodes that the first plan did not make
    seconds: float  # from the provisioner's start until every pod ran
    hinted: int  # pods that got a hint
    as_hinted: int  # of these, pods that kube-scheduler bound to that node
    where_left: Mapping[str, int]  # by workload, pods that were left

    @property
    def is_exact(self) -> bool:
        """Whether the first plan's nodes took every pod, and nothing was planned besides."""
        return (self.pending, self.elsewhere, self.claims, self.rounds) == (0, 0, self.first_claims, 1)

    def line(self, hints: bool, slack: float) -> str:
        """As one line of JSON."""
        told = {
            "hints": hints,
            "slack": slack,
            "pods": self.pods,
            "claimsOfFirstPlan": self.first_claims,
            "pendingAfterFirstPlan": self.pending,
            "onOtherNodes": self.elsewhere,
            "extraClaims": self.claims - self.first_claims,
            "extraRounds": self.rounds - 1,
            "hinted": self.hinted,
            "boundAsHinted": self.as_hinted,
            "secondsUntilAllRun": round(self.seconds, 1),
        }
        return json.dumps(told)


class Trial:
    """One trial in a world without services, over an administrator's client.

    Args:
        spread_part: see `workload.rows`.
    """

    def __init__(self, world: World, kube: Kube, node_class: Mapping[str, Any], *, spread_part: int = 1) -> None:
        self._world = world
        self._kube = kube
        self._node_class = node_class
        self._rows = rows(world.aws.region, spread_part=spread_part)
        self.pods = sum(row.replicas for row in self._rows)
        self.history = History()

    async def run(self, *, hints: bool, slack: float = SLACK) -> Outcome:
        """Every step waits for the one before, none without a bound.

        Args:
            slack: part of a node that the plan leaves free.

        Raises:
            AssertionError: something else than a pod did not come in time; names it.
        """
        await self._prepare()
        async with recorded(self._kube) as self.history, self._with_drivers():
            return await self._follow_plan(hints, slack)

    async def _prepare(self) -> None:
        """Pools are ready, and every pod waits; the provisioner does not run."""
        world = self._world
        await self._create(EC2_NODECLASS, dict(self._node_class))
        for kind, raw in pools():
            await self._create(kind, raw)
        await world.start_services()
        for kind, raw in around(world.aws.region):
            await self._create(kind, raw)
        await eventually(self._pools_ready, seconds=60, what="every NodePool is Ready")
        await world.stop_service("provisioner")
        for row in self._rows:
            await self._create(STATEFULSET if row.kind == "StatefulSet" else DEPLOYMENT, row.manifest())

        async def all_wait() -> bool:
            await asyncio.sleep(_LOOK)
            return sum(p.unschedulable for p in await self._pods()) == self.pods

        await eventually(all_wait, seconds=90, what=f"kube-scheduler has marked all {self.pods} pods")

    async def _create(self, kind: Kind, raw: dict[str, Any]) -> None:
        """A custom resource is served a moment after its definition is established."""

        async def created() -> bool:
            try:
                await self._kube.create(kind, raw)
            except KubeError as error:
                if error.retry:
                    await asyncio.sleep(_LOOK)
                    return False
                raise
            return True

        await eventually(created, seconds=20, what=f"{kind.name} {raw['metadata']['name']} is created")

    async def _pools_ready(self) -> bool:
        found = (await self._kube.list(NODEPOOL)).objects
        return len(found) == len(pools()) and all(p.is_ready for p in found)

    @asynccontextmanager
    async def _with_drivers(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            drivers = group.create_task(play_drivers(self._kube), name="drivers")
            try:
                yield
            finally:
                drivers.cancel()

    async def _follow_plan(self, hints: bool, slack: float) -> Outcome:
        loop = asyncio.get_running_loop()
        began = loop.time()
        flags = [f"--nominate-pods={'on' if hints else 'off'}", f"--node-slack={slack:g}", *SLOW_MACHINE]
        await self._world.start_service("provisioner", extra=flags)
        await eventually(lambda: bool(self._planned()), seconds=60, what="there is a plan")
        first = self._planned()[0]
        await eventually(self._claims_complete, seconds=120, what=f"the {first} nodes of the first plan are complete")
        left = await self._left_when_quiet()

        async def all_run() -> bool:
            await asyncio.sleep(_LOOK)
            return sum(p.phase == "Running" and p.ready for p in await self._pods()) == self.pods

        with suppress(AssertionError):  # who follows pods that went elsewhere may find no room there: left pending
            await eventually(all_run, seconds=120, what="every pod runs")
        seconds = loop.time() - began
        await eventually(self._claims_complete, seconds=60, what="every NodeClaim has its node")
        pods = await self._pods()
        bound = {p.meta.uid: p.node_name for p in pods}
        left += [p for p in pods if not p.node_name and p.meta.uid not in {q.meta.uid for q in left}]
        claims = self.history.claims()
        nodes_of = {c.meta.name: c.node_name for c in (await self._kube.list(NODECLAIM)).objects}
        planned = {nodes_of.get(name, "") for name in claims[:first]}
        told = {uid: list(nodes)[-1] for uid, nodes in self.history.hints().items() if uid in bound}
        where: dict[str, int] = {}
        for pod in left:
            app = pod.meta.labels.get("app", "")
            where[app] = where.get(app, 0) + 1
        return Outcome(
            pods=self.pods,
            first_claims=first,
            claims=len(claims),
            rounds=len(self._planned()),
            pending=len(left),
            elsewhere=sum(node not in planned for node in bound.values()),
            seconds=seconds,
            hinted=len(told),
            as_hinted=sum(bound[uid] == node for uid, node in told.items()),
            where_left=where,
        )

    def _planned(self) -> list[int]:
        """How many NodeClaims each round made that made any, in the provisioner's own words."""
        found = []
        for line in (self._world.directory / "provisioner.log").read_text().splitlines():
            if '"planned"' in line and (made := json.loads(line).get("new_nodeclaims", 0)):
                found.append(int(made))
        return found

    async def _claims_complete(self) -> bool:
        await asyncio.sleep(_LOOK)
        found = (await self._kube.list(NODECLAIM)).objects
        return len(found) >= sum(self._planned()) and all(c.is_initialized for c in found)

    async def _left_when_quiet(self) -> list[Pod]:
        """Pods that are not bound once none was bound for a while."""
        loop = asyncio.get_running_loop()
        left = [p for p in await self._pods() if not p.node_name]
        since = loop.time()
        while left and loop.time() - since < _QUIET:
            await asyncio.sleep(_LOOK)
            now = [p for p in await self._pods() if not p.node_name]
            if len(now) != len(left):
                left, since = now, loop.time()
        return left

    async def _pods(self) -> list[Pod]:
        """The workloads' pods; DaemonSets' are not among them."""
        found: list[Pod] = []
        for namespace in (NEAR, FAR):
            found += (await self._kube.list(POD, namespace=namespace)).objects
        return [p for p in found if not p.is_daemon and not p.meta.is_deleting]
