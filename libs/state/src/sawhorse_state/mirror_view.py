"""A copy of the mirror in memory: objects, indexes, and own writes laid over them. Pure but for logs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import structlog

from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_state.mirror_keys import DELETE, SET

log = structlog.get_logger(__name__)

Callback = Callable[[str, str, str], None]
"""Told kind, key and op ("set" or "del") of each change, after it is visible. It must not block."""


@dataclass(frozen=True, slots=True)
class _Own:
    obj: Any
    expires: float | None  # loop time; None while the mirror has not come as far as this write


class MirrorView:
    """What a reader sees. `version` grows with each change.

    Args:
        kinds: those it holds.
        own_seconds: how long a noted own write is shown yet when the mirror tells of later changes, but not of it.
    """

    def __init__(self, kinds: Sequence[str], *, own_seconds: float = 15.0) -> None:
        self.kinds = tuple(dict.fromkeys(kinds))
        self.version = 0
        self._own_seconds = own_seconds
        self._mirrored: dict[str, dict[str, Any]] = {kind: {} for kind in self.kinds}
        self._visible: dict[str, dict[str, Any]] = {kind: {} for kind in self.kinds}
        self._own: dict[tuple[str, str], _Own] = {}
        self._reached: dict[str, int] = {}  # the newest version of each kind that the mirror told of
        self._pods_by_node: dict[str, dict[str, Pod]] = {}
        self._claims_by_provider: dict[str, dict[str, NodeClaim]] = {}
        self._nodes_by_provider: dict[str, dict[str, Node]] = {}
        self._callbacks: list[Callback] = []

    def all(self, kind: str) -> Mapping[str, Any]:
        """A live, read-only view: key -> object. Do not iterate over it across an await.

        Raises:
            KeyError: the kind is not among those held.
        """
        return MappingProxyType(self._visible[kind])

    def get(self, kind: str, key: str) -> Any | None:
        """One object, or None."""
        return self._visible[kind].get(key)

    def pods_on(self, node_name: str) -> Sequence[Pod]:
        """The pods bound to a node, ended ones included."""
        return tuple(self._pods_by_node.get(node_name, {}).values())

    def claim_by_provider_id(self, provider_id: str) -> NodeClaim | None:
        """The claim of an instance; the first by name where several say so."""
        return _first(self._claims_by_provider.get(provider_id))

    def node_by_provider_id(self, provider_id: str) -> Node | None:
        """The node of an instance; the first by name where several say so."""
        return _first(self._nodes_by_provider.get(provider_id))

    def subscribe(self, callback: Callback) -> None:
        """Call `callback` at each later change."""
        self._callbacks.append(callback)

    def replace(self, kind: str, objects: Mapping[str, Any], now: float) -> None:
        """Take a whole kind as loaded; own writes that are newer stay visible."""
        self._mirrored[kind] = dict(objects)
        for key in [*self._visible[kind].keys() - objects.keys()]:
            if (kind, key) not in self._own:
                self._show(kind, key, None)
        for key, obj in objects.items():
            self._settle(kind, key, obj, now)

    def set(self, kind: str, key: str, obj: Any, now: float) -> None:
        """The mirror has this object; an older version than the one it had is ignored."""
        known = self._mirrored[kind].get(key)
        if known is not None and _version(obj) < _version(known):
            return
        self._mirrored[kind][key] = obj
        self._settle(kind, key, obj, now)

    def delete(self, kind: str, key: str, resource_version: int) -> None:
        """The mirror has lost this object at `resource_version`; a newer one of that name stays."""
        known = self._mirrored[kind].get(key)
        if known is not None and _version(known) <= resource_version:
            del self._mirrored[kind][key]
        own = self._own.get((kind, key))
        if own is not None and _version(own.obj) <= resource_version:
            del self._own[kind, key]
            own = None
        if own is None:
            self._show(kind, key, self._mirrored[kind].get(key))

    def note_own(self, kind: str, obj: Any, now: float) -> None:
        """Make an own write visible before the watch brings it."""
        key = obj.meta.key
        seen = self._visible[kind].get(key)
        if seen is not None and _version(obj) <= _version(seen):
            return
        passed = _version(obj) < self._reached.get(kind, 0)
        self._own[kind, key] = _Own(obj, now + self._own_seconds if passed else None)
        self._show(kind, key, obj)

    def reached(self, kind: str, resource_version: int, now: float) -> None:
        """The mirror told of a change of this kind: own writes that are older should have been told by now.

        The clock of an own write begins here and not when it was made: while no watcher runs nothing is told at all,
        and a claim of ours that was forgotten then would be made a second time.
        """
        if resource_version <= self._reached.get(kind, 0):
            return
        self._reached[kind] = resource_version
        for (of, key), own in self._own.items():
            if of == kind and own.expires is None and _version(own.obj) < resource_version:
                self._own[of, key] = _Own(own.obj, now + self._own_seconds)

    def listed(self, kind: str, resource_version: int, now: float) -> None:
        """The mirror holds the full list of this kind as of a version: nothing else is left of older own writes."""
        for of, key in [*self._own]:
            if of == kind and _version(self._own[of, key].obj) <= resource_version:
                self._drop(kind, key)
        self.reached(kind, resource_version, now)

    def expire(self, now: float) -> None:
        """Drop own writes that the mirror passed over: it knows better by now."""
        for (kind, key), own in [*self._own.items()]:
            if own.expires is not None and own.expires <= now:
                self._drop(kind, key)

    def _drop(self, kind: str, key: str) -> None:
        del self._own[kind, key]
        self._show(kind, key, self._mirrored[kind].get(key))

    def _settle(self, kind: str, key: str, obj: Any, now: float) -> None:
        own = self._own.get((kind, key))
        if own is not None:
            if _version(obj) < _version(own.obj) and (own.expires is None or own.expires > now):
                return
            del self._own[kind, key]
        self._show(kind, key, obj)

    def _show(self, kind: str, key: str, obj: Any | None) -> None:
        old = self._visible[kind].get(key)
        if old is obj or (old is not None and obj is not None and old == obj):
            return
        if obj is None:
            del self._visible[kind][key]
        else:
            self._visible[kind][key] = obj
        self._index(kind, key, old, obj)
        self.version += 1
        for callback in self._callbacks:
            try:
                callback(kind, key, DELETE if obj is None else SET)
            except Exception as err:
                # One subscriber must not keep changes from the others.
                log.error("mirror subscriber failed", kind=kind, key=key, exc_info=err)

    def _index(self, kind: str, key: str, old: Any | None, new: Any | None) -> None:
        if kind == "Pod":
            _move(self._pods_by_node, key, old, new, old and old.node_name, new and new.node_name)
        elif kind == "NodeClaim":
            _move(self._claims_by_provider, key, old, new, old and old.provider_id, new and new.provider_id)
        elif kind == "Node":
            _move(self._nodes_by_provider, key, old, new, old and old.provider_id, new and new.provider_id)


def _move(index: dict[str, dict[str, Any]], key: str, old: Any, new: Any, was: str | None, goes: str | None) -> None:
    if old is not None and was and was != goes:
        index[was].pop(key, None)
        if not index[was]:
            del index[was]
    if new is not None and goes:
        index.setdefault(goes, {})[key] = new


def _first(found: Mapping[str, Any] | None) -> Any | None:
    return found[min(found)] if found else None


def _version(obj: Any) -> int:
    version: str = obj.meta.resource_version
    return int(version) if version.isdigit() else 0
