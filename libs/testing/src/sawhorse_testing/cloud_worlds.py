"""Worlds for the contract suite of clouds, and builders for the claims and NodeClasses that launches need.

A world is a cloud with scripted surroundings: what is out of stock, which call fails next. `FakeWorld` stands over
`FakeCloud`; the adapter's own tests bring one over their test double.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

from sawhorse_cloud.cloud import Cloud
from sawhorse_cloud.errors import CloudError, CloudUnavailableError, ThrottledError, UnauthorizedError
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, NODEPOOL
from sawhorse_model.meta import Condition, ObjectMeta
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_model.resources import parse_resources
from sawhorse_model.taints import Taint
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud import FakeCloud

# What a call may be made to fail with, and the error of ours that must come of it.
FAULTS: Mapping[str, type[CloudError]] = {
    "throttled": ThrottledError,
    "unauthorized": UnauthorizedError,
    "unavailable": CloudUnavailableError,
}


class CloudWorld(Protocol):
    """What the contract suite needs around a cloud. Each test gets a world in which nothing is scripted."""

    cloud: Cloud
    node_class: NodeClass  # resolved and ready
    hopeless: NodeClass  # selects nothing that exists
    instance_types: Sequence[InstanceType]  # at least two, on demand and as spot, under `node_class`

    async def sell_out(self, *, capacity_type: str = "*", instance_type: str = "*", zone: str = "*") -> None:
        """These offerings have no capacity from now on."""
        ...

    async def restock(self) -> None:
        """Everything has capacity again."""
        ...

    async def break_next(self, method: str, fault: str) -> None:
        """The next call of a method of the cloud fails; `fault` is a key of FAULTS."""
        ...

    async def ended(self, instance_id: str) -> bool:
        """Wait, within bounds, until an instance that was told to end has ended."""
        ...

    async def stranger(self) -> str:
        """An instance id that the cloud does not know; the next call with it alone is about that id."""
        ...


def a_claim(
    name: str = "default-1",
    *,
    nodepool: str = "default",
    requirements: Sequence[RequirementSpec] = (),
    capacity_types: Sequence[str] = ("on-demand", "spot"),
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    startup_taints: Sequence[Taint] = (),
    node_class: NodeClass | None = None,
) -> NodeClaim:
    """A claim that nearly every type serves; say only what the test is about."""
    kind = RequirementSpec(CAPACITY_TYPE, Operator.IN, tuple(capacity_types))
    ref = (
        NodeClassRef(node_class.group, node_class.kind, node_class.meta.name)
        if node_class
        else NodeClassRef(aws.GROUP, aws.KIND, "default")
    )
    return NodeClaim(
        meta=ObjectMeta(
            name=name, uid=f"uid-{name}", labels={NODEPOOL: nodepool, **(labels or {})}, annotations=annotations or {}
        ),
        node_class_ref=ref,
        requirements=(kind, *requirements),
        requests=parse_resources(requests or {"cpu": "1", "memory": "1Gi", "pods": "5"}),
        taints=tuple(taints),
        startup_taints=tuple(startup_taints),
    )


def an_ec2_node_class(
    name: str = "default",
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    ready: bool = True,
    uid: str = "uid-class",
) -> NodeClass:
    """An EC2NodeClass of alias al2023 with two subnets, one group and an image for each architecture."""
    chosen = {
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": "node-role",
        **(spec or {}),
    }
    resolved = {
        "subnets": [
            {"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az1"},
            {"id": "subnet-b", "zone": "us-west-2b", "zoneID": "usw2-az2"},
        ],
        "securityGroups": [{"id": "sg-1", "name": "nodes"}],
        "amis": [an_ami("ami-arm", "arm64"), an_ami("ami-amd", "amd64")],
        "instanceProfile": "demo_1",
        **(status or {}),
    }
    word = "True" if ready else "False"
    return NodeClass(
        meta=ObjectMeta(name=name, uid=uid, generation=1),
        group=aws.GROUP,
        kind=aws.KIND,
        spec={k: v for k, v in chosen.items() if v is not None},
        status={k: v for k, v in resolved.items() if v is not None},
        conditions=(Condition("Ready", word, "Ready", observed_generation=1),),
    )


def an_ami(image_id: str, arch: str) -> dict[str, Any]:
    """An image in a NodeClass's status."""
    return {
        "id": image_id,
        "name": f"image {image_id}",
        "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": [arch]}],
    }


def made_ready(node_class: NodeClass, status: Mapping[str, Any]) -> NodeClass:
    """The NodeClass as it is once its look-ups are written and found good."""
    generation = node_class.meta.generation
    ready = Condition("Ready", "True", "Ready", observed_generation=generation)
    return replace(node_class, status=dict(status), conditions=(ready,))


@dataclass
class FakeWorld:
    """A world over FakeCloud."""

    cloud: FakeCloud = field(default_factory=FakeCloud)
    node_class: NodeClass = field(default_factory=lambda: an_ec2_node_class())
    hopeless: NodeClass = field(default_factory=lambda: an_ec2_node_class("hopeless", ready=False))
    instance_types: Sequence[InstanceType] = field(
        default_factory=lambda: (
            an_instance_type("m5.large", price=0.10, spot_price=0.04),
            an_instance_type("m5.xlarge", price=0.20, spot_price=0.08),
        )
    )

    def __post_init__(self) -> None:
        self.cloud.unresolved[self.hopeless.meta.name] = ("SubnetsReady", "SubnetsNotFound", "no subnet matches")

    async def sell_out(self, *, capacity_type: str = "*", instance_type: str = "*", zone: str = "*") -> None:
        """See CloudWorld."""
        for kind in self.instance_types:
            for offering in kind.offerings:
                key = (offering.capacity_type.value, kind.name, offering.zone)
                asked = (capacity_type, instance_type, zone)
                if all(a in ("*", k) for a, k in zip(asked, key, strict=True)):
                    self.cloud.out_of_stock.add(key)

    async def restock(self) -> None:
        """See CloudWorld."""
        self.cloud.out_of_stock.clear()

    async def break_next(self, method: str, fault: str) -> None:
        """See CloudWorld."""
        self.cloud.errors.setdefault(method, []).append(FAULTS[fault](f"{method}: {fault}"))

    async def ended(self, instance_id: str) -> bool:
        """See CloudWorld."""
        found = (await self.cloud.describe([instance_id])).get(instance_id)
        return found is None or found.state.is_gone

    async def stranger(self) -> str:
        """See CloudWorld."""
        return "i-0123456789abcdef0"


_numbers = count(1)


def a_token() -> str:
    """A launch token that no other launch of this process has."""
    return f"token-{next(_numbers):05d}"
