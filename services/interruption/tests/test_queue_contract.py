"""What consumers rely on in a queue: one suite for the fake and for the real adapter over the sandbox's SQS."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from sawhorse_cloud.cloud import Queue
from sawhorse_cloud_aws import connect_queue
from sawhorse_sandbox.aws import AwsSandbox, seed_account, start_aws
from sawhorse_testing.queue import FakeQueue

# Both kinds: a shared suite waits in real time, too long for the fast gate.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

KINDS = ["fake", "sqs"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[[], Awaitable[AwsSandbox]]]:
    """Starts the sandbox's AWS at the first call: the fake needs none."""
    async with AsyncExitStack() as stack:
        started: list[AwsSandbox] = []

        async def start() -> AwsSandbox:
            if not started:
                aws = await start_aws(tmp_path_factory.mktemp("aws"))
                started.append(await stack.enter_async_context(aws))
            return started[0]

        yield start


@pytest_asyncio.fixture(params=KINDS, loop_scope="module")
async def queue(
    request: Any, servers: Callable[[], Awaitable[AwsSandbox]], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Queue]:
    """An empty queue."""
    if request.param == "fake":
        yield FakeQueue().connect()
        return
    aws = await servers()
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    seeded = await seed_account(aws.endpoint_url, f"c-{uuid4().hex[:8]}", aws.region)
    async with connect_queue(seeded.queue_name, region=aws.region, endpoint_url=aws.endpoint_url) as real:
        yield real


async def test_what_was_sent_is_received_with_its_text_and_time_and_then_hidden(queue: Queue) -> None:
    id = await queue.send("hello")

    (message,) = await queue.receive(wait_seconds=1)
    again = await queue.receive(wait_seconds=0)

    assert (message.id, message.body, message.receives) == (id, "hello", 1)
    assert message.sent.tzinfo is not None
    assert list(again) == []


async def test_an_empty_queue_answers_after_the_wait(queue: Queue) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    received = await queue.receive(wait_seconds=1)

    assert list(received) == []
    assert 0.5 <= loop.time() - began <= 5


async def test_a_message_that_is_not_deleted_comes_back_with_a_new_receipt(queue: Queue) -> None:
    await queue.send("hello")

    (first,) = await queue.receive(wait_seconds=1, visibility_seconds=1)
    (second,) = await queue.receive(wait_seconds=5)

    assert second.id == first.id
    assert second.receipt != first.receipt
    assert second.receives == 2


async def test_a_deleted_message_does_not_come_back(queue: Queue) -> None:
    await queue.send("hello")
    received = await queue.receive(wait_seconds=1, visibility_seconds=1)

    left = await queue.delete(received)

    assert list(left) == []
    assert list(await queue.receive(wait_seconds=2)) == []


async def test_ten_at_most_are_received_at_a_time(queue: Queue) -> None:
    for number in range(12):
        await queue.send(str(number))

    first = await queue.receive(most=10, wait_seconds=1)

    assert len(first) <= 10


async def test_a_message_handed_back_is_received_at_once(queue: Queue) -> None:
    await queue.send("hello")
    (message,) = await queue.receive(wait_seconds=1)

    await queue.extend(message, 0)
    (again,) = await queue.receive(wait_seconds=3)

    assert again.id == message.id


async def test_an_extended_message_stays_hidden(queue: Queue) -> None:
    await queue.send("hello")
    (message,) = await queue.receive(wait_seconds=1, visibility_seconds=1)

    await queue.extend(message, 30)

    assert list(await queue.receive(wait_seconds=2)) == []


async def test_a_buried_message_is_gone(queue: Queue) -> None:
    await queue.send("rubbish")
    (message,) = await queue.receive(wait_seconds=1, visibility_seconds=1)

    await queue.bury(message, "not_json: expected a value")

    assert list(await queue.receive(wait_seconds=2)) == []
