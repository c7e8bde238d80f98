"""A workload over FakeKube: as many pods as it wants, made anew when they go, and bound by a plain scheduler.

It stands for the ReplicaSet controller, kube-scheduler and the pod garbage collector, so that a test in virtual time
can see whether a pod was lost.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sawhorse_kube.kinds import NODE, POD
from sawhorse_model.manifests import Raw
from sawhorse_model.quantity import milli
from sawhorse_testing.kube import FakeKube

LOOK_EVERY = 0.5
NO_ROOM = ("NoSchedule", "NoExecute")


@dataclass
class Workload:
    """See the module.

    Args:
        make: puts a waiting pod of a name into the world.
        bind: binds a pod to a node, and lets it run.
    """

    kube: FakeKube
    make: Callable[[str], Any]
    bind: Callable[[str, str], None]
    replicas: int = 3
    made: int = 0
    moves: list[str] = field(default_factory=list)  # names of nodes, one for each binding

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Remove orphans, make what is missing, bind what fits."""
        nodes = {name: self.kube.raw(NODE, name) for name in self.kube.names(NODE)}
        for pod in self.pods():
            if (bound := pod["spec"].get("nodeName")) and bound not in nodes:
                self.kube.remove(POD, pod["metadata"]["name"], "default")
        for _ in range(self.replicas - len(self.pods())):
            self.made += 1
            self.make(f"web-{self.made}")
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                self._schedule(pod, nodes)

    def pods(self) -> list[Raw]:
        """Its pods, by name."""
        return [self.kube.raw(POD, key.partition("/")[2], "default") for key in self.kube.names(POD)]

    def _schedule(self, pod: Raw, nodes: dict[str, Raw]) -> None:
        wished = (pod.get("status") or {}).get("nominatedNodeName", "")
        for name in sorted(nodes, key=lambda n: (n != wished, n)):
            if self._is_open(nodes[name]) and _cpu(pod) <= self._room(nodes[name]):
                self.bind(pod["metadata"]["name"], name)
                self.moves.append(name)
                return

    @staticmethod
    def _is_open(node: Raw) -> bool:
        spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        shut = spec.get("unschedulable") or any(t.get("effect") in NO_ROOM for t in spec.get("taints") or ())
        return ready and not shut and not node["metadata"].get("deletionTimestamp")

    def _room(self, node: Raw) -> int:
        name = node["metadata"]["name"]
        taken = sum(_cpu(p) for p in self.pods() if p["spec"].get("nodeName") == name)
        return milli(node["status"]["allocatable"]["cpu"]) - taken


def _cpu(pod: Raw) -> int:
    """Milli-cpu."""
    return sum(milli(c["resources"]["requests"]["cpu"]) for c in pod["spec"]["containers"])
