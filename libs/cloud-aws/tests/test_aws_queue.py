"""The queue over SQS: at least once, acknowledged in batches, with a graveyard."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aioboto3
import pytest
import pytest_asyncio

from sawhorse_cloud.cloud import Message
from sawhorse_cloud.errors import CloudError, UnauthorizedError
from sawhorse_cloud_aws.queue import SqsQueue, connect_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


def sqs_client(world: Any) -> Any:
    return aioboto3.Session().client("sqs", region_name="us-east-1", endpoint_url=world.aws.endpoint_url)


@pytest_asyncio.fixture(loop_scope="module")
async def queue(world: Any) -> AsyncIterator[SqsQueue]:
    async with connect_queue("demo", region="us-east-1", endpoint_url=world.aws.endpoint_url) as connected:
        while left := await connected.receive(wait_seconds=0):  # state-change messages of other tests
            await connected.delete(left)
        yield connected


async def dug_up(world: Any) -> dict[str, Any]:
    """Take the one message out of the dead-letter queue."""
    async with sqs_client(world) as sqs:
        url = (await sqs.get_queue_url(QueueName="demo-dead-letter"))["QueueUrl"]
        answer = await sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])
        (dead,) = answer["Messages"]
        await sqs.delete_message(QueueUrl=url, ReceiptHandle=dead["ReceiptHandle"])
    found: dict[str, Any] = dead
    return found


async def all_of(queue: SqsQueue, seconds: float = 5.0, **how: Any) -> list[Message]:
    """Receive until something comes."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        found = list(await queue.receive(wait_seconds=1, **how))
        if found:
            return found
    return []


async def test_a_message_that_was_sent_is_received_as_it_was(queue: SqsQueue) -> None:
    sent = await queue.send('{"ü": 1}')

    (message,) = await all_of(queue)

    assert (message.id, message.body, message.receives) == (sent, '{"ü": 1}', 1)
    assert abs(message.sent - datetime.now(UTC)) < timedelta(minutes=1)


async def test_an_acknowledged_message_does_not_come_back(queue: SqsQueue) -> None:
    await queue.send("one")
    await queue.send("two")
    found = await all_of(queue, visibility_seconds=1)
    while len(found) < 2:
        found += await all_of(queue, visibility_seconds=1)

    assert list(await queue.delete(found)) == []
    assert await queue.delete([]) == ()
    await asyncio.sleep(1.1)
    assert await queue.receive(wait_seconds=0) == []


async def test_a_deletion_that_failed_is_told_message_by_message(queue: SqsQueue) -> None:
    await queue.send("one")
    (message,) = await all_of(queue)
    stale = Message("x", "not-a-receipt", "", message.sent)

    assert list(await queue.delete([message, stale])) == [stale]


async def test_a_message_that_is_handed_back_comes_again_with_its_count(queue: SqsQueue) -> None:
    await queue.send("again")
    (first,) = await all_of(queue)

    await queue.extend(first, 0)
    (second,) = await all_of(queue)

    assert (second.id, second.receives) == (first.id, 2)


async def test_a_message_that_is_kept_does_not_come_again(queue: SqsQueue) -> None:
    await queue.send("kept")
    (message,) = await all_of(queue, visibility_seconds=1)

    await queue.extend(message, 60)
    await asyncio.sleep(1.1)

    assert await queue.receive(wait_seconds=0) == []


async def test_a_buried_message_is_in_the_dead_letter_queue_with_the_reason(queue: SqsQueue, world: Any) -> None:
    await queue.send("poison")
    (message,) = await all_of(queue)

    await queue.bury(message, "not JSON: \x00\ud800 at 1")

    dead = await dug_up(world)
    assert dead["Body"] == "poison"
    assert dead["MessageAttributes"]["why"]["StringValue"].startswith("not JSON: ")
    assert await queue.receive(wait_seconds=0) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [("", ""), ("€" * 90_000, "x" * 5000), ("\x0b", "\x0b")],
    ids=["empty", "longer than SQS takes", "not XML"],
)
async def test_whatever_its_body_a_message_can_be_buried(queue: SqsQueue, world: Any, body: str, why: str) -> None:
    await queue.send("placeholder")
    (message,) = await all_of(queue)

    await queue.bury(Message(message.id, message.receipt, body, message.sent), why)

    dead = await dug_up(world)
    assert dead["Body"]
    assert len(dead["Body"].encode()) <= 200_000


async def test_a_queue_without_a_graveyard_drops_what_is_buried(world: Any) -> None:
    async with sqs_client(world) as sqs:
        await sqs.create_queue(QueueName="plain")

    async with connect_queue("plain", region="us-east-1", endpoint_url=world.aws.endpoint_url) as plain:
        await plain.send("poison")
        (message,) = await all_of(plain)
        await plain.bury(message, "why")

        assert await plain.receive(wait_seconds=0) == []


async def test_a_graveyard_that_we_may_not_see_does_not_stop_the_queue(world: Any) -> None:
    await world.fail("GetQueueAttributes", "AccessDenied", status=403)

    async with connect_queue("demo", region="us-east-1", endpoint_url=world.aws.endpoint_url) as connected:
        assert await connected.send("hello")


async def test_a_queue_that_does_not_exist_is_an_error_of_ours(world: Any) -> None:
    with pytest.raises(CloudError) as caught:
        async with connect_queue("nobody", region="us-east-1", endpoint_url=world.aws.endpoint_url):
            pass

    assert "GetQueueUrl" in str(caught.value)


async def test_a_refused_receive_is_an_error_of_ours(queue: SqsQueue, world: Any) -> None:
    await world.fail("ReceiveMessage", "AccessDenied", status=403)

    with pytest.raises(UnauthorizedError):
        await queue.receive(wait_seconds=0)


async def test_a_real_notice_comes_as_json(queue: SqsQueue, world: Any) -> None:
    await world.aws.interrupt("i-0123456789abcdef0", "spot")

    (message,) = await all_of(queue)

    assert json.loads(message.body)["detail-type"] == "EC2 Spot Instance Interruption Warning"
