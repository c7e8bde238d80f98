"""How a machine shows itself as a Node: labels, capacity, allocatable, status. Pure: facts in, JSON-ready dicts out."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from sawhorse_model.quantity import QuantityError, format_milli, milli, parse_quantity, whole
from sawhorse_model.taints import NO_SCHEDULE, Taint
from sawhorse_sandbox.kubelet.facts import TypeFacts, UnknownTypeError, get_type_facts
from sawhorse_sandbox.kubelet.userdata import KubeletOptions, UserDataError, parse_user_data

MIB = 2**20
GIB = 2**30
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect=NO_SCHEDULE)
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}

# A machine shows less memory than EC2 advertises, yet more than the planner's careful guess of 92.5 %.
VISIBLE_MEMORY = Fraction(94, 100)
ROOT_VOLUME = 20 * GIB
_DEFAULT_PODS = 110
_EVICTION = {"memory.available": "100Mi", "nodefs.available": "10%"}
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_DEVICE_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}

Json = dict[str, Any]


class Instance(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of the sandbox's instance list."""

    instance_id: str
    state: str  # pending, running, shutting-down, terminated, stopping, stopped
    type: str
    zone: str
    private_dns_name: str | None = None  # a terminated instance has none
    private_ip: str | None = None
    user_data: str | None = None  # base64


@dataclass(frozen=True, slots=True)
class Machine:
    """A running instance with all that its kubelet knows."""

    instance_id: str
    instance_type: str
    zone: str
    node_name: str  # the private DNS name
    address: str
    facts: TypeFacts
    options: KubeletOptions
    kubelet_version: str

    @property
    def provider_id(self) -> str:
        """Return the id that Node and NodeClaim carry."""
        return f"aws:///{self.zone}/{self.instance_id}"


class BootError(ValueError):
    """The instance will never become a node; the text says why."""


def boot(instance: Instance, kubelet_version: str) -> Machine:
    """Return the machine that an instance boots into.

    Raises:
        BootError: a type that does not exist, no address, or user data that the machine cannot start from.
    """
    if not (instance.private_dns_name and instance.private_ip):
        raise BootError("the instance has no private DNS name or address")
    try:
        machine = Machine(
            instance_id=instance.instance_id,
            instance_type=instance.type,
            zone=instance.zone,
            node_name=instance.private_dns_name,
            address=instance.private_ip,
            facts=get_type_facts(instance.type),
            options=parse_user_data(instance.user_data),
            kubelet_version=kubelet_version,
        )
        # A reservation that is not a quantity shows here, once, not at each later report.
        allocatable(machine, capacity(machine, with_devices=True))
    except (UnknownTypeError, UserDataError, QuantityError) as err:
        raise BootError(str(err)) from err
    return machine


def region_of(zone: str) -> str:
    """Return `us-east-1` for `us-east-1a`, `us-west-2` for the local zone `us-west-2-lax-1a`."""
    found = _REGION.match(zone)
    return found[0] if found else zone


def labels(machine: Machine) -> dict[str, str]:
    """Return the labels that kubelet and cloud provider set, over those of the user data."""
    arch = ARCHITECTURES.get(machine.facts.architectures[0], machine.facts.architectures[0])
    return {
        **machine.options.labels,
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": machine.node_name,
        "node.kubernetes.io/instance-type": machine.instance_type,
        "topology.kubernetes.io/zone": machine.zone,
        "topology.kubernetes.io/region": region_of(machine.zone),
    }


def capacity(machine: Machine, *, with_devices: bool) -> dict[str, int]:
    """Return cpu in millicores, memory and ephemeral-storage in bytes, others in pieces.

    Args:
        with_devices: whether the device plugins have registered.
    """
    facts, options = machine.facts, machine.options
    pods = options.max_pods if options.max_pods is not None else _DEFAULT_PODS
    if options.pods_per_core:
        pods = min(pods, options.pods_per_core * facts.vcpus)
    # Kubelets count memory in KiB.
    memory = int(facts.memory_mib * 1024 * VISIBLE_MEMORY) * 1024
    local = facts.instance_storage.total_gb * 10**9 if facts.instance_storage and options.uses_instance_store else 0
    resources = {
        "cpu": facts.vcpus * 1000,
        "memory": memory,
        "pods": pods,
        "ephemeral-storage": max(ROOT_VOLUME, local),
    }
    return resources | (devices(facts) if with_devices else {})


def devices(facts: TypeFacts) -> dict[str, int]:
    """Return the extended resources that device plugins announce for a type."""
    found: dict[str, int] = {}
    for gpu in facts.gpus:
        name = _DEVICE_RESOURCES.get(gpu.manufacturer)
        if name and gpu.count:
            found[name] = found.get(name, 0) + gpu.count
    if neurons := sum(each.count for each in facts.neuron):
        found["aws.amazon.com/neuron"] = neurons
        found["aws.amazon.com/neuroncore"] = sum(each.count * each.cores_per_device for each in facts.neuron)
    return found


