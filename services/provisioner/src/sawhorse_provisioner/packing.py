"""A snapshot on its way to the planning worker: each instance type travels once, then only its key does.

Types are most of a snapshot, and few change at a time: an offering that ran out makes one new. Both ends are here, so
that they agree.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sawhorse_model.instances import InstanceType
from sawhorse_scheduling.snapshot import Snapshot

Keys = tuple[int, ...]

_MOST_KNOWN = 20_000


@dataclass(frozen=True, slots=True)
class Packed:
    """A snapshot without instance types, and where they belong.

    `lists` are distinct lists of types, by key; `pools` has the index of one for each pool, `nodes` for nodes that have
    types. `new` are types that the other end does not have, `dropped` those that it need not keep.
    """

    snapshot: Snapshot
    lists: tuple[Keys, ...]
    pools: tuple[int, ...]
    nodes: Mapping[int, int]
    new: Mapping[int, InstanceType]
    dropped: tuple[int, ...] = ()


class Packer:
    """The sending end; one per worker, as it knows what the worker has."""

    def __init__(self, most_known: int = _MOST_KNOWN) -> None:
        self._most_known = most_known
        # By id of a type: its key, and the type, so that the id stays its own.
        self._known: dict[int, tuple[int, InstanceType]] = {}
        self._counter = itertools.count()

    def pack(self, snapshot: Snapshot) -> Packed:
        """Take the types out."""
        new: dict[int, InstanceType] = {}
        lists: dict[int, tuple[int, Keys]] = {}  # by id of a list: its index, its keys

        def index_of(types: tuple[InstanceType, ...]) -> int:
            known = lists.get(id(types))
            if known is None:
                known = (len(lists), tuple(self._key(kind, new) for kind in types))
                lists[id(types)] = known
            return known[0]

        pools = tuple(index_of(pool.instance_types) for pool in snapshot.pools)
        nodes = {i: index_of(node.instance_types) for i, node in enumerate(snapshot.nodes) if node.instance_types}
        bare = replace(
            snapshot,
            pools=tuple(replace(pool, instance_types=()) for pool in snapshot.pools),
            nodes=tuple(replace(n, instance_types=()) if i in nodes else n for i, n in enumerate(snapshot.nodes)),
        )
        keys = tuple(known[1] for known in lists.values())
        return Packed(bare, keys, pools, nodes, new, self._drop(keys))

    def _key(self, kind: InstanceType, new: dict[int, InstanceType]) -> int:
        known = self._known.get(id(kind))
        if known is None:
            known = (next(self._counter), kind)
            self._known[id(kind)] = known
            new[known[0]] = kind
        return known[0]

    def _drop(self, lists: Iterable[Keys]) -> Keys:
        """Beyond the bound, forget what this snapshot does not use."""
        if len(self._known) <= self._most_known:
            return ()
        used = {key for keys in lists for key in keys}
        gone = {identity: key for identity, (key, _) in self._known.items() if key not in used}
        for identity in gone:
            del self._known[identity]
        return tuple(gone.values())


@dataclass(slots=True)
class Unpacker:
    """The receiving end."""

    _types: dict[int, InstanceType] = field(default_factory=dict)

    def unpack(self, packed: Packed) -> Snapshot:
        """Put the types back."""
        self._types |= packed.new
        for key in packed.dropped:
            self._types.pop(key, None)
        lists = [tuple(self._types[key] for key in keys) for keys in packed.lists]
        snapshot = packed.snapshot
        return replace(
            snapshot,
            pools=tuple(
                replace(pool, instance_types=lists[index])
                for pool, index in zip(snapshot.pools, packed.pools, strict=True)
            ),
            nodes=tuple(
                replace(node, instance_types=lists[packed.nodes[i]]) if i in packed.nodes else node
                for i, node in enumerate(snapshot.nodes)
            ),
        )
