"""The mirror for tests in virtual time: no Redis and no watcher between Kubernetes and its readers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sawhorse_kube.kinds import Kind
from sawhorse_state.mirror_view import MirrorView
from sawhorse_testing.kube import FakeKube


class WatchedMirror:
    """FakeKube's lists and watches, straight into the view, as `sawhorse_state.mirror.Mirror` shows them.

    While `watched` of a kind is clear nothing is told of it, as if no watcher ran.
    """

    def __init__(self, kube: FakeKube, kinds: Sequence[Kind]) -> None:
        self._kube = kube
        self._kinds = tuple(kinds)
        self.view = MirrorView([k.name for k in self._kinds])
        self.synced = False
        self.watched = {kind.name: asyncio.Event() for kind in self._kinds}
        for event in self.watched.values():
            event.set()
        self.all = self.view.all
        self.get = self.view.get
        self.pods_on = self.view.pods_on
        self.subscribe = self.view.subscribe

    @property
    def version(self) -> int:
        """Grows with each visible change."""
        return self.view.version

    def note_own(self, kind: str, obj: Any) -> None:
        """Show an own write before the watch brings it."""
        self.view.note_own(kind, obj, asyncio.get_running_loop().time())

    async def run(self) -> None:
        """List everything, then follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                listing = await self._kube.list(kind)
                for obj in listing.objects:
                    self.view.set(kind.name, obj.meta.key, obj, asyncio.get_running_loop().time())
                group.create_task(self._follow(kind, listing.resource_version))
            self.synced = True

    async def _follow(self, kind: Any, version: str) -> None:
        while True:
            async for event in self._kube.watch(kind, resource_version=version):
                await self.watched[kind.name].wait()
                version = event.resource_version
                if event.object is None:
                    continue
                if event.type == "DELETED":
                    self.view.delete(kind.name, event.object.meta.key, int(version))
                else:
                    self.view.set(kind.name, event.object.meta.key, event.object, asyncio.get_running_loop().time())
