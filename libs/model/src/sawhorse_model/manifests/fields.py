"""Typed reading of API objects as JSON: every misfit names the field, what is wrong and what to do."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sawhorse_model.meta import Condition, ObjectMeta, OwnerReference
from sawhorse_model.quantity import QuantityError, milli, whole
from sawhorse_model.requirements import NUMERIC, Operator, RequirementSpec
from sawhorse_model.resources import CPU
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_model.taints import Taint, Toleration

Raw = Mapping[str, Any]

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ManifestError(ValueError):
    """A field of an object cannot be read.

    `field` is a path such as `spec.template.spec.containers[0].resources.requests.cpu`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def mapping(raw: Raw, key: str, path: str) -> Raw:
    """An object-valued field; absent or null is empty."""
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ManifestError(f"{path}.{key}".lstrip("."), f"must be an object, not {_kind(value)}")
    return value


def items(raw: Raw, key: str, path: str) -> Sequence[Raw]:
    """A list of objects; absent or null is empty."""
    value = raw.get(key)
    if value is None:
        return ()
    where = f"{path}.{key}".lstrip(".")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ManifestError(where, f"must be a list, not {_kind(value)}")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise ManifestError(f"{where}[{index}]", f"must be an object, not {_kind(item)}")
    return value


def texts(raw: Raw, key: str, path: str) -> tuple[str, ...]:
    """A list of texts; absent or null is empty."""
    value = raw.get(key)
    if value is None:
        return ()
    where = f"{path}.{key}".lstrip(".")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ManifestError(where, f"must be a list, not {_kind(value)}")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise ManifestError(f"{where}[{index}]", f"must be a text, not {_kind(item)}; put it in quotes")
    return tuple(value)


def text(raw: Raw, key: str, path: str, default: str = "") -> str:
    """A text field."""
    value = raw.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ManifestError(f"{path}.{key}".lstrip("."), f"must be a text, not {_kind(value)}; put it in quotes")
    return value


def integer(raw: Raw, key: str, path: str, default: int = 0, *, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    """A whole-number field within bounds."""
    value = raw.get(key)
    if value is None:
        return default
    where = f"{path}.{key}".lstrip(".")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ManifestError(where, f"must be a whole number, not {_kind(value)}")
    if not low <= value <= high:
        raise ManifestError(where, f"{value} is outside {low}..{high}")
    return value


def string_map(raw: Raw, key: str, path: str) -> dict[str, str]:
    """A map of texts."""
    value = mapping(raw, key, path)
    for name, item in value.items():
        if not isinstance(item, str):
            where = f"{path}.{key}".lstrip(".")
            raise ManifestError(f"{where}[{name}]", f"must be a text, not {_kind(item)}; put it in quotes")
    return dict(value)


def resources(raw: Raw, key: str, path: str) -> dict[str, int]:
    """A map of quantities, none negative: cpu in millicores, the rest in base units."""
    result: dict[str, int] = {}
    where = f"{path}.{key}".lstrip(".")
    for name, value in mapping(raw, key, path).items():
        try:
            amount = milli(value) if name == CPU else whole(value)
        except QuantityError as error:
            raise ManifestError(f"{where}.{name}", str(error)) from error
        if amount < 0:
            raise ManifestError(f"{where}.{name}", f"{value!r} is negative; a resource amount is zero or more")
        result[name] = amount
    return result


def timestamp(raw: Raw, key: str, path: str) -> datetime | None:
    """An RFC 3339 time."""
    value = raw.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, datetime):  # YAML reads bare times as such
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return parse_time(str(value), f"{path}.{key}".lstrip("."))


