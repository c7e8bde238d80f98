"""A NodeClass of any cloud: identity, readiness, and the cloud's own spec and status as plain JSON.

What is inside spec and status only the cloud's module knows (`sawhorse_model.aws`), so that the provisioner and the
mirror carry it without reading it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sawhorse_model.meta import Condition, ObjectMeta, find_condition


@dataclass(frozen=True, slots=True)
class NodeClass:
    """A NodeClass. `spec` and `status` are the API's JSON objects; `conditions` is read from the status."""

    meta: ObjectMeta
    group: str
    kind: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether Ready is True at this generation."""
        ready = find_condition(self.conditions, "Ready")
        return ready is not None and ready.status == "True" and ready.observed_generation == self.meta.generation
