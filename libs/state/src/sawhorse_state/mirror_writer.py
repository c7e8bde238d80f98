"""The watcher's side of the mirror: full lists and batches of changes, fenced by the Lease epoch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sawhorse_state.codec import TYPES, encode
from sawhorse_state.connection import State
from sawhorse_state.errors import DeposedError, FlushedError
from sawhorse_state.mirror_keys import (
    BEGIN,
    CHANGES,
    COUNT,
    DELETE,
    EPOCH,
    MARK_SYNCED,
    MAX_CHANGES,
    SET,
    WRITE,
    objects_key,
    synced_key,
)

_BATCH = 200  # objects per script: some hundred KB, a few ms in which Redis serves nobody else


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object; `obj` None means that it is gone."""

    key: str  # namespace/name, or the name
    obj: Any | None
    resource_version: str


class MirrorWriter:
    """Writes the mirror under one epoch. One task at a time per kind.

    Every method raises DeposedError when a later writer has begun, FlushedError when the epoch vanished, and
    StateUnavailableError when Redis does not answer; it may be repeated then.
    """

    def __init__(self, state: State, epoch: int) -> None:
        self._state = state
        self.epoch = epoch
        self._begun = False
        self._versions: dict[str, dict[str, int]] = {}  # newest resourceVersion written, by kind and key
        self.objects: dict[str, int] = {}  # how many there are of each kind, for metrics

    async def begin(self, kinds: Iterable[str] = ()) -> None:
        """Own the mirror from now on: no kind counts as synced until its full list is in.

        May be repeated by the same writer, after a flush.

        Args:
            kinds: those mirrored besides the ones that `codec` names.
        Raises:
            DeposedError: this epoch or a later one is another writer's.
        """
        self._versions.clear()
        self.objects.clear()
        names = dict.fromkeys((*TYPES, *kinds))
        ours, current = await self._state.eval(
            "begin the mirror",
            BEGIN,
            [EPOCH, CHANGES, COUNT, *(synced_key(k) for k in names)],
            [self.epoch, MAX_CHANGES, int(self._begun)],
        )
        if not ours:
            raise DeposedError(f"the mirror is at epoch {int(current)}, ours is {self.epoch}", epoch=int(current))
        self._begun = True

    async def check(self) -> None:
        """Whether the mirror is still ours; raises when it is not."""
        self._check(await self._state.do("check the mirror", self._state.redis.get(self._state.key(EPOCH))))

    async def replace_all(self, kind: str, objects: Iterable[Any], resource_version: str) -> int:
        """Write the full list of a kind, remove what is not in it, and mark the kind as synced.

        Args:
            resource_version: of the list; nothing older is taken from `apply` afterwards.
        Returns:
            How many objects changed.
        """
        versions: dict[str, int] = {}
        changes: list[Change] = []
        for obj in objects:
            versions[obj.meta.key] = _number(obj.meta.resource_version)
            changes.append(Change(obj.meta.key, obj, obj.meta.resource_version))
        there = await self._state.do("list the mirror", self._state.redis.hkeys(self._state.key(objects_key(kind))))
        gone = [key for key in (raw.decode() for raw in there) if key not in versions]
        changes += (Change(key, None, resource_version) for key in gone)
        changed = await self._write(kind, changes)
        self._versions[kind] = versions
        self.objects[kind] = len(versions)
        self._check(
            await self._state.eval(
                "mark the mirror",
                MARK_SYNCED,
                [EPOCH, CHANGES, COUNT, synced_key(kind)],
                [self.epoch, MAX_CHANGES, kind, resource_version],
            )
        )
        return changed

    async def apply(self, kind: str, events: Sequence[Change]) -> int:
        """Write changes in their order. Of several of one object only the last counts; older ones than known do not.

        Returns:
            How many objects changed.
        """
        versions = self._versions.setdefault(kind, {})
        newest: dict[str, Change] = {}
        for event in events:
            version = _number(event.resource_version)
            known = newest[event.key].resource_version if event.key in newest else None
            if version < (_number(known) if known is not None else versions.get(event.key, 0)):
                continue
            newest[event.key] = event
        changed = await self._write(kind, list(newest.values()))
        for key, event in newest.items():
            if event.obj is None:
                versions.pop(key, None)
            else:
                versions[key] = _number(event.resource_version)
        self.objects[kind] = len(versions)
        return changed

    async def _write(self, kind: str, changes: Sequence[Change]) -> int:
        total = 0
        for batch in _batches(changes):
            args: list[str | bytes | int] = [self.epoch, MAX_CHANGES, kind]
            for change in batch:
                if change.obj is None:
                    args += (change.key, DELETE, change.resource_version, b"")
                else:
                    args += (change.key, SET, change.resource_version, encode(change.obj))
            epoch, changed = await self._state.eval(
                "write the mirror", WRITE, [EPOCH, CHANGES, COUNT, objects_key(kind)], args
            )
            self._check(epoch)
            total += int(changed)
        return total

    def _check(self, current: bytes | None) -> None:
        if not current:
            raise FlushedError("the mirror's epoch is gone from Redis")
        if int(current) != self.epoch:
            raise DeposedError(f"the mirror is at epoch {int(current)}, ours is {self.epoch}", epoch=int(current))


def _batches(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    for start in range(0, len(changes), _BATCH):
        yield changes[start : start + _BATCH]


def _number(resource_version: str) -> int:
    # Kubernetes lets clients compare resourceVersions as numbers since 1.35; all servers have issued them so.
    return int(resource_version) if resource_version.isdigit() else 0
