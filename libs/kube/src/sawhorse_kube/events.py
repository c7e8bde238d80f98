"""Kubernetes Events: what a person sees in `kubectl describe`. Written at most once per reason, object and while."""

import secrets
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from sawhorse_kube.api import Kube, KubeEvent
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import Kind
from sawhorse_model.manifests import format_time
from sawhorse_model.meta import ObjectMeta

log = structlog.get_logger(__name__)

NORMAL = "Normal"
WARNING = "Warning"
DEDUPE = timedelta(minutes=2)

_LONGEST = 1024  # characters; the API refuses longer messages
_REMEMBERED = 10_000


class Clock(Protocol):
    """What is needed of sawhorse_runtime.clock.Clock."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...


class EventRecorder:
    """Publishes Events and never raises: a lost Event must not stop what it tells about.

    Args:
        component: shown as the source.
    """

    def __init__(self, kube: Kube, clock: Clock, *, component: str = "karpenter") -> None:
        self._kube = kube
        self._clock = clock
        self._component = component
        self._until: OrderedDict[tuple[str, str, str], float] = OrderedDict()  # (reason, object, text) -> quiet until

    async def publish(
        self,
        kind: Kind,
        object_meta: ObjectMeta,
        *,
        type: str = NORMAL,
        reason: str,
        message: str,
        dedupe: timedelta = DEDUPE,
        key: str = "",
    ) -> None:
        """Record an Event about an object.

        Args:
            type: Normal or Warning.
            reason: a CamelCase word.
            dedupe: how long the same reason about the same object stays quiet after this.
            key: tells Events of one reason and object apart, where their texts matter one by one.
        """
        about = (reason, object_meta.uid or f"{kind.name}/{object_meta.key}", key)
        now = self._clock.monotonic()
        if self._until.get(about, 0.0) > now:
            return
        self._until[about] = now + dedupe.total_seconds()
        self._until.move_to_end(about)
        while len(self._until) > _REMEMBERED:
            self._until.popitem(last=False)
        try:
            await self._kube.record(KubeEvent(kind, object_meta, type, reason, message, self._component))
        except KubeError as err:
            self._until.pop(about, None)
            log.warning("event not recorded", kind=kind.name, object=object_meta.key, reason=reason, error=str(err))


def event_to_raw(event: KubeEvent, now: datetime) -> dict[str, Any]:
    """The Event for the API. Those about cluster-scoped objects go to `default`, where kubectl looks for them."""
    namespace = event.meta.namespace or "default"
    stamp = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{event.meta.name[:200]}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": event.kind.api_version,
            "kind": event.kind.name,
            "name": event.meta.name,
            "namespace": event.meta.namespace,
            "uid": event.meta.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message if len(event.message) <= _LONGEST else event.message[: _LONGEST - 1] + "…",
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
