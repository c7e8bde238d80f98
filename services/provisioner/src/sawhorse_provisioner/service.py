"""One replica: follows the mirror and answers gRPC always, and while it holds the Lease it works a term."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

import structlog

from sawhorse_provisioner.term import Surroundings, Term
from sawhorse_runtime.errors import describe
from sawhorse_runtime.health import Readiness

log = structlog.get_logger(__name__)

MIRROR, CATALOGUE = "mirror", "catalogue"

_CHECK_EVERY = 1.0
_CHECK_WHEN_UNREADY = 0.2


class WakeUps(Protocol):
    """What is needed of `sawhorse_state.wake.Wake`."""

    async def wait(self, timeout: timedelta) -> tuple[str, ...]: ...


class Election(Protocol):
    """What is needed of `sawhorse_kube.leases.LeaderElector`."""

    async def run(self, lead: Callable[[asyncio.Event, int], Awaitable[None]], stop: asyncio.Event) -> None: ...


class Replica:
    """See the module.

    Args:
        mirror_missing: what keeps the mirror from being complete, for a person; empty when it is.
        ask_catalogue: returns when the catalogue answers, raises when it does not.
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        readiness: Readiness,
        wake_ups: WakeUps,
        mirror_missing: Callable[[], str],
        ask_catalogue: Callable[[], Awaitable[None]],
    ) -> None:
        self._around = around
        self._readiness = readiness
        self._wake_ups = wake_ups
        self._mirror_missing = mirror_missing
        self._ask_catalogue = ask_catalogue
        self._term: Term | None = None
        self._stop: asyncio.Event | None = None

    @property
    def is_leading(self) -> bool:
        """Whether this replica acts."""
        return self._term is not None

    def changed(self, kind: str, key: str, op: str) -> None:
        """One change of the mirror."""
        if self._term is not None:
            self._term.changed(kind, key, op)

    def campaign(self, election: Election) -> Callable[[asyncio.Event], Awaitable[None]]:
        """The loop that leads whenever the Lease is ours."""

        async def loop(stop: asyncio.Event) -> None:
            self._stop = stop
            await election.run(self._lead, stop)

        return loop

    async def _lead(self, lost: asyncio.Event, epoch: int) -> None:
        log.info("term begins", epoch=epoch)
        assert self._stop is not None
        ended = asyncio.Event()
        self._around.state.reset()
        self._term = Term(self._around)
        try:
            async with asyncio.TaskGroup() as group:
                enders = [
                    group.create_task(_set_after(event, ended), name=f"term-end-{name}")
                    for name, event in (("stop", self._stop), ("lost", lost))
                ]
                await self._term.run(ended)
                for ender in enders:
                    ender.cancel()
        finally:
            self._term = None
            log.info("term ended", epoch=epoch)

    async def listen(self, stop: asyncio.Event) -> None:
        """Hand wake-ups to the term."""
        while not stop.is_set():
            reasons = await self._wake_ups.wait(timedelta(seconds=1))
            if reasons and self._term is not None:
                self._term.wake(reasons)

    async def check(self, stop: asyncio.Event) -> None:
        """Report whether mirror and catalogue are there; a standby is ready as well. From `stop` on it is not."""
        while not stop.is_set():
            missing = self._mirror_missing()
            self._around.instruments.synced.set(0 if missing else 1)
            if not missing:
                self._around.instruments.node_count.set(len(self._around.state.nodes()))
            self._readiness.set(MIRROR, not missing, missing)
            try:
                async with asyncio.timeout(5):
                    await self._ask_catalogue()
            except Exception as error:
                self._readiness.set(CATALOGUE, False, describe(error) or "no answer")
            else:
                self._readiness.set(CATALOGUE, True)
            try:
                async with asyncio.timeout(_CHECK_EVERY if self._readiness.is_ready else _CHECK_WHEN_UNREADY):
                    await stop.wait()
            except TimeoutError:
                continue
        self._readiness.close()


async def _set_after(event: asyncio.Event, then: asyncio.Event) -> None:
    await event.wait()
    then.set()
