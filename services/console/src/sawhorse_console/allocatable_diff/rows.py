"""Nodes and the catalogue's figures to rows, one a node, sorted by instance type. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.aws import NODECLASS_LABEL, EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import INSTANCE_TYPE, NODEPOOL
from sawhorse_model.node import Node
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources

MIB = 2**20


class UnknownTypeError(Exception):
    """A node runs on a type that the catalogue does not have. The text is one line."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Memory and ephemeral storage in whole MiB, cpu in millicores."""

    memory_mib: int
    cpu_millis: int
    storage_mib: int

    @classmethod
    def of(cls, resources: Resources) -> "Amounts":
        """Read them; what is absent is 0, parts of a MiB are dropped."""
        return cls(resources.get(MEMORY, 0) // MIB, resources.get(CPU, 0), resources.get(EPHEMERAL_STORAGE, 0) // MIB)

    @property
    def cells(self) -> tuple[int, int, int]:
        """In the order of the columns."""
        return self.memory_mib, self.cpu_millis, self.storage_mib


@dataclass(frozen=True, slots=True)
class Row:
    """One node."""

    node: str
    instance_type: str
    expected_capacity: Amounts
    expected_allocatable: Amounts
    actual_capacity: Amounts
    actual_allocatable: Amounts


def is_ours(node: Node) -> bool:
    """Nodes that a NodePool made, and that have reported their size."""
    return bool(node.meta.labels.get(NODEPOOL)) and node.allocatable.get(MEMORY, 0) > 0


def make_rows(
    nodes: Iterable[Node],
    classes: Mapping[str, EC2NodeClass],
    facts: Iterable[InstanceFacts],
    *,
    overhead_percent: float,
    reserved_enis: int = 0,
) -> list[Row]:
    """The rows of our nodes, sorted by type, then by name.

    Args:
        classes: by name. A node whose NodeClass is not among them is compared with a NodeClass of defaults.
        overhead_percent: share of memory that machine and kernel keep, as a fraction.
    Raises:
        UnknownTypeError: a node's type is not among the facts.
    """
    known = {fact.name: fact for fact in facts}
    settings = ResolveSettings(vm_memory_overhead_percent=overhead_percent, reserved_enis=reserved_enis)
    expected: dict[tuple[str, str], InstanceType] = {}
    rows = []
    for node in sorted(filter(is_ours, nodes), key=lambda n: (n.meta.labels.get(INSTANCE_TYPE, ""), n.meta.name)):
        name, class_name = node.meta.labels.get(INSTANCE_TYPE, ""), node.meta.labels.get(NODECLASS_LABEL, "")
        if name not in known:
            shown = f"instance type {name!r}" if name else f"no label {INSTANCE_TYPE}"
            raise UnknownTypeError(f"node {node.meta.name}: {shown}, which the catalogue does not have")
        key = (name, class_name)
        if key not in expected:
            expected[key] = _expected(known[name], classes.get(class_name), settings)
        kind = expected[key]
        rows.append(
            Row(
                node=node.meta.name,
                instance_type=name,
                expected_capacity=Amounts.of(kind.capacity),
                expected_allocatable=Amounts.of(kind.allocatable),
                actual_capacity=Amounts.of(node.capacity),
                actual_allocatable=Amounts.of(node.allocatable),
            )
        )
    return rows


def _expected(fact: InstanceFacts, node_class: EC2NodeClass | None, settings: ResolveSettings) -> InstanceType:
    found: Sequence[InstanceType] = resolve(
        [fact], node_class, PriceBook(), region="", zones={}, settings=settings
    ).instance_types
    if not found:
        raise UnknownTypeError(f"instance type {fact.name!r}: the catalogue's facts about it make no sense")
    return found[0]
