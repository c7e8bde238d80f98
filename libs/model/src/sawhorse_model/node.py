"""Nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sawhorse_model.labels import INITIALIZED, REGISTERED
from sawhorse_model.meta import Condition, ObjectMeta, is_true
from sawhorse_model.taints import Taint


@dataclass(frozen=True, slots=True)
class Node:
    """A node. Resource maps: cpu in millicores, the rest in base units."""

    meta: ObjectMeta
    provider_id: str = ""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    internal_ip: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet says Ready."""
        return is_true(self.conditions, "Ready")

    @property
    def is_registered(self) -> bool:
        """Whether the provisioner has taken it in."""
        return self.meta.labels.get(REGISTERED) == "true"

    @property
    def is_initialized(self) -> bool:
        """Whether the provisioner has seen it complete."""
        return self.meta.labels.get(INITIALIZED) == "true"
