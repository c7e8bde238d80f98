"""When the provisioner should look now: a pure rule per change, and a sender that gathers reasons for a moment."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from sawhorse_model.pod import Pod
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps
from sawhorse_state.connection import State
from sawhorse_state.errors import StateError
from sawhorse_state.wake import wake
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.steps import Step

log = structlog.get_logger(__name__)

SERVICE = "provisioner"

PODS_PENDING = "pods-pending"
NODE_CHANGED = "node-changed"
NODE_DELETED = "node-deleted"
CLAIM_CHANGED = "nodeclaim-changed"
POOL_CHANGED = "nodepool-changed"
CLASS_CHANGED = "nodeclass-changed"
MIRROR_SYNCED = "mirror-synced"

_REASONS = {"Pod": PODS_PENDING, "Node": NODE_CHANGED, "NodeClaim": CLAIM_CHANGED, "NodePool": POOL_CHANGED}

PAUSE = timedelta(milliseconds=100)


class WakeRule:
    """Tells why a change of one kind matters. Keeps of each object only what decides whether it changed."""

    def __init__(self, kind: str, *, node_class: bool = False) -> None:
        self._kind = kind
        self._why = _REASONS.get(kind, CLASS_CHANGED if node_class else "")
        self._known: dict[str, Any] = {}

    def replace(self, objects: Iterable[Any]) -> str:
        """A full list: the reason that it gives beyond what was known before, or nothing."""
        before, self._known = self._known, {}
        reasons = [self._note(obj.meta.key, obj, before.get(obj.meta.key)) for obj in objects]
        if before.keys() - self._known.keys():
            reasons.append(self._gone())
        return next((reason for reason in reasons if reason), "")

    def change(self, key: str, obj: Any | None) -> str:
        """One change; `obj` None: it is gone. Returns a reason, or nothing."""
        known = self._known.pop(key, None)
        if obj is not None:
            return self._note(key, obj, known)
        return self._gone() if known is not None else ""

    def _note(self, key: str, obj: Any, known: Any) -> str:
        now = self._weigh(obj)
        if now is None:
            return ""
        self._known[key] = now
        return self._why if now != known else ""

    def _weigh(self, obj: Any) -> Any:
        """What of an object matters; None: nothing."""
        if not self._why:
            return None
        if isinstance(obj, Pod):
            # The uid: a pod of the same name may be another one.
            return obj.meta.uid if obj.is_provisionable else None
        # Heartbeats of kubelets change nothing that is kept but the version.
        return replace(obj, meta=replace(obj.meta, resource_version=""))

    def _gone(self) -> str:
        # That a pod wants no node any more is no reason to hurry.
        return {"Pod": "", "Node": NODE_DELETED}.get(self._kind, self._why)


class Waker:
    """Sends wake-ups, at most one in `PAUSE`, with all reasons of that while."""

    def __init__(
        self, state: State, instruments: Instruments, *, pause: timedelta = PAUSE, steps: Steps | None = None
    ) -> None:
        self._steps = steps if steps is not None else Steps()
        self._state = state
        self._instruments = instruments
        self._pause = pause.total_seconds()
        self._reasons: dict[str, None] = {}
        self._new = asyncio.Event()

    def notify(self, why: str) -> None:
        """Wake the provisioner soon; an empty reason does nothing."""
        if why:
            self._reasons[why] = None
            self._new.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(self._send(), name="wake-sender")
            await stop.wait()
            sender.cancel()

    async def _send(self) -> None:
        while True:
            await self._new.wait()
            reasons, self._reasons = self._reasons, {}
            self._new.clear()
            try:
                with self._steps.at(Step.WOKEN):
                    await wake(self._state, SERVICE, ",".join(reasons))
            except StateError as err:
                # Not kept: the provisioner looks by itself within seconds, and a mirror out of reach wakes nobody.
                self._instruments.wakes.labels("error").inc()
                log.warning("wake-up not sent", error=describe(err))
            else:
                self._instruments.wakes.labels("sent").inc()
                log.debug("woke the provisioner", reasons=list(reasons))
            await asyncio.sleep(self._pause)
