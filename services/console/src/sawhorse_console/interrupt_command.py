"""`sawhorse interrupt NODE`: a game day. Puts a message on the interruption queue as EC2 would send it.

The node is only looked up; what happens to it is up to the interruption service that reads the queue.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.errors import describe

DONE, NO, WRONG_USE, UNREACHABLE = 0, 1, 2, 3

LOOKUP_SECONDS = 20.0
SEND_SECONDS = 20.0
ACCOUNT = "000000000000"  # readers of the queue do not look at it, and asking for ours needs another permission

_SPOT = "EC2 Spot Instance Interruption Warning"
_REBALANCE = "EC2 Instance Rebalance Recommendation"
_STATE_CHANGE = "EC2 Instance State-change Notification"
_RESERVATION = "EC2 Capacity Reservation Instance Interruption Warning"
_HEALTH = "AWS Health Event"

KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "spot": (_SPOT, {"instance-action": "terminate"}),
    "rebalance": (_REBALANCE, {}),
    "stopping": (_STATE_CHANGE, {"state": "stopping"}),
    "stopped": (_STATE_CHANGE, {"state": "stopped"}),
    "shutting-down": (_STATE_CHANGE, {"state": "shutting-down"}),
    "terminated": (_STATE_CHANGE, {"state": "terminated"}),
    "capacity-reservation": (_RESERVATION, {"instance-action": "terminate"}),
    "health": (_HEALTH, {}),
}
"""By the word of `--kind`: detail-type, and what the detail says besides the instance."""


def interruption_message(
    kind: str, instance_id: str, *, zone: str, region: str, now: datetime, event_id: str
) -> dict[str, Any]:
    """The event of a kind (a key of `KINDS`) about one instance, as EventBridge delivers it.

    Args:
        zone: of the instance; spot warnings name it in their resource.
        now: the time of the event, aware.
    """
    detail_type, extra = KINDS[kind]
    where = zone if kind == "spot" else f"{region}:{ACCOUNT}"
    source, resource = "aws.ec2", f"arn:aws:ec2:{where}:instance/{instance_id}"
    detail: dict[str, Any] = {"instance-id": instance_id, **extra}
    if kind == "health":
        source, resource = "aws.health", instance_id
        detail = {
            "eventArn": f"arn:aws:health:{region}::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/{event_id}",
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": format_datetime(now + timedelta(days=14), usegmt=True),
            "eventDescription": [{"language": "en_US", "latestDescription": "The host of the instance is retired."}],
            "affectedEntities": [{"entityValue": instance_id}],
        }
    return {
        "version": "0",
        "id": event_id,
        "detail-type": detail_type,
        "source": source,
        "account": ACCOUNT,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [resource],
        "detail": detail,
    }


async def run_interrupt(
    node: str,
    *,
    kind: str,
    queue: str,
    region: str,
    endpoint_url: str,
    kubeconfig: str,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Look the node up, send the message, print one line about it.

    Args:
        node: its name in Kubernetes.
        kind: a key of `KINDS`.
        queue: name of the interruption queue.
        endpoint_url: another AWS API; empty for AWS itself.
        kubeconfig: its file; empty takes `~/.kube/config`, else the pod's service account.
    Returns:
        0 sent; 1 there is no such node, or it has no EC2 instance; 2 wrong use; 3 Kubernetes or the queue could not be
        reached.
    """
    # Only this command needs these two: the others start without them.
    from sawhorse_cloud.errors import CloudError
    from sawhorse_kube.errors import KubeConfigError, KubeError, NotFoundError

    def refuse(code: int, line: str) -> int:
        stderr.write(f"interrupt: {line}\n")
        return code

    if kind not in KINDS:
        return refuse(WRONG_USE, f"--kind: {kind!r} is not known; use one of {', '.join(KINDS)}")
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            provider_id = await _provider_id(node, kubeconfig)
    except NotFoundError:
        return refuse(NO, f"node {node!r} does not exist; `kubectl get nodes` lists them")
    except KubeConfigError as err:
        return refuse(WRONG_USE, describe(err))
    except KubeError as err:
        return refuse(UNREACHABLE, describe(err))
    except TimeoutError:
        return refuse(UNREACHABLE, f"Kubernetes did not answer within {LOOKUP_SECONDS:g} s; check --kubeconfig")
    scheme, _, rest = provider_id.partition(":///")
    zone, _, instance_id = rest.partition("/")
    if scheme != "aws" or not instance_id.startswith("i-"):
        return refuse(NO, f"node {node!r} has provider ID {provider_id!r}, no EC2 instance; choose another node")
    now, event_id = SystemClock().now(), str(uuid4())
    message = interruption_message(kind, instance_id, zone=zone, region=region, now=now, event_id=event_id)
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await _send(json.dumps(message), queue, region, endpoint_url)
    except CloudError as err:
        return refuse(UNREACHABLE, f"queue {queue!r} in {region}: {describe(err)}")
    except TimeoutError:
        return refuse(UNREACHABLE, f"queue {queue!r} in {region} did not answer within {SEND_SECONDS:g} s")
    stdout.write(f"sent {KINDS[kind][0]!r} for node {node} ({instance_id}) to queue {queue}, event {event_id}\n")
    return DONE


async def _provider_id(node: str, kubeconfig: str) -> str:
    from sawhorse_kube.client import connect_kube
    from sawhorse_kube.kinds import NODE

    async with connect_kube(kubeconfig=_kubeconfig(kubeconfig)) as kube:
        found = await kube.get(NODE, node)
    return str(found.provider_id)


async def _send(body: str, queue: str, region: str, endpoint_url: str) -> None:
    from sawhorse_cloud_aws import connect_queue

    async with connect_queue(queue, region=region, endpoint_url=endpoint_url) as connected:
        await connected.send(body)


def _kubeconfig(given: str) -> Path | None:
    if given:
        return Path(given).expanduser()
    usual = Path.home() / ".kube" / "config"
    return usual if usual.exists() else None
