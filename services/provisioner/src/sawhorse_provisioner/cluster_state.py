"""The one brain: Kubernetes as the mirror shows it, and what this process knows beyond it.

Own memory: objects that we wrote or deleted before the watch brings them, nominations, pools that wait. All of it may
be lost: a new leader starts with the mirror alone.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from sawhorse_kube.kinds import NODE, NODECLAIM, NODEPOOL, Kind
from sawhorse_model.cluster import (
    CSINode,
    DaemonSet,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    Service,
    StorageClass,
    VolumeAttachment,
    Workload,
)
from sawhorse_model.labels import INTERRUPTED_AT
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_model.meta import is_true
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import INSTANCE_TERMINATING, NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod
from sawhorse_provisioner.expectations import Expectations
from sawhorse_provisioner.pacing import PoolPace
from sawhorse_provisioner.pool_types import PoolTypes
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_runtime.clock import Clock

Changed = Callable[[str, str, str], None]
"""Called with kind, key and operation of each change that the mirror brings."""

_DELETE_REMEMBERED = 60.0  # seconds; the watch brings a deletion long before


class MirrorView(Protocol):
    """What is read of `sawhorse_state.mirror.Mirror`."""

    @property
    def synced(self) -> bool: ...
    @property
    def version(self) -> int: ...
    def all(self, kind: str) -> Mapping[str, Any]: ...
    def get(self, kind: str, key: str) -> Any: ...
    def pods_on(self, node_name: str) -> Sequence[Pod]: ...
    def subscribe(self, callback: Changed) -> None: ...
    def note_own(self, kind: str, obj: Any) -> None: ...


class ClusterState:
    """See the module. Belongs to one event loop; every answer is of this moment."""

    def __init__(self, mirror: MirrorView, *, words: NodeClassWords, clock: Clock, nomination: timedelta) -> None:
        self._mirror = mirror
        self._words = words
        self._clock = clock
        self._nomination = nomination.total_seconds()
        self._by_provider_id: dict[str, list[str]] = {}  # provider id → names of nodes
        self._claim_by_provider_id: dict[str, list[str]] = {}
        self._stale = True
        self._deleted: dict[str, float] = {}  # uid of an object that we deleted → monotonic time of forgetting
        self._nominated: dict[str, float] = {}  # node or claim → until
        self.expected = Expectations(clock, settle=self._nomination)
        self.pool_types = PoolTypes()
        self.pace = PoolPace(clock)
        mirror.subscribe(self._changed)

    # Reading

    @property
    def synced(self) -> bool:
        """Whether the mirror is complete; if not, nothing may be decided."""
        return self._mirror.synced

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._mirror.version

    def claims(self) -> list[NodeClaim]:
        """The NodeClaims of our NodeClass kind."""
        return [c for c in self._mirror.all(NODECLAIM.name).values() if self.is_managed(c)]

    def claim(self, name: str) -> NodeClaim | None:
        """One of them."""
        claim: NodeClaim | None = self._mirror.get(NODECLAIM.name, name)
        return claim if claim is not None and self.is_managed(claim) else None

    def is_managed(self, obj: NodeClaim | NodePool) -> bool:
        """Whether its NodeClass is of our kind; others belong to somebody else."""
        ref = obj.node_class_ref if isinstance(obj, NodeClaim) else obj.template.node_class_ref
        return (ref.group, ref.kind) == (self._words.kind.group, self._words.kind.name)

    def nodes(self) -> list[Node]:
        """All nodes, ours or not."""
        return list(self._mirror.all(NODE.name).values())

    def node(self, name: str) -> Node | None:
        """One node."""
        node: Node | None = self._mirror.get(NODE.name, name)
        return node

    def nodes_of(self, provider_id: str) -> list[Node]:
        """Nodes with this provider id: one, save while something is wrong or not there yet."""
        if not provider_id:
            return []
        self._index()
        found = (self.node(name) for name in self._by_provider_id.get(provider_id, ()))
        return [n for n in found if n is not None]

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The claim of a node; None when there is none or more than one."""
        if not node.provider_id:
            return None
        self._index()
        names = self._claim_by_provider_id.get(node.provider_id, ())
        return self.claim(names[0]) if len(names) == 1 else None

    def is_ours(self, node: Node) -> bool:
        """Whether the node was made for a NodeClass of our kind."""
        return self._words.label in node.meta.labels or self.claim_of(node) is not None

    def pools(self) -> list[NodePool]:
        """The NodePools of our NodeClass kind."""
        return [p for p in self._mirror.all(NODEPOOL.name).values() if self.is_managed(p)]

    def pool(self, name: str) -> NodePool | None:
        """One of them."""
        pool: NodePool | None = self._mirror.get(NODEPOOL.name, name)
        return pool if pool is not None and self.is_managed(pool) else None

    def node_classes(self) -> list[NodeClass]:
        """All NodeClasses of our kind."""
        return list(self._mirror.all(self._words.kind.name).values())

    def node_class(self, name: str) -> NodeClass | None:
        """One NodeClass."""
        found: NodeClass | None = self._mirror.get(self._words.kind.name, name)
        return found

    def pods(self) -> list[Pod]:
        """All pods."""
        return list(self._mirror.all("Pod").values())

    def pod(self, key: str) -> Pod | None:
        """One pod by `namespace/name`."""
        pod: Pod | None = self._mirror.get("Pod", key)
        return pod

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Pods bound to a node, ended ones included."""
        return self._mirror.pods_on(node)

    def daemon_sets(self) -> tuple[DaemonSet, ...]:
        """All DaemonSets."""
        return tuple(self._mirror.all("DaemonSet").values())

    def namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces."""
        return tuple(self._mirror.all("Namespace").values())

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets."""
        return tuple(self._mirror.all("PodDisruptionBudget").values())

    def volume_attachments(self, node: str) -> list[VolumeAttachment]:
        """Volumes attached to a node."""
        return [a for a in self._mirror.all("VolumeAttachment").values() if a.node_name == node]

    def volume_claim(self, key: str) -> PersistentVolumeClaim | None:
        """One PersistentVolumeClaim by `namespace/name`."""
        found: PersistentVolumeClaim | None = self._mirror.get("PersistentVolumeClaim", key)
        return found

    def volumes(self) -> Mapping[str, PersistentVolume]:
        """All PersistentVolumes by name."""
        return self._mirror.all("PersistentVolume")

    def storage_classes(self) -> Mapping[str, StorageClass]:
        """All StorageClasses by name."""
        return self._mirror.all("StorageClass")

    def csi_nodes(self) -> Mapping[str, CSINode]:
        """All CSINodes by the name of their node."""
        return self._mirror.all("CSINode")

    def services(self) -> tuple[Service, ...]:
        """All Services."""
        return tuple(self._mirror.all("Service").values())

    def workloads(self) -> tuple[Workload, ...]:
        """All ReplicaSets, StatefulSets and ReplicationControllers."""
        kinds = ("ReplicaSet", "StatefulSet", "ReplicationController")
        return tuple(workload for kind in kinds for workload in self._mirror.all(kind).values())

    def is_going(self, claim: NodeClaim) -> bool:
        """Whether the claim's capacity will end: it is being deleted, also by a call whose echo is still to come."""
        return (
            claim.meta.is_deleting or claim.meta.uid in self._deleted or is_true(claim.conditions, INSTANCE_TERMINATING)
        )

    def is_node_going(self, node: Node) -> bool:
        """Whether the node will end, by itself or with its claim."""
        if node.meta.is_deleting or node.meta.uid in self._deleted:
            return True
        claim = self.claim_of(node)
        return claim is not None and self.is_going(claim)

    def interrupted(self) -> list[NodeClaim]:
        """Claims whose machine the cloud takes away: deleting, annotated, not yet gone. By name."""
        found = [c for c in self.claims() if INTERRUPTED_AT in c.meta.annotations and c.meta.is_deleting]
        return sorted(found, key=lambda c: c.meta.name)

    def claims_of_pool(self, pool: str) -> list[NodeClaim]:
        """All claims of a NodePool."""
        return [c for c in self.claims() if c.meta.labels.get(NODEPOOL_LABEL) == pool]

    # Memory

    def note(self, kind: Kind, obj: Any) -> None:
        """An object as our own write returned it: visible at once."""
        self._mirror.note_own(kind.name, obj)
        if kind in (NODE, NODECLAIM):
            self._stale = True

    def note_deleted(self, uid: str) -> None:
        """We asked for the deletion of this object."""
        now = self._clock.monotonic()
        for old in [u for u, until in self._deleted.items() if until <= now]:
            del self._deleted[old]
        self._deleted[uid] = now + _DELETE_REMEMBERED

    def nominate(self, name: str) -> None:
        """A pending pod is expected on this node or claim: leave it alone for a while."""
        now = self._clock.monotonic()
        if len(self._nominated) > 10_000:
            self._nominated = {n: until for n, until in self._nominated.items() if until > now}
        self._nominated[name] = now + self._nomination

    def is_nominated(self, name: str) -> bool:
        """Whether a pod is expected there."""
        return self._nominated.get(name, 0.0) > self._clock.monotonic()

    def is_held(self, pool: str) -> bool:
        """Whether planning leaves the pool out for now."""
        return self.pace.is_held(pool)

    def reset(self) -> None:
        """Forget everything that Kubernetes does not say: a new term begins."""
        self._deleted.clear()
        self._nominated.clear()
        self.expected.reset()
        self.pace.reset()

    def _changed(self, kind: str, key: str, op: str) -> None:
        if kind in (NODE.name, NODECLAIM.name):
            self._stale = True

    def _index(self) -> None:
        if not self._stale:
            return
        self._by_provider_id = {}
        for node in self.nodes():
            if node.provider_id:
                self._by_provider_id.setdefault(node.provider_id, []).append(node.meta.name)
        self._claim_by_provider_id = {}
        for claim in self.claims():
            if claim.provider_id:
                self._claim_by_provider_id.setdefault(claim.provider_id, []).append(claim.meta.name)
        self._stale = False
