"""What a kubelet does with a pod: starts it, ends it, and what it reports. Pure: objects in, next step out."""

from dataclasses import dataclass
from typing import Any

import msgspec

from sawhorse_sandbox.kubelet.reflector import Metadata

# For tests of slow and of finite workloads; seconds.
SHUTDOWN_ANNOTATION = "sandbox.sawhorse.dev/shutdown-seconds"  # how long the app takes to end, instead of the setting
RUN_ANNOTATION = "sandbox.sawhorse.dev/run-seconds"  # the pod succeeds after this long, as a Job's does

Json = dict[str, Any]


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod's spec."""

    name: str
    image: str = ""
    restart_policy: str | None = None  # of an init container: Always makes it a sidecar


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that kubelets look at."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str | None = None
    host_network: bool | None = False


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's status that kubelets build upon."""

    phase: str = "Pending"
    start_time: str | None = None
    conditions: list[Json] | None = None


class Pod(msgspec.Struct, frozen=True):
    """A pod as the fleet mirrors it."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def path(self) -> str:
        """Return the pod's address below the API server."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    def has_ended(self) -> bool:
        """Return whether its containers have all ended."""
        return self.status.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a pod runs."""

    pod: str
    host: str


def shutdown_seconds(pod: Pod, default: float) -> float:
    """Return how long the pod takes from its delete to its end: at most its grace, nothing once it has ended."""
    if pod.has_ended():
        return 0.0
    wanted = _seconds(pod, SHUTDOWN_ANNOTATION)
    grace = pod.metadata.deletion_grace_period_seconds
    needed = default if wanted is None else wanted
    return needed if grace is None else min(float(grace), needed)


def run_seconds(pod: Pod) -> float | None:
    """Return after how long the pod succeeds, None where it runs until deleted."""
    return _seconds(pod, RUN_ANNOTATION)


def _seconds(pod: Pod, annotation: str) -> float | None:
    try:
        return max(0.0, float((pod.metadata.annotations or {})[annotation]))
    except (KeyError, ValueError):
        return None


def running_status(pod: Pod, addresses: Addresses, *, now: str) -> Json:
    """Return the status of a pod whose containers all run.

    Args:
        now: RFC 3339, seconds.
    """
    running = {"running": {"startedAt": now}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    status: Json = {
        "phase": "Running",
        "startTime": pod.status.start_time or now,
        "hostIP": addresses.host,
        "hostIPs": [{"ip": addresses.host}],
        "podIP": addresses.pod,
        "podIPs": [{"ip": addresses.pod}],
        "conditions": _conditions(pod, ready=True, reason=None, now=now),
        "containerStatuses": [_container(each, running, ready=True) for each in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container(each, running if each.restart_policy == "Always" else done, ready=True)
            for each in pod.spec.init_containers
        ]
    return status


def succeeded_status(pod: Pod, *, now: str) -> Json:
    """Return the changes of status of a pod whose containers have all ended well."""
    started = pod.status.start_time or now
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}}
    return {
        "phase": "Succeeded",
        "conditions": _conditions(pod, ready=False, reason="PodCompleted", now=now),
        "containerStatuses": [_container(each, done, ready=False) for each in pod.spec.containers],
    }


def _conditions(pod: Pod, *, ready: bool, reason: str | None, now: str) -> list[Json]:
    """Return all conditions: a merge patch replaces the list, so those of others are carried along."""
    own = {
        "PodReadyToStartContainers": ready,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    before = {str(condition.get("type")): condition for condition in pod.status.conditions or ()}
    conditions = [condition for name, condition in before.items() if name not in own]
    for name, holds in own.items():
        status = "True" if holds else "False"
        old = before.get(name, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        condition = {"type": name, "status": status, "lastTransitionTime": since or now}
        conditions.append(condition | ({"reason": reason} if reason and not holds else {}))
    return conditions


def _container(container: Container, state: Json, *, ready: bool) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"sandbox/{container.image}",
        "containerID": f"containerd://sandbox-{container.name}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }
