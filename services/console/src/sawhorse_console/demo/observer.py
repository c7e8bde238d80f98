"""Looks at the world as a user would: through the Kubernetes API, the catalogue's gRPC and the sandbox's own list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from sawhorse_console.demo.manifests import NAMESPACE, WORKLOADS
from sawhorse_console.demo.report import NodeRow
from sawhorse_kube.api import Kube
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_proto.catalog.v1 import catalog_pb2, catalog_pb2_grpc
from sawhorse_runtime.rpc import call

ENDED = frozenset({"terminated", "shutting-down"})


@dataclass(frozen=True, slots=True)
class Look:
    """One look. `pods` are the demo's own."""

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    claims: Sequence[NodeClaim]

    @property
    def running(self) -> int:
        """Pods that run, are ready and are not on their way out."""
        return sum(1 for p in self.pods if p.phase == "Running" and p.ready and not p.meta.is_deleting)

    def node(self, name: str) -> Node | None:
        """A node by name."""
        return next((n for n in self.nodes if n.meta.name == name), None)

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The claim of a node, by provider id."""
        return next((c for c in self.claims if c.provider_id and c.provider_id == node.provider_id), None)


class Observer:
    """Reads; changes nothing."""

    def __init__(self, *, kube: Kube, pricing: grpc.aio.Channel) -> None:
        self._kube = kube
        self._catalog = catalog_pb2_grpc.CatalogServiceStub(pricing)
        self._prices: dict[tuple[str, str, str], float] = {}
        self.instance_types = 0

    async def load_prices(self) -> None:
        """Read the whole catalogue once."""
        answer = await call(
            self._catalog.ListInstanceTypes, catalog_pb2.ListInstanceTypesRequest(), 20.0, service="pricing"
        )
        self.instance_types = len(answer.instance_types)
        self._prices = {
            (kind.name, offering.zone, offering.capacity_type): offering.price
            for kind in answer.instance_types
            for offering in kind.offerings
        }

    async def look(self) -> Look:
        """Pods, nodes and claims now."""
        pods = (await self._kube.list(POD, namespace=NAMESPACE)).objects
        nodes = (await self._kube.list(NODE)).objects
        claims = (await self._kube.list(NODECLAIM)).objects
        own = [p for p in pods if p.meta.labels.get("app") in WORKLOADS]
        return Look(own, nodes, claims)

    def price(self, labels: Mapping[str, str]) -> float:
        """Hourly price of a node with these labels; 0 when the catalogue has none."""
        key = (labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ""))
        return self._prices.get(key, 0.0)

    def rows(self, look: Look) -> list[NodeRow]:
        """The nodes with type, price and how many of the demo's pods they hold, cheapest type name first."""
        rows = []
        for node in sorted(look.nodes, key=lambda n: (n.meta.labels.get(INSTANCE_TYPE, ""), n.meta.name)):
            labels = node.meta.labels
            count = sum(1 for p in look.pods if p.node_name == node.meta.name and p.is_active)
            rows.append(
                NodeRow(
                    name=node.meta.name,
                    instance_type=labels.get(INSTANCE_TYPE, ""),
                    zone=labels.get(ZONE, ""),
                    capacity_type=labels.get(CAPACITY_TYPE, ""),
                    price_per_hour=self.price(labels),
                    pods=count,
                ),
            )
        return rows
