"""The Queue protocol over SQS."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import structlog

from sawhorse_cloud.cloud import Message
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import call, client

log = structlog.get_logger(__name__)

# SQS refuses larger bodies; a poison message may be just below, and the attribute that says why comes on top.
_BURIED_BYTES = 200_000
_WHY_BYTES = 1_000
# What SQS takes is what XML 1.0 takes.
_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SqsQueue:
    """See Queue. The URL is looked up once; the dead-letter queue is the one of the redrive policy, if any."""

    def __init__(self, *, sqs: Any, url: str, dead_letter_url: str) -> None:
        self._sqs = sqs
        self._url = url
        self._dead_letter_url = dead_letter_url

    async def receive(
        self, *, most: int = 10, wait_seconds: int = 20, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Long-poll for messages."""
        answer = await call(
            "ReceiveMessage",
            self._sqs.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=visibility_seconds,
            AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
        )
        return [
            Message(
                id=raw["MessageId"],
                receipt=raw["ReceiptHandle"],
                body=raw.get("Body") or "",
                sent=datetime.fromtimestamp(int(raw.get("Attributes", {}).get("SentTimestamp", 0)) / 1000, tz=UTC),
                receives=int(raw.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
            )
            for raw in answer.get("Messages", ())
        ]

    async def delete(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Acknowledge up to 10; returns those that were not deleted."""
        if not messages:
            return ()
        answer = await call(
            "DeleteMessageBatch",
            self._sqs.delete_message_batch,
            QueueUrl=self._url,
            Entries=[{"Id": str(index), "ReceiptHandle": m.receipt} for index, m in enumerate(messages)],
        )
        failed = {entry["Id"] for entry in answer.get("Failed", ())}
        return [m for index, m in enumerate(messages) if str(index) in failed]

    async def extend(self, message: Message, visibility_seconds: int) -> None:
        """Keep (or with 0 hand back) a message."""
        await call(
            "ChangeMessageVisibility",
            self._sqs.change_message_visibility,
            QueueUrl=self._url,
            ReceiptHandle=message.receipt,
            VisibilityTimeout=visibility_seconds,
        )

    async def bury(self, message: Message, why: str) -> None:
        """Send a message to the dead-letter queue, if there is one, then delete it."""
        if self._dead_letter_url:
            await call(
                "SendMessage",
                self._sqs.send_message,
                QueueUrl=self._dead_letter_url,
                MessageBody=_sendable(message.body, _BURIED_BYTES) or "(empty)",
                MessageAttributes={
                    "why": {"DataType": "String", "StringValue": _sendable(why, _WHY_BYTES) or "not said"},
                },
            )
        left = await self.delete([message])
        if left:
            raise CloudError("DeleteMessageBatch: the message was not deleted", reason="DeleteFailed")

    async def send(self, body: str) -> str:
        """Put a message on the queue; returns its id."""
        answer = await call("SendMessage", self._sqs.send_message, QueueUrl=self._url, MessageBody=body)
        return str(answer["MessageId"])


def _sendable(text: str, most_bytes: int) -> str:
    """The text as SQS accepts it, cut to a length in bytes."""
    clean = _REFUSED.sub("\ufffd", text)
    return clean.encode()[:most_bytes].decode(errors="ignore")


async def _dead_letter_url(sqs: Any, url: str) -> str:
    """Of the redrive policy's queue; empty when there is none, or when we may not know."""
    try:
        answer = await call(
            "GetQueueAttributes", sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["RedrivePolicy"]
        )
        target = json.loads(answer.get("Attributes", {}).get("RedrivePolicy") or "{}").get("deadLetterTargetArn", "")
        if not target:
            return ""
        account, name = target.split(":")[-2:]
        found = await call("GetQueueUrl", sqs.get_queue_url, QueueName=name, QueueOwnerAWSAccountId=account)
    except (CloudError, ValueError) as error:
        # Messages matter more than the graveyard: go on without one.
        log.warning("no dead-letter queue: bad messages will be dropped", error=str(error))
        return ""
    return str(found["QueueUrl"])


@asynccontextmanager
async def connect_queue(name: str, *, region: str, endpoint_url: str = "") -> AsyncIterator[SqsQueue]:
    """A Queue by name.

    Raises:
        CloudError: no such queue, or no permission.
    """
    async with client("sqs", region=region, endpoint_url=endpoint_url) as sqs:
        url = (await call("GetQueueUrl", sqs.get_queue_url, QueueName=name))["QueueUrl"]
        yield SqsQueue(sqs=sqs, url=url, dead_letter_url=await _dead_letter_url(sqs, url))
