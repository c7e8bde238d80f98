"""Status conditions, written under an optimistic lock so that two writers never undo one another."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sawhorse_kube.api import Kube
from sawhorse_kube.kinds import Kind
from sawhorse_model.manifests.fields import condition_to_raw
from sawhorse_model.meta import Condition, ObjectMeta


class HasConditions(Protocol):
    """A NodeClaim, NodePool, NodeClass or Node."""

    @property
    def meta(self) -> ObjectMeta: ...
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


async def patch_conditions(
    kube: Kube,
    kind: Kind,
    obj: HasConditions,
    conditions: Sequence[Condition],
    extra_status: Mapping[str, Any] | None = None,
    *,
    manager: str = "",
) -> Any:
    """Replace the condition list of an object, and set other status fields in the same patch.

    A merge patch replaces the list whole, hence the lock: `obj` must be as read, `conditions` made from its own list.
    Nothing is sent when nothing would change.

    Args:
        extra_status: other fields of `status`; None values remove them.
        manager: the field manager to write as.
    Returns:
        The object as it is now.
    Raises:
        ConflictError: it changed since `obj` was read; read it and decide again.
    """
    if tuple(conditions) == tuple(obj.conditions) and not extra_status:
        return obj
    body = {
        "metadata": {"resourceVersion": obj.meta.resource_version},
        "status": {**(extra_status or {}), "conditions": [condition_to_raw(c) for c in conditions]},
    }
    return await kube.patch(
        kind, obj.meta.name, body, namespace=obj.meta.namespace, subresource="status", manager=manager
    )
