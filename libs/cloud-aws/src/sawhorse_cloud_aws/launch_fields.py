"""The fields of an EC2NodeClass that shape a launch template and that the model leaves as typed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sawhorse_catalog.aws.node_class import InterfaceRequest, class_view
from sawhorse_model.aws import EFA, EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_model.manifests.fields import ManifestError, mapping, parse_duration
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.resources import CPU

# Name in the spec → name in EC2's request, and the bounds that EC2 sets, in seconds.
_TRACKING = {
    "tcpEstablishedTimeout": ("TcpEstablishedTimeout", 60, 432000),
    "udpStreamTimeout": ("UdpStreamTimeout", 60, 180),
    "udpTimeout": ("UdpTimeout", 30, 60),
}


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """`spec.cpuOptions` for types with equal defaults. Both counts are 0 where neither is asked for."""

    nested_virtualization: str = ""
    cores: int = 0
    threads_per_core: int = 0

    def to_raw(self) -> dict[str, Any]:
        """CpuOptions of the template; empty means no block at all."""
        raw: dict[str, Any] = {}
        if self.cores and self.threads_per_core:
            raw |= {"CoreCount": self.cores, "ThreadsPerCore": self.threads_per_core}
        if self.nested_virtualization:
            raw["NestedVirtualization"] = self.nested_virtualization
        return raw


@dataclass(frozen=True, slots=True)
class InterfacePlan:
    """The network interfaces of a template: those of the spec, `efa` ones of type efa, or with neither a single one."""

    requests: tuple[InterfaceRequest, ...] = ()
    efa: int = 0
    prefixes: int = 0
    tracking: Mapping[str, int] = field(default_factory=dict)


def cpu_request(node_class: EC2NodeClass, kind: InstanceType) -> CpuRequest:
    """What to ask of the processor of a type.

    EC2 wants both counts or none. The one that the NodeClass leaves out is the type's own, which follows from its
    capacity: the catalogue counts cores × threads.
    """
    view = class_view(node_class)
    cpus = kind.capacity.get(CPU, 0) // 1000
    cores, threads = view.core_count or 0, view.threads_per_core or 0
    if cores and not threads:
        threads = max(cpus // cores, 1)
    elif threads and not cores:
        cores = max(cpus // threads, 1)
    return CpuRequest(node_class.nested_virtualization, cores, threads)


def interface_plan(node_class: EC2NodeClass, claim: NodeClaim, kind: InstanceType) -> InterfacePlan:
    """The interfaces that a machine of the type starts with."""
    view = class_view(node_class)
    efa = 0
    if not view.interfaces and claim.requests.get(EFA, 0) > 0:
        efa = kind.capacity.get(EFA, 0)
    return InterfacePlan(view.interfaces, efa, view.prefix_count, connection_tracking(node_class))


def has_efa(claim: NodeClaim, node_class: EC2NodeClass | None) -> bool:
    """Whether the claim's machine starts with interfaces for EFA."""
    view = class_view(node_class)
    return view.efa_only > 0 if view.interfaces else claim.requests.get(EFA, 0) > 0


def connection_tracking(node_class: EC2NodeClass) -> dict[str, int]:
    """ConnectionTrackingSpecification; empty when the spec sets no time-out.

    Raises:
        ManifestError: a time-out is no number of seconds within EC2's bounds.
    """
    raw = mapping(node_class.node_class.spec, "connectionTracking", "spec")
    found: dict[str, int] = {}
    for key, (name, low, high) in _TRACKING.items():
        value = raw.get(key)
        if value is None:
            continue
        path = f"spec.connectionTracking.{key}"
        seconds = _seconds(value, path)
        if not low <= seconds <= high:
            raise ManifestError(path, f"{value} is outside {low} to {high} seconds")
        found[name] = seconds
    return found


def _seconds(value: Any, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        duration = parse_duration(value, path)
        if duration % timedelta(seconds=1) == timedelta(0):
            return int(duration.total_seconds())
    raise ManifestError(path, f"{value!r} is not a number of seconds or a duration such as 350s")
