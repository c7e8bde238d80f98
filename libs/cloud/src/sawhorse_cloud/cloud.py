"""The Cloud protocol: what the project needs from a cloud, and the data it speaks in. Knows no vendor.

Three seams, one adapter package each cloud: `Cloud` (machines and NodeClasses; the provisioner and the interruption
service), `CatalogSource` (types and prices; the pricing service) and `Queue` (notices; the interruption service).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from sawhorse_catalog.account import AccountFacts
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_cloud.errors import FailedOffering
from sawhorse_model.instances import InstanceType
from sawhorse_model.meta import Condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass


class InstanceState(StrEnum):
    """Life of an instance."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def is_gone(self) -> bool:
        """Whether it is ending or has ended for good."""
        return self in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the cloud describes it. `token` is the launch token from its tag.

    `reservation_id` is set where it runs in a reservation that it was aimed at; `partition` where it lies in one of a
    placement group.
    """

    id: str
    provider_id: str
    state: InstanceState
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str = ""
    launched: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    reservation_id: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Launched:
    """A claim's machine and what the claim learns from it: labels (single-valued), capacity, annotations."""

    instance: Instance
    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What a fleet gave: claims by name that have a machine, and the offerings that had no capacity.

    Fewer machines than claims is no error: claims missing here were not launched. `surplus` are machines that no
    claim needed; garbage collection ends them by the token.
    """

    launched: Mapping[str, Launched]
    failed: tuple[FailedOffering, ...] = ()
    surplus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedNodeClass:
    """A NodeClass looked up: the status to write (the cloud's own JSON, without conditions) and the conditions.

    `conditions` hold type, status, reason and message of every dependent of Ready; times and generation are the
    caller's. `hash` and `hash_version` are of the static part of the spec.
    """

    status: Mapping[str, object]
    conditions: tuple[Condition, ...]
    dependents: tuple[str, ...]
    hash: str
    hash_version: str


class Cloud(Protocol):
    """Machines. Every method is safe to repeat, bounded in time, and raises CloudError."""

    async def resolve_node_class(self, node_class: NodeClass) -> ResolvedNodeClass:
        """Look up what a NodeClass selects. Nothing found is a False condition, not an error."""
        ...

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: NodeClass, instance_types: Sequence[InstanceType]
    ) -> LaunchResult:
        """Launch one instance per claim, as one fleet; a repeat with the same token returns the same ones.

        After an error nothing was launched that `find_by_token` will not find, and the token may be used again: an
        answer without a machine is not remembered, and a call whose answer was lost is found again.

        Claims ask for the same (requirements, requests, labels and taints). `instance_types` are those of the
        NodeClass; the adapter filters them by the claims' requirements, keeps the cheapest 60 and orders by price.
        Instances carry the token, the pool, the NodeClass and the cluster as tags from their first moment.

        Raises:
            InsufficientCapacityError: nothing could be filled.
            NodeClassNotReadyError: subnets, images or profile not resolved.
            CloudError: any other; its `failed` lists offerings that were out of capacity on the way.
        """
        ...

    async def find_by_token(self, token: str) -> Sequence[Instance]:
        """Living instances launched with this token, in sorted order of id. Eventually consistent."""
        ...

    async def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Instances by id, freshly read. Ids that the cloud does not know are absent."""
        ...

    async def list_instances(self) -> Sequence[Instance]:
        """All living instances of this cluster that we launched."""
        ...

    async def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances. Unknown and already ending ones are no error."""
        ...

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add tags.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        ...

    async def adopt(
        self,
        claims: Sequence[NodeClaim],
        instances: Sequence[Instance],
        node_class: NodeClass | None,
        instance_types: Sequence[InstanceType],
    ) -> Mapping[str, Launched]:
        """What `launch` would have answered for these pairs (same length, already matched)."""
        ...

    async def release_node_class(self, node_class: NodeClass) -> None:
        """Delete what was made for a NodeClass (launch templates, profiles) before its finalizer goes."""
        ...

    async def collect_templates(self, in_use: Sequence[NodeClass]) -> int:
        """Delete launch templates of this cluster that no launch used for a while; returns how many.

        Also what else was made for NodeClasses and is used by none of `in_use`, nor by a living machine.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """The newest spot price of a type in a zone, per hour."""

    instance_type: str
    zone: str
    price: float


class CatalogSource(Protocol):
    """Types and prices. Every method answers completely (all pages) or raises CloudError."""

    async def fetch_instance_types(self) -> Sequence[InstanceFacts]:
        """All instance types of the region, with the zones that offer them."""
        ...

    async def fetch_zones(self) -> Mapping[str, str]:
        """Zone name → zone id."""
        ...

    async def fetch_on_demand_prices(self) -> Mapping[str, float]:
        """Type → price per hour. The currency is the region's."""
        ...

    async def fetch_spot_prices(self) -> Sequence[SpotPrice]:
        """Newest spot prices."""
        ...

    async def fetch_account(self) -> AccountFacts:
        """Capacity reservations with their free instances, and placement groups."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A queue message. `receipt` is valid for one receive; `sent` is the queue's own time of arrival."""

    id: str
    receipt: str
    body: str
    sent: datetime
    receives: int = 1


class Queue(Protocol):
    """A queue that delivers at least once."""

    async def receive(
        self, *, most: int = 10, wait_seconds: int = 20, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Long-poll for messages."""
        ...

    async def delete(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Acknowledge up to 10; returns those that were not deleted."""
        ...

    async def extend(self, message: Message, visibility_seconds: int) -> None:
        """Keep (or with 0 hand back) a message."""
        ...

    async def bury(self, message: Message, why: str) -> None:
        """Send a message to the dead-letter queue, if there is one, then delete it."""
        ...

    async def send(self, body: str) -> str:
        """Put a message on the queue (the game-day command); returns its id."""
        ...
