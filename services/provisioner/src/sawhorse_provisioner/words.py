"""The words of one cloud's NodeClass, as data from `main`: the rest of the service knows no cloud by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sawhorse_kube.kinds import Kind
from sawhorse_model.instances import AttachEstimate
from sawhorse_model.nodeclass import NodeClass


def nothing_expires(node_class: NodeClass) -> Mapping[str, datetime | None]:
    """For a cloud without reservations."""
    return {}


@dataclass(frozen=True, slots=True)
class NodeClassWords:
    """How the cloud's NodeClass is named in the API and on objects.

    `well_known` are label keys that the catalogue defines; `exotic`, `exotic_labels` and `hints` are as in
    `SolveOptions`; `attachments` say how many volumes a machine takes. `plugins` says for a resource what brings it
    to a node. `expiring` reads from a NodeClass which of its reservations are about to end, and when the cloud begins
    to end their machines. A label that the cloud does not have is empty text.
    """

    kind: Kind
    finalizer: str  # keeps a NodeClass until no claim uses it
    label: str  # label on claims and nodes: the class's name
    hash: str  # annotation keys, on the class and its claims
    hash_version: str
    tagged: str  # annotation on a claim whose instance carries its names
    well_known: frozenset[str] = frozenset()
    exotic: frozenset[str] = field(default_factory=frozenset)
    exotic_labels: tuple[tuple[str, str], ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    closed_values: Mapping[str, frozenset[str]] = field(default_factory=dict)  # labels of which all values are known
    attachments: tuple[AttachEstimate, ...] = ()
    tagged_also: tuple[str, ...] = ()  # more annotations that go with `tagged`
    plugins: Mapping[str, str] = field(default_factory=dict)
    reservation: str = ""  # label on claims and nodes: the reservation's id
    reservation_labels: tuple[str, ...] = ()  # all labels that a reservation brings, its id among them
    placement_group: str = ""  # label: the placement group's id
    partition: str = ""  # label: the partition of the placement group
    expiring: Callable[[NodeClass], Mapping[str, datetime | None]] = nothing_expires
