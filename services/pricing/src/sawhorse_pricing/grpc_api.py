"""`sawhorse.catalog.v1.CatalogService`: messages in, the catalogue's answers out."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import grpc

from sawhorse_catalog.wire import instance_type_to_message, requirements_from_messages
from sawhorse_model.aws import KIND, NODECLASS_LABEL, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.instances import CapacityType
from sawhorse_model.manifests import PARSERS, ManifestError
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower
from sawhorse_pricing.serving import Catalogue, Resolved, filtered
from sawhorse_pricing.shared import Report, Shared
from sawhorse_proto.catalog.v1 import catalog_pb2, catalog_pb2_grpc
from sawhorse_runtime.errors import InvalidRequestError

SERVICE_NAME = "sawhorse.catalog.v1.CatalogService"
MOST_REPORTS = 10_000  # a fleet asks for at most 60 types in some zones


class CatalogApi(catalog_pb2_grpc.CatalogServiceServicer):
    """The servicer. Errors are raised in our tree; the server turns them into statuses."""

    def __init__(self, *, catalogue: Catalogue, shared: Shared, follower: Follower, instruments: Instruments) -> None:
        self._catalogue = catalogue
        self._shared = shared
        self._follower = follower
        self._instruments = instruments

    async def ListInstanceTypes(
        self, request: catalog_pb2.ListInstanceTypesRequest, context: Any
    ) -> catalog_pb2.ListInstanceTypesResponse:
        """See the proto."""
        try:
            wanted = requirements_from_messages(request.requirements)
        except ValueError as error:
            raise InvalidRequestError(f"requirements: {error}") from error
        if request.known_version and request.known_version == self._catalogue.version:
            return catalog_pb2.ListInstanceTypesResponse(info=self._catalogue.info(), not_modified=True)
        # The version is read before: should it move on meanwhile, the caller asks once too often, never too rarely.
        info = self._catalogue.info()
        everything = await self._catalogue.resolve(None, "")
        found = everything.messages
        if wanted:
            found = tuple(instance_type_to_message(t) for t in filtered(everything.types, wanted))
        return catalog_pb2.ListInstanceTypesResponse(info=info, instance_types=found)

    async def GetInstanceType(
        self, request: catalog_pb2.GetInstanceTypeRequest, context: Any
    ) -> catalog_pb2.GetInstanceTypeResponse:
        """See the proto."""
        info = self._catalogue.info()
        everything = await self._catalogue.resolve(None, "")
        found = everything.message(request.name)
        if found is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"instance type {request.name!r} is not in the catalogue; check its name"
            )
        return catalog_pb2.GetInstanceTypeResponse(info=info, instance_type=found)

    async def Resolve(self, request: catalog_pb2.ResolveRequest, context: Any) -> catalog_pb2.ResolveResponse:
        """See the proto."""
        node_class = read_node_class(request.node_class_json)
        key = class_key(node_class)
        known = request.known_version
        if known and self._catalogue.is_loaded and known == self._catalogue.version_for(key):
            return catalog_pb2.ResolveResponse(info=self._catalogue.info(known), not_modified=True)
        resolved: Resolved = await self._catalogue.resolve(node_class, key)
        return catalog_pb2.ResolveResponse(
            info=self._catalogue.info(resolved.version),
            instance_types=resolved.messages,
            node_labels={NODECLASS_LABEL: node_class.name},
        )

    async def ReportUnavailable(
        self, request: catalog_pb2.ReportUnavailableRequest, context: Any
    ) -> catalog_pb2.ReportUnavailableResponse:
        """See the proto."""
        if len(request.offerings) > MOST_REPORTS:
            raise InvalidRequestError(f"offerings: {len(request.offerings)} at once; report at most {MOST_REPORTS}")
        reports = tuple(_report(o, f"offerings[{i}]") for i, o in enumerate(request.offerings))
        if reports:
            await self._shared.mark(reports)
            await self._follower.look_unavailable()
            await self._shared.wake_readers("offerings-unavailable")
            for report in reports:
                self._instruments.reported.labels(report.capacity_type).inc()
        return catalog_pb2.ReportUnavailableResponse(version=self._catalogue.version)


def read_node_class(data: bytes) -> EC2NodeClass:
    """A NodeClass from the JSON of the API.

    Raises:
        InvalidRequestError: naming the field.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"node_class_json: it is not JSON ({error})") from error
    if not isinstance(raw, Mapping) or raw.get("kind", KIND) != KIND:
        raise InvalidRequestError(f"node_class_json: it holds no {KIND}")
    try:
        return parse_ec2_node_class(PARSERS[KIND](raw))
    except ManifestError as error:
        raise InvalidRequestError(f"node_class_json: {error}") from error


def class_key(node_class: EC2NodeClass) -> str:
    """Names all that resolution may read of a NodeClass: its name, spec, subnets and images."""
    neutral = node_class.node_class
    read = {
        "name": neutral.meta.name,
        "spec": neutral.spec,
        "subnets": neutral.status.get("subnets"),
        "amis": neutral.status.get("amis"),
    }
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def _report(message: catalog_pb2.UnavailableOffering, path: str) -> Report:
    if message.capacity_type not in set(CapacityType):
        words = ", ".join(CapacityType)
        raise InvalidRequestError(f"{path}.capacity_type: {message.capacity_type!r} is not one of {words}")
    for field in ("instance_type", "zone"):
        if not getattr(message, field) or ":" in getattr(message, field):
            raise InvalidRequestError(f"{path}.{field}: {getattr(message, field)!r} is not a name")
    return Report(message.capacity_type, message.instance_type, message.zone, message.reason or "Unknown")
