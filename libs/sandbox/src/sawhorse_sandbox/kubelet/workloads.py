"""Runs the pods of living kubelets: bound ones start, deleted ones end after their shutdown time."""

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from sawhorse_sandbox.kubelet.api import ApiError, KubeApi
from sawhorse_sandbox.kubelet.machines import Machines
from sawhorse_sandbox.kubelet.pods import (
    Addresses,
    Pod,
    run_seconds,
    running_status,
    shutdown_seconds,
    succeeded_status,
)
from sawhorse_sandbox.kubelet.schedule import Schedule
from sawhorse_sandbox.kubelet.settings import KubeletSettings

log = structlog.get_logger(__name__)

_AGAIN = 0.1  # after a conflict: the mirror catches up in the meantime
_FIRST_ADDRESS = int(ipaddress.IPv4Address("100.64.0.1"))
_ADDRESSES = 2**22 - 2  # 100.64.0.0/10

Json = dict[str, Any]


class Workloads:
    """All pods of all nodes. A pod whose node has no living kubelet is left exactly as it is."""

    def __init__(self, api: KubeApi, settings: KubeletSettings, *, machines: Machines, pods: Mapping[str, Pod]) -> None:
        self._api = api
        self._settings = settings
        self._machines = machines
        self._pods = pods
        self._by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._since: dict[tuple[str, str], float] = {}  # (uid, stage) to when we first saw the pod in it
        self._addresses = 0
        self.work = Schedule("pods", self._look, workers=max(1, settings.parallel - settings.parallel // 4))
        self.started = 0
        self.ended = 0

    def on_pod(self, key: str, old: Pod | None, new: Pod | None) -> None:
        """Take a change of a pod."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._by_node[old.spec.node_name or ""].discard(key)
            for stage in ("start", "run", "end"):
                self._since.pop((old.metadata.uid, stage), None)
        if new is not None and new.spec.node_name:
            self._by_node[new.spec.node_name].add(key)
            if self._machines.has_kubelet(new.spec.node_name):
                self.work.add(key)

    def on_node(self, name: str) -> None:
        """Look at all pods of a node: its kubelet registered or became ready."""
        for key in self._by_node[name]:
            self.work.add(key)

    async def _look(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not pod.spec.node_name or not self._machines.has_kubelet(pod.spec.node_name):
            return None
        if pod.metadata.deletion_timestamp is not None:
            return await self._end(pod)
        if pod.has_ended():
            return None
        if pod.status.phase != "Running":
            return await self._start(pod, pod.spec.node_name)
        return await self._finish(pod)

    def _due(self, pod: Pod, stage: str, seconds: float) -> tuple[float, float]:
        """Return now, and when `seconds` have passed since the pod was first seen in this stage."""
        now = asyncio.get_running_loop().time()
        return now, self._since.setdefault((pod.metadata.uid, stage), now) + seconds

    async def _start(self, pod: Pod, node: str) -> float | None:
        if not pod.spec.host_network and not self._machines.runs_pods(node):
            return None  # the node's readiness brings it up again
        now, due = self._due(pod, "start", self._settings.pod_start_delay)
        if now < due:
            return due
        host = self._machines.address(node)
        addresses = Addresses(pod=host if pod.spec.host_network else self._next_address(), host=host)
        if not await self._patch_status(pod, running_status(pod, addresses, now=_stamp())):
            return now + _AGAIN
        self.started += 1
        return None

    async def _finish(self, pod: Pod) -> float | None:
        seconds = run_seconds(pod)
        if seconds is None:
            return None
        now, due = self._due(pod, "run", seconds)
        if now < due:
            return due
        return None if await self._patch_status(pod, succeeded_status(pod, now=_stamp())) else now + _AGAIN

    async def _end(self, pod: Pod) -> float | None:
        now, due = self._due(pod, "end", shutdown_seconds(pod, self._settings.shutdown_time))
        if now < due:
            return due
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        }
        try:
            await self._api.request("DELETE", pod.path, body)
        except ApiError as err:
            if err.status not in (404, 409):  # gone already, or another pod of that name
                raise
        self.ended += 1
        return None

    async def _patch_status(self, pod: Pod, status: Json) -> bool:
        """Write onto exactly the pod that was looked at; False when it has changed since."""
        meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        try:
            await self._api.patch(f"{pod.path}/status", {"metadata": meta, "status": status})
        except ApiError as err:
            if err.status == 409:
                return False
            if err.status != 404:
                raise
        return True

    def _next_address(self) -> str:
        self._addresses = self._addresses % _ADDRESSES + 1
        return str(ipaddress.IPv4Address(_FIRST_ADDRESS + self._addresses - 1))


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
