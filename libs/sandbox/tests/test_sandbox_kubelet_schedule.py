"""Keys come when they are due, one worker each, and again after a failure."""

import asyncio
from collections.abc import Awaitable, Callable

from sawhorse_sandbox.kubelet.schedule import Schedule


async def run_until(schedule: Schedule, condition: Callable[[], bool]) -> None:
    """Run the schedule until the condition holds, five seconds at most."""
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        work = group.create_task(schedule.run())
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        work.cancel()


def recording(
    seen: list[str], answer: Callable[[str], float | None] = lambda _: None
) -> Callable[[str], Awaitable[float | None]]:
    async def handle(key: str) -> float | None:
        seen.append(key)
        return answer(key)

    return handle


async def test_keys_come_in_the_order_in_which_they_are_due() -> None:
    seen: list[str] = []
    schedule = Schedule("test", recording(seen), workers=2)
    now = asyncio.get_running_loop().time()
    schedule.add("later", now + 0.05)
    schedule.add("never", now + 3600)
    schedule.add("now")

    await run_until(schedule, lambda: len(seen) == 2)

    assert seen == ["now", "later"]


async def test_an_earlier_time_replaces_a_later_one_and_not_the_other_way_round() -> None:
    seen: list[str] = []
    schedule = Schedule("test", recording(seen), workers=1)
    now = asyncio.get_running_loop().time()
    schedule.add("key", now + 3600)
    schedule.add("key", now + 0.01)
    schedule.add("key", now + 7200)
    schedule.add("end", now + 0.1)

    await run_until(schedule, lambda: "end" in seen)

    assert seen == ["key", "end"]


async def test_a_key_that_becomes_due_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    running = 0
    most = 0
    looks = 0
    release = asyncio.Event()

    async def handle(_key: str) -> float | None:
        nonlocal running, most, looks
        running, looks = running + 1, looks + 1
        most = max(most, running)
        if looks == 1:
            schedule.add("key")
            schedule.add("other")
            await release.wait()
        elif not release.is_set():
            release.set()
        running -= 1
        return None

    schedule = Schedule("test", handle, workers=4)
    schedule.add("key")

    await run_until(schedule, lambda: looks == 3 and running == 0)

    assert most == 2  # the key and the other one, never the key twice


async def test_a_failed_look_is_counted_and_repeated_and_the_others_go_on() -> None:
    seen: list[str] = []

    async def handle(key: str) -> float | None:
        seen.append(key)
        if key == "bad" and seen.count("bad") == 1:
            raise RuntimeError("no")
        return None

    schedule = Schedule("test", handle, workers=1)
    schedule.add("bad")
    schedule.add("good")

    await run_until(schedule, lambda: seen.count("bad") == 2)

    assert seen == ["bad", "good", "bad"]
    assert schedule.failed == 1
