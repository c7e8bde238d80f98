"""The living kubelets: each registers its Node, becomes Ready, renews its Lease, and falls silent with its machine."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from sawhorse_sandbox.kubelet.api import ApiError, KubeApi
from sawhorse_sandbox.kubelet.node import NOT_READY, BootError, Instance, Machine, boot, build_node, build_status
from sawhorse_sandbox.kubelet.reflector import Metadata
from sawhorse_sandbox.kubelet.schedule import Schedule
from sawhorse_sandbox.kubelet.settings import KubeletSettings

log = structlog.get_logger(__name__)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# A real cluster's node controller lifts the not-ready taint within milliseconds; the embedded one has none, so the
# kubelet does it when the taint is still there after this long.
_TAINT_PATIENCE = 0.3
_AGAIN = 0.2  # after a conflict: the mirror catches up in the meantime

Json = dict[str, Any]


class NodeSpec(msgspec.Struct, frozen=True, rename={"provider_id": "providerID"}):
    """The part of a Node's spec that kubelets look at."""

    provider_id: str = ""
    taints: list[Json] | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """The part of a Node's status that kubelets build upon."""

    conditions: list[Json] | None = None


class Node(msgspec.Struct, frozen=True):
    """A Node as the fleet mirrors it."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def is_ready(self) -> bool:
        """Return whether the condition Ready is True."""
        return any(c.get("type") == "Ready" and c.get("status") == "True" for c in self.status.conditions or ())

    def has_not_ready_taint(self) -> bool:
        """Return whether it carries the taint that it registered with."""
        return any(map(is_not_ready_taint, self.spec.taints or ()))


def is_not_ready_taint(taint: Json) -> bool:
    """Return whether this is the not-ready taint that keeps pods off; the one that evicts is the node controller's."""
    return taint.get("key") == NOT_READY.key and taint.get("effect") == NOT_READY.effect


@dataclass(slots=True)
class Kubelet:
    """One kubelet's memory. Times are those of the loop."""

    instance: Instance
    machine: Machine | None = None  # None while booting, and for ever where it cannot boot
    node_uid: str = ""  # set once registered
    ready_at: float = 0.0
    lease_at: float = 0.0
    status_at: float = 0.0
    reported: tuple[bool, bool] | None = None  # Ready, devices there
    has_lease: bool = False


@dataclass(slots=True)
class Counts:
    """What happened since the start."""

    joined: int = 0
    ready: int = 0
    broken: int = 0  # instances that cannot boot
    silent: int = 0  # kubelets that ended with their machine


