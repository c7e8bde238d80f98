"""Who wrote what, in the order of the API server: a record of pods, nodes and claims, and what may be read out of it.

The order is that of resourceVersions, one counter for all kinds in a real API server, the embedded one and FakeKube.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sawhorse_kube.api import Kube, WatchType
from sawhorse_kube.kinds import NODE, NODECLAIM, POD, Kind
from sawhorse_model.labels import HINT_MANAGER, UNREGISTERED_TAINT
from sawhorse_model.node import Node
from sawhorse_model.pod import Pod

_KINDS = (POD, NODE, NODECLAIM)


@dataclass(slots=True)
class History:
    """Every change that was seen: resourceVersion, kind's name, object; and what there was when it began."""

    changes: list[tuple[int, str, Any]] = field(default_factory=list)

    async def follow(self, kube: Kube, started: asyncio.Event) -> NoReturn:
        """Record until cancelled; `started` is set once nothing can be missed."""
        waiting = {kind.name for kind in _KINDS}

        async def one(kind: Kind) -> None:
            listing = await kube.list(kind)
            version = listing.resource_version
            for obj in listing.objects:
                self.note(kind, obj)
            while True:
                async for event in kube.watch(kind, resource_version=version):
                    version = event.resource_version or version
                    waiting.discard(kind.name)
                    if not waiting:
                        started.set()
                    if event.object is not None and event.type in (WatchType.ADDED, WatchType.MODIFIED):
                        self.note(kind, event.object)

        async with asyncio.TaskGroup() as group:
            for kind in _KINDS:
                group.create_task(one(kind), name=f"history-{kind.plural}")
        raise AssertionError("watches of the history end with the test only")

    def note(self, kind: Kind, obj: Any) -> None:
        """One change."""
        self.changes.append((int(obj.meta.resource_version or 0), kind.name, obj))

    def claims(self) -> list[str]:
        """Names of all NodeClaims that there ever were, in order."""
        return list(dict.fromkeys(obj.meta.name for _, kind, obj in sorted_changes(self) if kind == NODECLAIM.name))

    def hints(self) -> dict[str, dict[str, int]]:
        """Our hints, by uid of the pod: to each node in order, when that was first seen."""
        found: dict[str, dict[str, int]] = {}
        for version, pod in self._pods():
            if pod.nominated_node and pod.nominated_by == HINT_MANAGER:
                found.setdefault(pod.meta.uid, {}).setdefault(pod.nominated_node, version)
        return found

    def opened(self) -> dict[str, int]:
        """By node that was once kept closed, when it was first seen without the taint that does so."""
        closed: set[str] = set()
        found: dict[str, int] = {}
        for version, kind, obj in sorted_changes(self):
            if kind == NODE.name and isinstance(obj, Node):
                if any(t.key == UNREGISTERED_TAINT for t in obj.taints):
                    closed.add(obj.meta.name)
                elif obj.meta.name in closed:
                    found.setdefault(obj.meta.name, version)
        return found

    def opened_before_hinted(self) -> list[str]:
        """Nodes to which the first hint was written after they were open, when kube-scheduler may have filled them.

        Later hints are none of this: some pods may only be hinted once others are bound.
        """
        first: dict[str, int] = {}
        for nodes in self.hints().values():
            for node, version in nodes.items():
                first[node] = min(version, first.get(node, version))
        return [
            f"{node} was opened at {version}, its first hint is of {first[node]}"
            for node, version in self.opened().items()
            if node in first and first[node] > version
        ]

    def _pods(self) -> Sequence[tuple[int, Pod]]:
        return [(version, obj) for version, kind, obj in sorted_changes(self) if kind == POD.name]


@asynccontextmanager
async def recorded(kube: Kube) -> AsyncIterator[History]:
    """A history of what happens in the block."""
    history, started = History(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(history.follow(kube, started), name="history")
        try:
            async with asyncio.timeout(20):
                await started.wait()
            yield history
        finally:
            follower.cancel()


def sorted_changes(history: History) -> list[tuple[int, str, Any]]:
    """In the order in which they were stored."""
    return sorted(history.changes, key=lambda change: change[0])
