"""The catalogue over gRPC: instance types as each NodeClass sees them, kept until catalogue or NodeClass change."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sawhorse_catalog.wire import instance_type_from_message
from sawhorse_cloud.errors import FailedOffering
from sawhorse_kube.kinds import Kind
from sawhorse_model.instances import InstanceType
from sawhorse_model.manifests.fields import condition_to_raw
from sawhorse_model.nodeclass import NodeClass
from sawhorse_proto.catalog.v1 import catalog_pb2
from sawhorse_runtime.rpc import call

_TIMEOUT = 15.0  # seconds; a cold answer is built in a tenth of one
_SLICE = 100  # types read between two turns of other tasks
_MOST_TYPES = 20_000


@dataclass(frozen=True, slots=True)
class ResolvedTypes:
    """What a NodeClass makes of the catalogue. `version` changes with anything in it.

    `measured` are the types whose memory is what nodes reported; that of all others is an estimate.
    """

    version: str
    instance_types: tuple[InstanceType, ...]
    node_labels: Mapping[str, str]
    measured: frozenset[str] = frozenset()


class Catalog(Protocol):
    """What the provisioner needs of the catalogue; every call is bounded and raises SawhorseError."""

    async def resolve(self, node_class: NodeClass) -> ResolvedTypes:
        """The instance types of a NodeClass; the same object as long as nothing changed."""
        ...

    async def report_unavailable(self, failed: Sequence[FailedOffering]) -> None:
        """Tell which offerings had no capacity."""
        ...


class CatalogClient:
    """See Catalog. `stub` is a CatalogServiceStub."""

    def __init__(self, stub: Any, kind: Kind) -> None:
        self._stub = stub
        self._kind = kind
        self._known: dict[str, tuple[str, ResolvedTypes]] = {}  # name of the class → hash of what was asked, answer
        self._types: dict[bytes, InstanceType] = {}  # by message

    async def resolve(self, node_class: NodeClass) -> ResolvedTypes:
        """See Catalog."""
        question = node_class_json(node_class, self._kind)
        # Without the conditions: no type hangs on them, and a look-up that fails changes those of every class.
        asked = hashlib.sha256(node_class_json(replace(node_class, conditions=()), self._kind)).hexdigest()
        known = self._known.get(node_class.meta.name)
        request = catalog_pb2.ResolveRequest(
            node_class_json=question,
            known_version=known[1].version if known is not None and known[0] == asked else "",
        )
        answer = await call(self._stub.Resolve, request, timeout=_TIMEOUT, service="pricing")
        if answer.not_modified and known is not None:
            return known[1]
        resolved = ResolvedTypes(
            version=answer.info.version,
            instance_types=await self._read(answer.instance_types),
            node_labels=dict(answer.node_labels),
            measured=frozenset(answer.measured),
        )
        self._known[node_class.meta.name] = (asked, resolved)
        return resolved

    async def _read(self, messages: Sequence[Any]) -> tuple[InstanceType, ...]:
        """Read types; one whose message is the same as before is the same object. Others get their turn between."""
        types: list[InstanceType] = []
        fresh: dict[bytes, InstanceType] = {}
        for number, message in enumerate(messages):
            content = message.SerializeToString(deterministic=True)
            known = self._types.get(content) or instance_type_from_message(message)
            fresh[content] = known
            types.append(known)
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        # Of several NodeClasses: what the last answers had, up to a bound.
        merged = {**self._types, **fresh}
        self._types = merged if len(merged) <= _MOST_TYPES else fresh
        return tuple(types)

    async def report_unavailable(self, failed: Sequence[FailedOffering]) -> None:
        """See Catalog."""
        if not failed:
            return
        request = catalog_pb2.ReportUnavailableRequest(
            offerings=[
                catalog_pb2.UnavailableOffering(
                    capacity_type=f.capacity_type,
                    instance_type=f.instance_type,
                    zone=f.zone,
                    reason=f.code,
                    scope=f.scope,
                )
                for f in failed
            ]
        )
        await call(self._stub.ReportUnavailable, request, timeout=_TIMEOUT, service="pricing")


def node_class_json(node_class: NodeClass, kind: Kind) -> bytes:
    """A NodeClass as the API gives it, without the parts that change often and decide nothing."""
    meta = node_class.meta
    return json.dumps(
        {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": meta.name,
                "uid": meta.uid,
                "generation": meta.generation,
                "annotations": dict(meta.annotations),
            },
            "spec": node_class.spec,
            "status": {
                **{k: v for k, v in node_class.status.items() if k != "conditions"},
                "conditions": [
                    {k: v for k, v in condition_to_raw(c).items() if k != "lastTransitionTime"}
                    for c in node_class.conditions
                ],
            },
        },
        sort_keys=True,
    ).encode()