def parse_time(value: str, field: str) -> datetime:
    """Read an RFC 3339 time.

    Raises:
        ManifestError: naming the field.
    """
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ManifestError(field, f"{value!r} is not a time such as 2026-11-29T10:15:30Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """Write a time as Kubernetes does: UTC, whole seconds, Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_duration(value: str, field: str) -> timedelta:
    """Read a Go duration such as `1h30m`.

    Raises:
        ManifestError: naming the field.
    """
    rest = value.strip()
    seconds, position = 0.0, 0
    for match in _DURATION.finditer(rest):
        if match.start() != position:
            break
        seconds += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not rest or position != len(rest) or seconds > 10**10:
        raise ManifestError(field, f"{value!r} is not a duration such as 30s, 10m or 720h")
    return timedelta(seconds=seconds)


def format_duration(value: timedelta) -> str:
    """Write a duration the Go way, largest units first."""
    total = int(value.total_seconds())
    hours, rest = divmod(total, 3600)
    minutes, seconds = divmod(rest, 60)
    return "".join(f"{n}{u}" for n, u in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n) or "0s"


def duration_or_never(raw: Raw, key: str, path: str, default: timedelta | None) -> timedelta | None:
    """A duration where `Never` means None."""
    value = text(raw, key, path)
    if not value:
        return default
    return None if value == "Never" else parse_duration(value, f"{path}.{key}".lstrip("."))


def meta(raw: Raw, *, default_namespace: str = "") -> ObjectMeta:
    """Read `metadata`. A pod template has none of its own name."""
    data = mapping(raw, "metadata", "")
    owners = tuple(
        OwnerReference(
            api_version=text(o, "apiVersion", f"metadata.ownerReferences[{i}]"),
            kind=text(o, "kind", f"metadata.ownerReferences[{i}]"),
            name=text(o, "name", f"metadata.ownerReferences[{i}]"),
            uid=text(o, "uid", f"metadata.ownerReferences[{i}]"),
            controller=bool(o.get("controller")),
            block_owner_deletion=bool(o.get("blockOwnerDeletion")),
        )
        for i, o in enumerate(items(data, "ownerReferences", "metadata"))
    )
    return ObjectMeta(
        name=text(data, "name", "metadata"),
        namespace=text(data, "namespace", "metadata") or default_namespace,
        uid=text(data, "uid", "metadata"),
        resource_version=text(data, "resourceVersion", "metadata"),
        generation=integer(data, "generation", "metadata"),
        labels=string_map(data, "labels", "metadata"),
        annotations=string_map(data, "annotations", "metadata"),
        created=timestamp(data, "creationTimestamp", "metadata"),
        deletion_timestamp=timestamp(data, "deletionTimestamp", "metadata"),
        deletion_grace_seconds=integer(data, "deletionGracePeriodSeconds", "metadata", -1)
        if data.get("deletionGracePeriodSeconds") is not None
        else None,
        finalizers=texts(data, "finalizers", "metadata"),
        owners=owners,
    )


def conditions(raw: Raw, path: str = "status") -> tuple[Condition, ...]:
    """Read `conditions`."""
    return tuple(
        Condition(
            type=text(c, "type", path),
            status=text(c, "status", path),
            reason=text(c, "reason", path),
            message=text(c, "message", path),
            last_transition=timestamp(c, "lastTransitionTime", path),
            observed_generation=integer(c, "observedGeneration", path),
        )
        for c in items(raw, "conditions", path)
    )


def condition_to_raw(condition: Condition) -> dict[str, Any]:
    """Write a condition for the API."""
    raw: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
    }
    if condition.last_transition is not None:
        raw["lastTransitionTime"] = format_time(condition.last_transition)
    return raw


def requirement(raw: Raw, path: str) -> RequirementSpec:
    """Read one requirement (or node-affinity expression); numeric operators need one integer."""
    word = text(raw, "operator", path)
    try:
        operator = Operator(word)
    except ValueError as error:
        words = ", ".join(Operator)
        raise ManifestError(f"{path}.operator", f"{word!r} is not an operator; use one of {words}") from error
    values = texts(raw, "values", path)
    if operator in NUMERIC and (len(values) != 1 or not re.fullmatch(r"-?\d{1,18}", values[0])):
        raise ManifestError(f"{path}.values", f"operator {operator} takes exactly one integer, got {list(values)}")
    minimum = integer(raw, "minValues", path, 0, low=0) if raw.get("minValues") is not None else None
    return RequirementSpec(text(raw, "key", path), operator, values, minimum)


def requirements(raw: Raw, key: str, path: str) -> tuple[RequirementSpec, ...]:
    """Read a list of requirements."""
    where = f"{path}.{key}".lstrip(".")
    return tuple(requirement(r, f"{where}[{i}]") for i, r in enumerate(items(raw, key, path)))


def requirement_to_raw(spec: RequirementSpec) -> dict[str, Any]:
    """Write a requirement for the API."""
    raw: dict[str, Any] = {"key": spec.key, "operator": spec.operator.value}
    if spec.values:
        raw["values"] = list(spec.values)
    if spec.min_values is not None:
        raw["minValues"] = spec.min_values
    return raw


def taints(raw: Raw, key: str, path: str) -> tuple[Taint, ...]:
    """Read a list of taints."""
    where = f"{path}.{key}".lstrip(".")
    return tuple(
        Taint(text(t, "key", f"{where}[{i}]"), text(t, "effect", f"{where}[{i}]"), text(t, "value", f"{where}[{i}]"))
        for i, t in enumerate(items(raw, key, path))
    )


def taint_to_raw(taint: Taint) -> dict[str, str]:
    """Write a taint for the API."""
    raw = {"key": taint.key, "effect": taint.effect}
    return {**raw, "value": taint.value} if taint.value else raw


def tolerations(raw: Raw, path: str) -> tuple[Toleration, ...]:
    """Read `tolerations`."""
    return tuple(
        Toleration(
            key=text(t, "key", path),
            operator=text(t, "operator", path) or "Equal",
            value=text(t, "value", path),
            effect=text(t, "effect", path),
            seconds=integer(t, "tolerationSeconds", path) if t.get("tolerationSeconds") is not None else None,
        )
        for t in items(raw, "tolerations", path)
    )


def selector(raw: Raw, key: str, path: str) -> LabelSelector | None:
    """Read a label selector; absent is None (selects nothing)."""
    if raw.get(key) is None:
        return None
    data = mapping(raw, key, path)
    where = f"{path}.{key}".lstrip(".")
    wanted = string_map(data, "matchLabels", where)
    expressions = [SelectorExpression(k, "In", (v,)) for k, v in sorted(wanted.items())]
    for index, entry in enumerate(items(data, "matchExpressions", where)):
        spot = f"{where}.matchExpressions[{index}]"
        expressions.append(
            SelectorExpression(text(entry, "key", spot), text(entry, "operator", spot), texts(entry, "values", spot)),
        )
    return LabelSelector(tuple(expressions))


def _kind(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case Sequence():
            return "a list"
        case None:
            return "null"
        case _:
            return type(value).__name__
