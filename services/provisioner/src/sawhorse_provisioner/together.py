"""The same work on many things at once: bounded, none stops the others, and the first failure is told at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def each(items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int = 20) -> list[R]:
    """Do `work` for every item, at most `limit` at a time; the results in order.

    A task group would wrap even a single error and cancel its siblings: here all of them end.

    Raises:
        Exception: the first failure, after all have ended.
    """
    slots = asyncio.Semaphore(limit)
    failures: list[Exception] = []

    async def one(item: T) -> R | None:
        async with slots:
            try:
                return await work(item)
            except Exception as error:
                failures.append(error)
                return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    if failures:
        raise failures[0]
    return [t.result() for t in tasks]  # type: ignore[misc]  # none failed, so each is an R
