"""Waiting in tests for a state, not for a time: polls a condition and fails with a deadline."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 10.0, what: str = "") -> None:
    """Return once `condition` holds; it may be a coroutine function.

    Raises:
        AssertionError: it did not within `seconds`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if loop.time() >= deadline:
            raise AssertionError(f"did not become true within {seconds:g} s: {what or inspect.getsource(condition)}")
        await asyncio.sleep(0.01)
