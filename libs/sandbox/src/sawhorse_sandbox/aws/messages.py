"""The messages that EventBridge puts on an interruption queue: their shapes, and their delivery through moto.

`envelope` and the functions over it are pure; `Courier` hands a message to the rules of the account and their queues.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, cast
from uuid import uuid4

from moto.events.models import events_backends
from moto.sqs.models import Message, SQSBackend, sqs_backends

SPOT = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
CAPACITY_RESERVATION = "EC2 Capacity Reservation Instance Interruption Warning"
HEALTH = "AWS Health Event"

KINDS = {
    "spot": SPOT,
    "rebalance": REBALANCE,
    "state-change": STATE_CHANGE,
    "capacity-reservation": CAPACITY_RESERVATION,
    "scheduled-change": HEALTH,
}


def interruption(
    kind: str, instance_id: str, *, account: str, region: str, zone: str, state: str, now: datetime
) -> dict[str, Any]:
    """Build the message of a kind (a key of `KINDS`) about one instance, as EventBridge sends it.

    Args:
        zone: where the instance is; spot warnings name it in their resource.
        state: what a state-change message reports; others ignore it.
        now: the time of the event; an aware datetime.
    """
    arn = f"arn:aws:ec2:{region}:{account}:instance/{instance_id}"
    match kind:
        case "spot":
            resource = f"arn:aws:ec2:{zone}:instance/{instance_id}"
            detail = {"instance-id": instance_id, "instance-action": "terminate"}
        case "rebalance":
            resource, detail = arn, {"instance-id": instance_id}
        case "state-change":
            resource, detail = arn, {"instance-id": instance_id, "state": state}
        case "capacity-reservation":
            resource, detail = arn, {"instance-id": instance_id, "instance-action": "terminate"}
        case "scheduled-change":
            return _health(instance_id, account=account, region=region, now=now)
        case _:
            raise ValueError(f"unknown kind {kind!r}; known are {', '.join(KINDS)}")
    return envelope("aws.ec2", KINDS[kind], [resource], detail, account=account, region=region, now=now)


def envelope(
    source: str,
    detail_type: str,
    resources: Sequence[str],
    detail: Mapping[str, Any],
    *,
    account: str,
    region: str,
    now: datetime,
) -> dict[str, Any]:
    """Wrap what happened as EventBridge does."""
    return {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": list(resources),
        "detail": dict(detail),
    }


def _health(instance_id: str, *, account: str, region: str, now: datetime) -> dict[str, Any]:
    code = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
    detail = {
        "eventArn": f"arn:aws:health:{region}::event/EC2/{code}/{uuid4().hex}",
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "startTime": format_datetime((now + timedelta(days=14)).astimezone(UTC), usegmt=True),
        "eventDescription": [{"language": "en_US", "latestDescription": "The host of the instance is to be retired."}],
        "affectedEntities": [{"entityValue": instance_id}],
    }
    return envelope("aws.health", HEALTH, [instance_id], detail, account=account, region=region, now=now)


class Courier:
    """Delivers messages in one account and region. Callers hold the server's lock."""

    def __init__(self, account: str, region: str) -> None:
        self._account = account
        self._region = region

    def deliver(self, message: Mapping[str, Any], *, straight: bool = False) -> list[str]:
        """Send a message to the queues of the rules it matches; return their names.

        moto's own delivery leaves the account out of the message, so the rules are asked and the queues filled here.

        Args:
            straight: where no rule matches, send to every queue that is not a dead-letter queue.
        """
        queues = sqs_backends[self._account][self._region]
        names = [name for name in self._targets(message) if name in queues.queues]
        if straight and not names:
            dead = {queue.dead_letter_queue.name for queue in queues.queues.values() if queue.dead_letter_queue}
            names = [name for name in queues.queues if name not in dead]
        for name in names:
            queues.send_message(name, json.dumps(message))
        return names

    def _targets(self, message: Mapping[str, Any]) -> list[str]:
        bus = events_backends[self._account][self._region].event_buses["default"]
        found: list[str] = []
        for rule in bus.rules.values():
            if rule.state == "ENABLED" and rule.event_pattern.matches_event(cast(Any, message)):
                arns = [target["Arn"].split(":") for target in rule.targets]
                found += [arn[5] for arn in arns if arn[2] == "sqs"]
        return found


def unlock_long_polls(lock: Any, now: Callable[[], float]) -> None:
    """Make moto's ReceiveMessage hold `lock` while it takes messages and let go of it while it waits for some.

    Two receivers at once break moto's book-keeping; one that waits for 20 s must not stop everything else.
    """
    take = SQSBackend.receive_message

    def receive_message(
        self: SQSBackend,
        queue_name: str,
        count: int,
        wait_seconds_timeout: int,
        visibility_timeout: int,
        message_attribute_names: list[str] | None = None,
    ) -> list[Message]:
        deadline = now() + wait_seconds_timeout
        while True:
            with lock:
                queue = self.get_queue(queue_name)
                messages = take(self, queue_name, count, 0, visibility_timeout, message_attribute_names)
            left = deadline - now()
            if messages or left <= 0:
                return messages
            # A message whose visibility runs out wakes nobody: look again twice a second.
            queue.wait_for_messages(min(0.5, left))  # type: ignore[arg-type]  # any number of seconds

    SQSBackend.receive_message = receive_message  # type: ignore[method-assign]
