"""Leader election by a Kubernetes Lease, with an epoch that fences off a leader that does not know it is one no more.

Who holds the Lease writes its renewal every few seconds. Others compare what they see with what they saw, by their own
monotonic clocks: no two wall clocks need to agree. A leader that cannot renew stops before others may start; one that
was paused beyond that is kept out by its epoch, which whoever stores its writes checks.
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from sawhorse_kube.kinds import LEASE

log = structlog.get_logger(__name__)

Lead = Callable[[asyncio.Event, int], Awaitable[None]]
"""What a leader does: gets an event that is set once leadership is lost, and its epoch. Cancelled when it is lost."""

_RELEASE_SECONDS = 3.0


class Clock(Protocol):
    """What is needed of sawhorse_runtime.clock.Clock: the wall time that is written into the Lease, for people."""

    def now(self) -> datetime: ...


class _WallClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  written for people; nothing is decided by it


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The rhythm of an election. A leader has `renew_deadline` from one renewal to the next, less than `duration`."""

    duration: timedelta = timedelta(seconds=15)  # others take over this long after the last renewal
    renew: timedelta = timedelta(seconds=5)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if not timedelta(0) < self.retry <= self.renew < self.renew_deadline < self.duration:
            raise ValueError("need 0 < retry <= renew < renew_deadline < duration")

    @classmethod
    def of(cls, duration: timedelta) -> "LeaseTimes":
        """The usual proportions for another duration."""
        return cls(duration, duration / 3, duration * 2 / 3, min(timedelta(seconds=1), duration / 10))


