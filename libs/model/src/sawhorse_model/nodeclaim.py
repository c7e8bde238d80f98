"""NodeClaim, karpenter.sh/v1: one machine, asked for and then there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sawhorse_model.labels import LAUNCH_TOKEN, NODEPOOL
from sawhorse_model.meta import Condition, ObjectMeta, is_true
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.requirements import RequirementSpec
from sawhorse_model.taints import Taint

LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"
DEPENDENTS = (LAUNCHED, REGISTERED, INITIALIZED)


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim. The spec is immutable in the API; everything after `termination_grace_period` is status."""

    meta: ObjectMeta
    node_class_ref: NodeClassRef
    requirements: tuple[RequirementSpec, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: timedelta | None = None
    termination_grace_period: timedelta | None = None
    node_name: str = ""
    provider_id: str = ""
    image_id: str = ""
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @property
    def nodepool(self) -> str:
        """Name of its NodePool; empty for one made by hand."""
        return self.meta.labels.get(NODEPOOL, "")

    @property
    def launch_token(self) -> str:
        """The token of the fleet it was or will be launched with; empty before that."""
        return self.meta.annotations.get(LAUNCH_TOKEN, "")

    @property
    def instance_id(self) -> str:
        """Last part of the provider id; empty before launch."""
        return self.provider_id.rsplit("/", 1)[-1]

    @property
    def is_launched(self) -> bool:
        """Whether an instance exists for it."""
        return is_true(self.conditions, LAUNCHED)

    @property
    def is_registered(self) -> bool:
        """Whether its node has joined."""
        return is_true(self.conditions, REGISTERED)

    @property
    def is_initialized(self) -> bool:
        """Whether its node is complete."""
        return is_true(self.conditions, INITIALIZED)
