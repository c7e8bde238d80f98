"""What the demo found, as one object: the last line of `--json` and the summary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node at the end. `pods` counts the demo's own pods, daemons not included."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    price_per_hour: float
    pods: int


@dataclass(slots=True)
class Interruption:
    """Seconds from SendMessage; None: did not happen."""

    node: str
    seconds_to_cordon: float | None = None
    seconds_to_replacement_ordered: float | None = None
    seconds_to_replacement_ready: float | None = None
    seconds_to_terminated: float | None = None
    pods_running_after: int = 0


@dataclass(slots=True)
class Report:
    """The demo's result. Prices per hour in USD; `seconds` by phase."""

    ok: bool = False
    pods: int = 0
    pods_running: int = 0
    nodes: list[NodeRow] = field(default_factory=list)
    price_per_hour: float = 0.0
    lower_bound_per_hour: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    interruption: Interruption | None = None
    leaked_instances: int = 0
    instance_types_in_catalog: int = 0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """The contract's names; `error` only when there is one."""
        raw: dict[str, Any] = _camel(asdict(self))
        if not self.error:
            del raw["error"]
        return raw


def _camel(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_name(key): _camel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def _name(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)
