"""Events about many pods at once: written in the background, bounded, so that planning never waits for them."""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import structlog

from sawhorse_kube.events import DEDUPE, NORMAL, WARNING, EventRecorder
from sawhorse_kube.kinds import POD, Kind
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import Pod

log = structlog.get_logger(__name__)

_HELD = 2000
_PARALLEL = 8
_NOMINATED_RATE, _NOMINATED_BURST = 5.0, 10.0  # a second, and at once: a big batch must not flood the API
_FAILED_DEDUPE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class _Announcement:
    kind: Kind
    meta: ObjectMeta
    type: str
    reason: str
    message: str
    dedupe: timedelta


class Announcer:
    """Takes Events at once and writes them when there is time. Beyond its bound the oldest are dropped."""

    def __init__(self, recorder: EventRecorder) -> None:
        self.recorder = recorder
        self._waiting: deque[_Announcement] = deque(maxlen=_HELD)
        self._wake = asyncio.Event()
        self._tokens = _NOMINATED_BURST
        self._refilled: float | None = None

    def nominated(self, pod: Pod, target: str) -> None:
        """A pod is expected to land somewhere; silent beyond the rate."""
        now = asyncio.get_running_loop().time()
        since = 0.0 if self._refilled is None else now - self._refilled
        self._tokens = min(_NOMINATED_BURST, self._tokens + since * _NOMINATED_RATE)
        self._refilled = now
        if self._tokens < 1:
            return
        self._tokens -= 1
        self._add(_Announcement(POD, pod.meta, NORMAL, "Nominated", f"Pod should land on {target}", DEDUPE))

    def failed_scheduling(self, pod: Pod, message: str) -> None:
        """A pod has no place."""
        self._add(_Announcement(POD, pod.meta, WARNING, "FailedScheduling", message, _FAILED_DEDUPE))

    def warn(self, kind: Kind, meta: ObjectMeta, reason: str, message: str, dedupe: timedelta = DEDUPE) -> None:
        """Any other warning."""
        self._add(_Announcement(kind, meta, WARNING, reason, message, dedupe))

    def tell(self, kind: Kind, meta: ObjectMeta, reason: str, message: str, dedupe: timedelta = DEDUPE) -> None:
        """Any other normal Event."""
        self._add(_Announcement(kind, meta, NORMAL, reason, message, dedupe))

    def _add(self, announcement: _Announcement) -> None:
        if len(self._waiting) == _HELD:
            log.debug("event dropped", reason=self._waiting[0].reason)
        self._waiting.append(announcement)
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Write until `stop`; what waits then is dropped."""
        slots = asyncio.Semaphore(_PARALLEL)
        async with asyncio.TaskGroup() as group:
            ender = group.create_task(self._wake_when(stop), name="announcer-stop")
            while not stop.is_set():
                self._wake.clear()
                while self._waiting and not stop.is_set():
                    await slots.acquire()
                    group.create_task(self._publish(self._waiting.popleft(), slots), name="announce")
                await self._wake.wait()
            ender.cancel()

    async def _publish(self, one: _Announcement, slots: asyncio.Semaphore) -> None:
        try:
            await self.recorder.publish(
                one.kind, one.meta, type=one.type, reason=one.reason, message=one.message, dedupe=one.dedupe
            )
        finally:
            slots.release()

    async def _wake_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()
