"""Wake-ups: "look now", with a reason for logs. They carry no state; a lost one costs its reader the usual pause."""

import asyncio
from datetime import timedelta

import structlog

from sawhorse_state.connection import State
from sawhorse_state.errors import StateUnavailableError

log = structlog.get_logger(__name__)

_KEPT = 1000


def _key(service: str) -> str:
    return f"wake:{service}"


async def wake(state: State, service: str, why: str, **fields: str) -> None:
    """Tell a service to look now.

    Args:
        service: "provisioner", "interruption", ….
        why: a short stable word, such as "pods-pending"; several with commas between them.
        fields: more about it, for people.
    Raises:
        StateUnavailableError: it was not told; it will look by itself within seconds.
    """
    await state.do(
        f"wake {service}",
        state.redis.xadd(state.key(_key(service)), {"why": why, **fields}, maxlen=_KEPT, approximate=True),
    )


class Wake:
    """The listening side, one per process: every replica of a service is told."""

    def __init__(self, state: State, service: str) -> None:
        self._state = state
        self._stream = state.key(_key(service))
        self._last: str | None = None
        self._failing = False

    async def wait(self, timeout: timedelta) -> tuple[str, ...]:
        """Wait for a wake-up; return at `timeout` at the latest, also while Redis is out of reach.

        Returns:
            The reasons since the last call (or, at the first call, from now on), each once, in order; empty when
            there was none.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout.total_seconds()
        try:
            answer = await self._read(max(1, int(timeout.total_seconds() * 1000)))
        except StateUnavailableError as err:
            if not self._failing:
                log.warning("wake-ups out of reach", error=str(err))
            self._failing = True
            await asyncio.sleep(max(0.0, deadline - loop.time()))
            return ()
        self._failing = False
        return tuple(dict.fromkeys(answer))

    async def _read(self, block: int) -> list[str]:
        if self._last is None:
            newest = await self._state.do("read wake-ups", self._state.redis.xrevrange(self._stream, count=1))
            self._last = newest[0][0].decode() if newest else "0-0"
        answer = await self._state.wait_blocked(
            "read wake-ups",
            self._state.redis.xread({self._stream: self._last}, count=_KEPT, block=block),
            timedelta(milliseconds=block),
        )
        if not answer:
            return []
        entries = answer[0][1]
        self._last = entries[-1][0].decode()
        return [why for _, fields in entries for why in fields.get(b"why", b"").decode().split(",")]