class LeaderElector:
    """Campaigns for one Lease and runs `lead` while it is held.

    Args:
        name, namespace: of the Lease.
        identity: who we are, for people, such as the pod's name; made unique per process.
        lease_duration: how long after its last renewal a dead leader keeps others out.
    """

    def __init__(
        self,
        kube: Kube,
        name: str,
        namespace: str,
        identity: str,
        lease_duration: timedelta = timedelta(seconds=15),
        *,
        times: LeaseTimes | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._kube = kube
        self._name = name
        self._namespace = namespace
        # A restarted process must not take its own old Lease for one that it holds.
        self.identity = f"{identity}_{secrets.token_hex(4)}"
        self.times = times if times is not None else LeaseTimes.of(lease_duration)
        self._clock: Clock = clock if clock is not None else _WallClock()
        self._held: Mapping[str, Any] | None = None  # the Lease as we last wrote it
        self._until = float("-inf")  # loop time at which we stop leading unless renewed
        self._seen: tuple[object, float] = (None, 0.0)  # another's renewal and the loop time we first saw it
        self.holder = ""  # who led when we last looked
        self.looked_at = float("-inf")  # loop time of the last answer about the Lease

    @property
    def is_leading(self) -> bool:
        """Whether the Lease is ours now, judged by the clock and not by whether a task got its turn."""
        return self._held is not None and asyncio.get_running_loop().time() < self._until

    @property
    def epoch(self) -> int:
        """The Lease's count of leaders, ours included, as last seen; 0 before the first look."""
        return _transitions(self._held) if self._held is not None else 0

    async def run(self, lead: Lead, stop: asyncio.Event) -> None:
        """Campaign, lead, and campaign again until `stop` is set.

        After `stop`, `lead` goes on (it should watch `stop` itself) and the Lease is renewed until it returns; then it
        is released, also when this is cancelled. A `lead` that returns earlier steps down and campaigns again.

        Raises:
            ExceptionGroup: what `lead` raised, after the Lease was released.
        """
        while not stop.is_set():
            if not await self._acquire(stop):
                return
            log.info("leading", lease=self._name, epoch=self.epoch)
            try:
                await self._lead(lead)
            finally:
                await self._release()
            if not stop.is_set():
                await _wait(stop, self.times.retry.total_seconds())

    async def advance_epoch(self, beyond: int) -> int:
        """While leading, move the epoch past `beyond`: needed when the Lease was made anew and counts from the start.

        Raises:
            KubeError: the Lease could not be written; ConflictError when it is not ours any more.
        """
        if self._held is None:
            raise ConflictError(f"Lease {self._name!r} is not held")
        if self.epoch <= beyond:
            await self._write({"leaseTransitions": beyond + 1})
        return self.epoch

    async def _lead(self, lead: Lead) -> None:
        lost = asyncio.Event()
        epoch = self.epoch
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_call(lead, lost, epoch), name=f"lead:{self._name}")
            keeper = group.create_task(self._keep(), name=f"renew:{self._name}")
            await asyncio.wait({work, keeper}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._held = None
                lost.set()
                log.warning("leadership lost", lease=self._name, epoch=epoch, holder=self.holder)
                work.cancel()
            keeper.cancel()

    async def _keep(self) -> None:
        """Renew until that fails for too long or somebody else holds the Lease."""
        loop = asyncio.get_running_loop()
        pause = self.times.renew.total_seconds()
        while True:
            await asyncio.sleep(min(pause, max(0.0, self._until - loop.time())))
            if loop.time() >= self._until:
                return
            pause = self.times.retry.total_seconds()
            try:
                async with asyncio.timeout_at(self._until):
                    await self._renew()
            except TimeoutError:
                return
            except KubeError as err:
                log.warning("lease not renewed", lease=self._name, error=str(err))
            else:
                if self._held is None:
                    return
                pause = self.times.renew.total_seconds()

    async def _renew(self) -> None:
        try:
            await self._write({})
        except NotFoundError:
            self._held = None  # somebody deleted it: anyone may have made it anew
        except ConflictError:
            # Perhaps our own last write, whose answer was lost: then it still names us.
            raw = await self._kube.get_raw(LEASE, self._name, self._namespace)
            self.holder = _holder(raw)
            self._held = raw if self.holder == self.identity else None
            if self._held is not None:
                await self._write({})

    async def _write(self, spec: Mapping[str, Any]) -> None:
        """Renew the held Lease, with more changes, under its resourceVersion."""
        assert self._held is not None
        began = asyncio.get_running_loop().time()
        body = {
            "metadata": {"resourceVersion": self._held["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": self.identity, "renewTime": self._stamp(), **spec},
        }
        self._held = await self._kube.patch(LEASE, self._name, body, namespace=self._namespace)
        self._until = began + self.times.renew_deadline.total_seconds()
        self.looked_at = asyncio.get_running_loop().time()

    async def _acquire(self, stop: asyncio.Event) -> bool:
        loop = asyncio.get_running_loop()
        failed = False
        while not stop.is_set():
            pause = self.times.retry.total_seconds() * random.uniform(0.8, 1.2)
            try:
                async with asyncio.timeout(self.times.renew_deadline.total_seconds()):
                    left = await self._try()
            except (KubeError, TimeoutError) as err:
                if not failed:
                    log.warning("lease cannot be read or taken", lease=self._name, error=str(err) or "no answer")
                failed = True
            else:
                failed = False
                self.looked_at = loop.time()
                if self._held is not None:
                    return True
                pause = min(pause, max(0.01, left - loop.time()))
            await _wait(stop, pause)
        return False

    async def _try(self) -> float:
        """Look once and take the Lease when it is free. Returns the loop time at which it may be."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            raw = await self._kube.get_raw(LEASE, self._name, self._namespace)
        except NotFoundError:
            await self._create(began)
            return began
        self.holder = _holder(raw)
        spec = raw.get("spec") or {}
        if self.holder:
            seen = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"))
            if seen != self._seen[0]:
                self._seen = (seen, began)
            free_at = self._seen[1] + float(spec.get("leaseDurationSeconds") or self.times.duration.total_seconds())
            if loop.time() < free_at:
                return free_at
        await self._take(raw, began)
        return loop.time()

    async def _create(self, began: float) -> None:
        raw = {
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._spec(), "leaseTransitions": 1},
        }
        try:
            self._held = await self._kube.create(LEASE, raw)
        except AlreadyExistsError:
            return
        self._until = began + self.times.renew_deadline.total_seconds()

    async def _take(self, raw: Mapping[str, Any], began: float) -> None:
        body = {
            "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
            "spec": {**self._spec(), "leaseTransitions": _transitions(raw) + 1},
        }
        try:
            self._held = await self._kube.patch(LEASE, self._name, body, namespace=self._namespace)
        except (ConflictError, NotFoundError):
            return  # another was faster
        self._until = began + self.times.renew_deadline.total_seconds()

    async def _release(self) -> None:
        """Give the Lease away at once, so that a standby need not wait for it to run out."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                try:
                    await self._give_away(held)
                except ConflictError:
                    # A renewal that was cut off on its way may have landed after all: then the Lease is still ours.
                    now = await self._kube.get_raw(LEASE, self._name, self._namespace)
                    if (now.get("spec") or {}).get("holderIdentity") != self.identity:
                        return
                    await self._give_away(now)
        except (KubeError, TimeoutError) as err:
            log.warning("lease not released", lease=self._name, error=str(err) or "no answer")
        else:
            log.info("lease released", lease=self._name)

    async def _give_away(self, held: Mapping[str, Any]) -> None:
        body = {
            "metadata": {"resourceVersion": held["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()},
        }
        await self._kube.patch(LEASE, self._name, body, namespace=self._namespace)

    def _spec(self) -> dict[str, Any]:
        stamp = self._stamp()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.times.duration.total_seconds())),
            "acquireTime": stamp,
            "renewTime": stamp,
        }

    def _stamp(self) -> str:
        return self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _call(lead: Lead, lost: asyncio.Event, epoch: int) -> None:
    await lead(lost, epoch)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _holder(raw: Mapping[str, Any]) -> str:
    return str((raw.get("spec") or {}).get("holderIdentity") or "")


def _transitions(raw: Mapping[str, Any]) -> int:
    return int((raw.get("spec") or {}).get("leaseTransitions") or 0)