class Machines:
    """All kubelets. `on_change(node name)` is called when a node can run pods of the host's network, then any pod."""

    def __init__(
        self,
        api: KubeApi,
        settings: KubeletSettings,
        *,
        kubelet_version: str,
        nodes: Mapping[str, Node],
        on_change: Callable[[str], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._version = kubelet_version
        self._nodes = nodes
        self._on_change = on_change
        self._kubelets: dict[str, Kubelet] = {}  # by instance id
        self._by_node: dict[str, Kubelet] = {}
        self.work = Schedule("machines", self._look, workers=max(1, settings.parallel // 4))
        self.counts = Counts()

    def apply(self, instances: Mapping[str, Instance]) -> None:
        """Take a new list: running instances get a kubelet, those that no longer run lose theirs at once."""
        now = asyncio.get_running_loop().time()
        for gone in [i for i in self._kubelets if i not in instances or instances[i].state != "running"]:
            kubelet = self._kubelets.pop(gone)
            if kubelet.machine is not None and self._by_node.get(kubelet.machine.node_name) is kubelet:
                del self._by_node[kubelet.machine.node_name]
                self.counts.silent += 1
                log.info("kubelet fell silent", instance_id=gone, node=kubelet.machine.node_name)
        for instance_id, instance in instances.items():
            if instance.state == "running" and instance_id not in self._kubelets:
                self._kubelets[instance_id] = Kubelet(instance)
                node = self._nodes.get(instance.private_dns_name or "")
                # Its Node is there when the fleet itself was started again: that machine booted long ago.
                booted = node is not None and node.spec.provider_id.endswith(f"/{instance_id}")
                self.work.add(instance_id, now if booted else now + self._settings.join_delay)

    def on_node(self, _key: str, _old: Node | None, new: Node | None) -> None:
        """Take a change of a Node: a ready one that keeps its first taint is looked at soon."""
        if new is not None and new.has_not_ready_taint():
            kubelet = self._by_node.get(new.metadata.name)
            if kubelet is not None and kubelet.reported is not None and kubelet.reported[0]:
                now = asyncio.get_running_loop().time()
                self.work.add(kubelet.instance.instance_id, max(now, kubelet.ready_at) + _TAINT_PATIENCE)

    def has_kubelet(self, node_name: str) -> bool:
        """Return whether a living, registered kubelet answers for the node."""
        return node_name in self._by_node

    def runs_pods(self, node_name: str) -> bool:
        """Return whether the node's network is up, so that pods other than those on the host's network can start."""
        kubelet = self._by_node.get(node_name)
        return kubelet is not None and kubelet.reported is not None and kubelet.reported[0]

    def address(self, node_name: str) -> str:
        """Return the node's address; the node must have a kubelet."""
        machine = self._by_node[node_name].machine
        assert machine is not None, "registered kubelets have booted"
        return machine.address

    async def _look(self, instance_id: str) -> float | None:
        kubelet = self._kubelets.get(instance_id)
        if kubelet is None:
            return None
        machine = kubelet.machine or self._boot(kubelet)
        if machine is None:
            return None
        now = asyncio.get_running_loop().time()
        if not kubelet.node_uid and not await self._join(kubelet, machine, now):
            return now + 1.0
        if self._kubelets.get(instance_id) is not kubelet:
            return None  # its machine ended meanwhile
        if self._by_node.get(machine.node_name) is not kubelet:
            self._by_node[machine.node_name] = kubelet
            self._on_change(machine.node_name)
        if now >= kubelet.lease_at:
            await self._heartbeat(kubelet, machine, now)
        if self._kubelets.get(instance_id) is not kubelet:
            return None
        await self._report(kubelet, machine, now)
        if self._kubelets.get(instance_id) is not kubelet:
            return None
        taint_due = await self._lift_taint(kubelet, machine, now)
        dues = [kubelet.lease_at, kubelet.status_at, taint_due]
        if now < kubelet.ready_at:
            dues.append(kubelet.ready_at)
        elif now < kubelet.ready_at + self._settings.device_delay:
            dues.append(kubelet.ready_at + self._settings.device_delay)
        return min(due for due in dues if due is not None)

    def _boot(self, kubelet: Kubelet) -> Machine | None:
        try:
            kubelet.machine = boot(kubelet.instance, self._version)
        except BootError as err:
            self.counts.broken += 1
            log.error("instance cannot become a node", instance_id=kubelet.instance.instance_id, error=str(err))
        return kubelet.machine

    async def _join(self, kubelet: Kubelet, machine: Machine, now: float) -> bool:
        """Register the Node, or adopt one that is there for the same instance; False while another holds the name."""
        try:
            text = await self._api.request("POST", "/api/v1/nodes", build_node(machine, now=_stamp()))
        except ApiError as err:
            if err.status != 409:
                raise
            text = await self._api.request("GET", f"/api/v1/nodes/{machine.node_name}")
        node = msgspec.json.decode(text, type=Node)
        if node.spec.provider_id != machine.provider_id:
            log.info("node name is still held", node=machine.node_name, holder=node.spec.provider_id)
            return False
        kubelet.node_uid = node.metadata.uid
        kubelet.ready_at = now if node.is_ready() else now + self._settings.ready_delay
        kubelet.lease_at = now
        if node.status.conditions and not node.is_ready():
            kubelet.reported = (False, False)  # registering reported it already
            kubelet.status_at = now + self._settings.status_period
        self.counts.joined += 1
        log.info("node joined", node=machine.node_name, instance_id=machine.instance_id, zone=machine.zone)
        return True

    async def _heartbeat(self, kubelet: Kubelet, machine: Machine, now: float) -> None:
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": machine.node_name,
                "namespace": "kube-node-lease",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": machine.node_name, "uid": kubelet.node_uid}
                ],
            },
            "spec": {
                "holderIdentity": machine.node_name,
                "leaseDurationSeconds": 40,
                "renewTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            },
        }
        await self._put_lease(kubelet, f"{LEASES}/{machine.node_name}", body)
        kubelet.lease_at = now + self._settings.lease_period
        node = self._nodes.get(machine.node_name)
        # Others may have marked it Unknown while we could not be heard.
        if kubelet.reported == (True, True) and node is not None and not node.is_ready():
            kubelet.status_at = now

    async def _put_lease(self, kubelet: Kubelet, path: str, body: Json) -> None:
        if kubelet.has_lease:
            try:
                await self._api.patch(path, {"spec": body["spec"]})
                return
            except ApiError as err:
                if err.status != 404:
                    raise
                kubelet.has_lease = False  # somebody removed it
        try:
            await self._api.request("POST", LEASES, body)
        except ApiError as err:
            if err.status != 409:
                raise
            await self._api.patch(path, {"metadata": body["metadata"], "spec": body["spec"]})
        kubelet.has_lease = True

    async def _report(self, kubelet: Kubelet, machine: Machine, now: float) -> None:
        """Patch the Node's status where it is due or differs from the last report."""
        ready = now >= kubelet.ready_at
        state = (ready, ready and now >= kubelet.ready_at + self._settings.device_delay)
        if state == kubelet.reported and now < kubelet.status_at:
            return
        node = self._nodes.get(machine.node_name)
        present = (node.status.conditions if node is not None else None) or ()
        status = build_status(machine, ready=state[0], with_devices=state[1], now=_stamp(), present=present)
        try:
            await self._api.patch(f"/api/v1/nodes/{machine.node_name}/status", {"status": status})
        except ApiError as err:
            if err.status != 404:
                raise
            # Somebody deleted the Node. A kubelet does not register twice; it goes on in vain until its machine ends.
            log.debug("node of a living kubelet is gone", node=machine.node_name)
        kubelet.status_at = now + self._settings.status_period
        was_ready = kubelet.reported is not None and kubelet.reported[0]
        kubelet.reported = state
        if ready and not was_ready:
            self.counts.ready += 1
            self._on_change(machine.node_name)

    async def _lift_taint(self, kubelet: Kubelet, machine: Machine, now: float) -> float | None:
        """Remove the not-ready taint where no node controller does; returns when to look again."""
        node = self._nodes.get(machine.node_name)
        if node is None or kubelet.reported is None or not kubelet.reported[0] or not node.has_not_ready_taint():
            return None
        if now < kubelet.ready_at + _TAINT_PATIENCE:
            return kubelet.ready_at + _TAINT_PATIENCE
        rest = [taint for taint in node.spec.taints or () if not is_not_ready_taint(taint)]
        body = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": rest or None}}
        try:
            await self._api.patch(f"/api/v1/nodes/{machine.node_name}", body)
        except ApiError as err:
            if err.status not in (404, 409):
                raise
        return now + _AGAIN


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
