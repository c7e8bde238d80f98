"""Model objects as msgspec JSON and back, by the name of their kind."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from sawhorse_model.cluster import (
    CSINode,
    DaemonSet,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PriorityClass,
    Service,
    StorageClass,
    VolumeAttachment,
    Workload,
)
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod
from sawhorse_state.errors import StateFormatError

TYPES: Mapping[str, type[Any]] = {
    "Pod": Pod,
    "Node": Node,
    "NodeClaim": NodeClaim,
    "NodePool": NodePool,
    "DaemonSet": DaemonSet,
    "ReplicaSet": Workload,
    "StatefulSet": Workload,
    "ReplicationController": Workload,
    "PodDisruptionBudget": PodDisruptionBudget,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSINode": CSINode,
    "VolumeAttachment": VolumeAttachment,
    "Namespace": Namespace,
    "PriorityClass": PriorityClass,
    "Service": Service,
    "EC2NodeClass": NodeClass,
}
"""What is stored under each kind. A kind that is not named here is a NodeClass of another cloud."""

_encoder = msgspec.json.Encoder()


def encode(obj: Any) -> bytes:
    """A model object as JSON."""
    return _encoder.encode(obj)


def decode(kind: str, data: bytes) -> Any:
    """The model object of a kind.

    Raises:
        StateFormatError: the value was not written by this version.
    """
    try:
        return _decoder(kind).decode(data)
    except (msgspec.DecodeError, ValueError) as err:
        raise StateFormatError(f"a {kind} in the mirror cannot be read ({err})") from err


@lru_cache(maxsize=64)
def _decoder(kind: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(TYPES.get(kind, NodeClass))