def allocatable(machine: Machine, total: Mapping[str, int]) -> dict[str, int]:
    """Return capacity less what is reserved for kubelet, system and eviction; never below zero.

    Raises:
        QuantityError: a reservation in the user data is not a quantity; the real kubelet would not start.
    """
    options = machine.options
    interfaces_allow = 0 if options.reserves_by_max_pods else machine.facts.eni_limit()
    countable_pods = interfaces_allow or total["pods"]
    kube = {
        "cpu": f"{reserved_cpu(total['cpu'])}m",
        "memory": f"{11 * countable_pods + 255}Mi",
        "ephemeral-storage": "1Gi",
        **options.kube_reserved,
    }
    eviction = {**_EVICTION, **options.eviction_hard}
    held = {
        "cpu": milli(kube["cpu"]) + milli(options.system_reserved.get("cpu", "0")),
        "memory": whole(kube["memory"])
        + whole(options.system_reserved.get("memory", "0"))
        + _threshold(eviction["memory.available"], total["memory"]),
        "ephemeral-storage": whole(kube["ephemeral-storage"])
        + whole(options.system_reserved.get("ephemeral-storage", "0"))
        + _threshold(eviction["nodefs.available"], total["ephemeral-storage"]),
    }
    return {name: max(0, amount - held.get(name, 0)) for name, amount in total.items()}


def reserved_cpu(cpu: int) -> int:
    """Return the millicores kept for the kubelet: 6 % of the first core, 1 %, 0.5 % to the fourth, 0.25 % above."""
    brackets = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, cpu, 25))  # per ten thousand
    return sum((min(cpu, upper) - lower) * share // 10_000 for lower, upper, share in brackets if cpu > lower)


def _threshold(text: str, total: int) -> int:
    if not text.endswith("%"):
        return whole(text)
    share = parse_quantity(text[:-1])
    # 100 % switches the threshold off.
    return 0 if share >= 100 else math.ceil(total * share / 100)


def quantities(resources: Mapping[str, int]) -> dict[str, str]:
    """Write resources as the kubelet does: cpu short, memory in Ki where it divides, others as bare numbers."""
    written = {name: str(amount) for name, amount in resources.items()}
    written["cpu"] = format_milli(resources["cpu"])
    for name in ("memory", "ephemeral-storage"):
        if resources[name] % 1024 == 0:
            written[name] = f"{resources[name] // 1024}Ki"
    return written


def build_node(machine: Machine, *, now: str) -> Json:
    """Return the Node as its kubelet registers it: not Ready, with the taints of the user data.

    Args:
        now: RFC 3339, seconds.
    """
    taints = (*machine.options.taints, NOT_READY)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.node_name, "labels": labels(machine)},
        "spec": {
            "providerID": machine.provider_id,
            "taints": [_taint_json(taint) for taint in taints],
        },
        "status": build_status(machine, ready=False, with_devices=False, now=now, present=()),
    }


def build_status(machine: Machine, *, ready: bool, with_devices: bool, now: str, present: Sequence[Json]) -> Json:
    """Return the whole status that a kubelet reports.

    Args:
        present: the conditions the Node has; those that are not the kubelet's own stay, and a condition that does not
            change keeps its transition time.
    """
    total = capacity(machine, with_devices=with_devices)
    own = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if ready
        else ("Ready", "False", "KubeletNotReady", "container runtime network not ready"),
    )
    before = {str(condition.get("type")): condition for condition in present}
    conditions = [condition for name, condition in before.items() if name not in {each[0] for each in own}]
    for kind, state, reason, message in own:
        old = before.get(kind, {})
        since = old.get("lastTransitionTime") if old.get("status") == state else None
        conditions.append(
            {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since or now,
            }
        )
    return {
        "capacity": quantities(total),
        "allocatable": quantities(allocatable(machine, total)),
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "InternalDNS", "address": machine.node_name},
            {"type": "Hostname", "address": machine.node_name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": labels(machine)["kubernetes.io/arch"],
            "bootID": machine.instance_id,
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.0-sandbox",
            "kubeProxyVersion": "",
            "kubeletVersion": machine.kubelet_version,
            "machineID": machine.instance_id,
            "operatingSystem": "linux",
            "osImage": "Sandbox (no machine behind it)",
            "systemUUID": machine.instance_id,
        },
    }


def _taint_json(taint: Taint) -> Json:
    written = {"key": taint.key, "effect": taint.effect}
    return written | ({"value": taint.value} if taint.value else {})
