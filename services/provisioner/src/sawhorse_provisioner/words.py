"""The words of one cloud's NodeClass, as data from `main`: the rest of the service knows no cloud by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sawhorse_kube.kinds import Kind
from sawhorse_model.instances import AttachEstimate


@dataclass(frozen=True, slots=True)
class NodeClassWords:
    """How the cloud's NodeClass is named in the API and on objects.

    `well_known` are label keys that the catalogue defines; `exotic`, `exotic_labels` and `hints` are as in
    `SolveOptions`; `attachments` say how many volumes a machine takes.
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
    attachments: tuple[AttachEstimate, ...] = ()
