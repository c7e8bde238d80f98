"""Resource lists as integer maps: cpu in millicores, everything else in base units (bytes, pieces)."""

from collections.abc import Iterable, Mapping

from sawhorse_model.quantity import format_bytes, format_milli, milli, whole

Resources = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
NODES = "nodes"

_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})


def parse_resources(raw: Mapping[str, object] | None) -> dict[str, int]:
    """Read a Kubernetes resource map.

    Raises:
        QuantityError: a value is not a quantity.
    """
    result: dict[str, int] = {}
    for name, value in (raw or {}).items():
        result[name] = milli(value) if name == CPU else whole(value)  # type: ignore[arg-type]  # checked in parse_quantity
    return result


def format_resources(resources: Resources) -> dict[str, str]:
    """Write a resource map as Kubernetes quantities, names sorted."""
    return {name: format_resource(name, resources[name]) for name in sorted(resources)}


def format_resource(name: str, value: int) -> str:
    """Write one amount in the unit of its resource."""
    if name == CPU:
        return format_milli(value)
    return format_bytes(value) if name in _BYTES or name.startswith("hugepages-") else str(value)


def add(*parts: Resources) -> dict[str, int]:
    """Sum resource maps; a missing entry counts as zero."""
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def subtract(left: Resources, right: Resources) -> dict[str, int]:
    """Return left − right over all names of both; results may be negative."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in {**left, **right}}


def scale(resources: Resources, factor: int) -> dict[str, int]:
    """Multiply every amount."""
    return {name: value * factor for name, value in resources.items()}


def largest(parts: Iterable[Resources]) -> dict[str, int]:
    """Return the maximum of each resource over all maps."""
    result: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            result[name] = max(result.get(name, value), value)
    return result


def fits(requests: Resources, available: Resources) -> bool:
    """Whether every positive request is covered; a resource absent from `available` is zero."""
    return all(value <= available.get(name, 0) for name, value in requests.items() if value > 0)
