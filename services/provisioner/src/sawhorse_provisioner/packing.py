"""A snapshot on its way to the planning worker: instance types travel once, then only their key does.

They are most of a snapshot and change only with the catalogue. Both ends are here, so that they agree.
"""

import itertools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sawhorse_model.instances import InstanceType
from sawhorse_scheduling.snapshot import ExistingNode, Snapshot

Types = tuple[InstanceType, ...]

_KEPT = 16  # lists of types that either end remembers


@dataclass(frozen=True, slots=True)
class Packed:
    """A snapshot without instance types, and where they belong.

    `pools` has a key of a list for each pool, `nodes` for some nodes a key and positions in that list. `new` are the
    lists that the other end does not have yet, pickled; `kept` are the keys that it must keep.
    """

    snapshot: Snapshot
    pools: tuple[int, ...]
    nodes: Mapping[int, tuple[int, tuple[int, ...]]]
    new: Mapping[int, bytes]
    kept: frozenset[int]


@dataclass(slots=True)
class Packer:
    """The sending end; one per worker, as it knows what the worker has."""

    # By id of a list: its key, the list itself (so that the id stays its own), and by id of a type its position.
    _known: dict[int, tuple[int, Types, dict[int, int]]] = field(default_factory=dict)
    _keys: "itertools.count[int]" = field(default_factory=itertools.count)

    def pack(self, snapshot: Snapshot) -> Packed:
        """Take the types out."""
        new: dict[int, bytes] = {}
        pools = tuple(self._key(pool.instance_types, new) for pool in snapshot.pools)
        where = {kind: (key, position) for key, _, spots in self._known.values() for kind, position in spots.items()}
        nodes: dict[int, tuple[int, tuple[int, ...]]] = {}
        for index, node in enumerate(snapshot.nodes):
            spots = [where.get(id(kind)) for kind in node.instance_types]
            keys = {spot[0] for spot in spots if spot is not None}
            if spots and None not in spots and len(keys) == 1:
                nodes[index] = (keys.pop(), tuple(spot[1] for spot in spots if spot is not None))
        bare = replace(
            snapshot,
            pools=tuple(replace(pool, instance_types=()) for pool in snapshot.pools),
            nodes=tuple(replace(n, instance_types=()) if i in nodes else n for i, n in enumerate(snapshot.nodes)),
        )
        return Packed(bare, pools, nodes, new, frozenset(key for key, _, _ in self._known.values()))

    def _key(self, types: Types, new: dict[int, bytes]) -> int:
        known = self._known.pop(id(types), None)
        if known is None:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            known = (next(self._keys), types, {id(kind): index for index, kind in enumerate(types)})
            new[known[0]] = pickle.dumps(types, protocol=pickle.HIGHEST_PROTOCOL)
        self._known[id(types)] = known  # last again: the oldest go first
        return known[0]


@dataclass(slots=True)
class Unpacker:
    """The receiving end."""

    _types: dict[int, Types] = field(default_factory=dict)

    def unpack(self, packed: Packed) -> Snapshot:
        """Put the types back."""
        self._types |= {key: pickle.loads(blob) for key, blob in packed.new.items()}
        self._types = {key: types for key, types in self._types.items() if key in packed.kept}
        snapshot = packed.snapshot
        return replace(
            snapshot,
            pools=tuple(
                replace(pool, instance_types=self._types[key])
                for pool, key in zip(snapshot.pools, packed.pools, strict=True)
            ),
            nodes=tuple(self._node(packed, index) for index in range(len(snapshot.nodes))),
        )

    def _node(self, packed: Packed, index: int) -> ExistingNode:
        node = packed.snapshot.nodes[index]
        if index not in packed.nodes:
            return node
        key, positions = packed.nodes[index]
        types = self._types[key]
        return replace(node, instance_types=tuple(types[p] for p in positions))
