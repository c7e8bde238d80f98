"""What lints look at: one accepted object, and what is given beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from sawhorse_catalog.builtin import builtin_catalog
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import NODEPOOL
from sawhorse_model.manifests import ManifestError
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.requirements import Operator, Requirement, Requirements

POOL, CLAIM, CLASS = "NodePool", "NodeClaim", "EC2NodeClass"


@dataclass(frozen=True, slots=True)
class Entry:
    """One wish about a label: a requirement as written, or a template label as In with one value."""

    field: str
    key: str  # as typed
    operator: str
    values: tuple[str, ...]

    @property
    def requirement(self) -> Requirement:
        """The wish, its key normalised."""
        return Requirement.of(self.key, Operator(self.operator), self.values)


@dataclass(frozen=True)  # no slots: what is worked out from the object is kept
class Subject:
    """An object that an API server takes, with defaults."""

    kind: str
    name: str
    raw: Mapping[str, Any]

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec; every kind has one or works without."""
        spec: Mapping[str, Any] = self.raw.get("spec") or {}
        return spec

    @property
    def is_ours(self) -> bool:
        """Whether it is for AWS and written by a person: claims of a pool are written by the autoscaler."""
        if self.kind == CLASS:
            return True
        labels = self.raw["metadata"].get("labels") or {}
        if self.kind == CLAIM and NODEPOOL in labels:
            return False
        ref = self.template["nodeClassRef"]
        return (ref["group"], ref["kind"]) == (aws.GROUP, aws.KIND)

    @property
    def template(self) -> Mapping[str, Any]:
        """What nodes are made from: the pool's template, or the claim's own spec."""
        if self.kind == CLAIM:
            return self.spec
        template: Mapping[str, Any] = self.spec["template"]["spec"]
        return template

    @property
    def template_path(self) -> str:
        """Where `template` is."""
        return "spec" if self.kind == CLAIM else "spec.template.spec"

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The wishes about labels, template labels first; none for a class."""
        return tuple(self._entries()) if self.kind in (POOL, CLAIM) and self.is_ours else ()

    def _entries(self) -> Iterator[Entry]:
        if self.kind == POOL:
            metadata = self.spec["template"].get("metadata") or {}
            for key, value in (metadata.get("labels") or {}).items():
                yield Entry(f"spec.template.metadata.labels[{key}]", key, "In", (value,))
        for index, one in enumerate(self.template["requirements"]):
            where = f"{self.template_path}.requirements[{index}]"
            yield Entry(where, one["key"], one["operator"], tuple(one.get("values") or ()))

    @cached_property
    def requirements(self) -> Requirements:
        """All wishes together."""
        return Requirements(entry.requirement for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The accepted objects of all files, and the time."""

    subjects: Sequence[Subject]
    now: datetime
    _resolved: dict[str, tuple[InstanceType, ...]] = field(default_factory=dict)  # by name of the NodeClass
    usable: dict[int, frozenset[str]] = field(default_factory=dict)  # by id() of a subject; kept by `usable_types`

    def types_for(self, subject: Subject) -> tuple[InstanceType, ...]:
        """The built-in instance types as the object's NodeClass sees them; one that is not given has defaults."""
        name = subject.template["nodeClassRef"]["name"]
        if name not in self._resolved:
            given = next((s for s in self.subjects if s.kind == CLASS and s.name == name), None)
            node_class = None if given is None else _read_class(given)
            self._resolved[name] = _default_types() if node_class is None else _types(node_class)
        return self._resolved[name]


@cache
def _default_types() -> tuple[InstanceType, ...]:
    return _types(None)


def _types(node_class: aws.EC2NodeClass | None) -> tuple[InstanceType, ...]:
    resolution = builtin_catalog().resolve(node_class)
    return tuple(t for t in resolution.instance_types if t.name not in resolution.excluded)


def _read_class(subject: Subject) -> aws.EC2NodeClass | None:
    """What of a class decides on types; None when it cannot be read."""
    # Sizes do not matter here, and what is wrong with them is another lint's.
    spec = {name: value for name, value in subject.spec.items() if name not in ("kubelet", "blockDeviceMappings")}
    try:
        return aws.parse_ec2_node_class(NodeClass(ObjectMeta(subject.name), aws.GROUP, aws.KIND, spec))
    except ManifestError:
        return None
