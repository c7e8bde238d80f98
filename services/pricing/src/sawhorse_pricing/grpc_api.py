"""`sawhorse.catalog.v1.CatalogService`: messages in, the catalogue's answers out."""

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, cast

import grpc

from sawhorse_catalog.wire import requirements_from_messages
from sawhorse_cloud.scopes import ANY, parse_scope
from sawhorse_model.aws import KIND, NODECLASS_LABEL, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.instances import CapacityType
from sawhorse_model.manifests import PARSERS, ManifestError
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower
from sawhorse_pricing.serving import Catalogue, Resolved
from sawhorse_pricing.shared import Report, Shared
from sawhorse_proto.catalog.v1 import catalog_pb2, catalog_pb2_grpc
from sawhorse_proto.catalog.v1.catalog_pb2_grpc import add_CatalogServiceServicer_to_server
from sawhorse_runtime.errors import InvalidRequestError

SERVICE_NAME = "sawhorse.catalog.v1.CatalogService"
WATCH_DEADLINES: Mapping[str, timedelta | None] = {f"/{SERVICE_NAME}/Watch": None}
_WATCH_LOOK = timedelta(seconds=30)
MOST_REPORTS = 10_000  # a fleet asks for at most 60 types in some zones


class CatalogApi(catalog_pb2_grpc.CatalogServiceServicer):
    """The servicer. Errors are raised in our tree; the server turns them into statuses."""

    def __init__(self, *, catalogue: Catalogue, shared: Shared, follower: Follower, instruments: Instruments) -> None:
        self._catalogue = catalogue
        self._shared = shared
        self._follower = follower
        self._instruments = instruments
        self._closed = False

    async def ListInstanceTypes(self, request: catalog_pb2.ListInstanceTypesRequest, context: Any) -> Any:
        """See the proto. The whole list is answered as the bytes of its message."""
        try:
            wanted = requirements_from_messages(request.requirements)
        except ValueError as error:
            raise InvalidRequestError(f"requirements: {error}") from error
        if not (math.isfinite(request.max_price) and request.max_price >= 0):
            raise InvalidRequestError(f"max_price: {request.max_price!r} is no price; give 0 for any")
        if request.page_size < 0:
            raise InvalidRequestError(f"page_size: {request.page_size} is negative; give 0 for all in one answer")
        if request.known_version and request.known_version == self._catalogue.version:
            return catalog_pb2.ListInstanceTypesResponse(info=self._catalogue.info(), not_modified=True)
        # The version is read before: should it move on meanwhile, the caller asks once too often, never too rarely.
        info = self._catalogue.info()
        everything = await self._catalogue.resolve(None, "")
        if not (wanted or request.max_price or request.page_size or request.page_token):
            return catalog_pb2.ListInstanceTypesResponse(info=info).SerializeToString() + everything.body
        question = catalog_pb2.ListInstanceTypesRequest(requirements=request.requirements, max_price=request.max_price)
        found = everything.matching(wanted, request.max_price, question.SerializeToString(deterministic=True))
        start = bisect_right(found, request.page_token, key=lambda message: message.name) if request.page_token else 0
        end = start + request.page_size if request.page_size else len(found)
        return catalog_pb2.ListInstanceTypesResponse(
            info=info,
            instance_types=found[start:end],
            next_page_token=found[end - 1].name if end < len(found) else "",
        )

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

    async def Resolve(self, request: catalog_pb2.ResolveRequest, context: Any) -> Any:
        """See the proto. Types are answered as the bytes of their message."""
        node_class = read_node_class(request.node_class_json)
        key = class_key(node_class)
        known = request.known_version
        if known and self._catalogue.is_loaded and known == self._catalogue.version_for(key):
            return catalog_pb2.ResolveResponse(info=self._catalogue.info(known), not_modified=True)
        resolved: Resolved = await self._catalogue.resolve(node_class, key)
        head = catalog_pb2.ResolveResponse(
            info=self._catalogue.info(resolved.version),
            node_labels={NODECLASS_LABEL: node_class.name},
            excluded=resolved.excluded,
            measured=resolved.measured,
        )
        return head.SerializeToString() + resolved.body

    async def Watch(self, request: catalog_pb2.WatchRequest, context: Any) -> AsyncIterator[catalog_pb2.CatalogInfo]:
        """See the proto. A slow reader misses versions in between, never the last."""
        known = request.known_version
        self._instruments.watchers.inc()
        try:
            while not self._closed:
                if self._catalogue.is_loaded and self._catalogue.version != known:
                    known = self._catalogue.version
                    yield self._catalogue.info()
                    continue  # it may have been closed while the reader took it
                await self._catalogue.wait_beyond(known, _WATCH_LOOK)
        finally:
            self._instruments.watchers.dec()

    def close(self) -> None:
        """End all watches, so that the server can stop without cutting them off."""
        self._closed = True
        self._catalogue.wake_waiting()

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


def add_catalog_service(api: CatalogApi, server: grpc.aio.Server) -> None:
    """Register the servicer. Answers that are bytes already are sent as they are: a whole list is written only once."""
    add_CatalogServiceServicer_to_server(api, cast(Any, _Registrar(server)))


class _Registrar:
    """Stands in for the server while the generated code registers: it lets serializers pass bytes through."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The generated code calls both; the next one carries the same."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register the methods of a service."""
        made = {name: _passing_bytes(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, made),))


def _passing_bytes(handler: Any) -> Any:
    if handler.response_streaming:
        return handler
    write = handler.response_serializer
    return grpc.unary_unary_rpc_method_handler(
        handler.unary_unary,
        request_deserializer=handler.request_deserializer,
        response_serializer=lambda answer: answer if isinstance(answer, bytes) else write(answer),
    )


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
        "reservations": neutral.status.get("capacityReservations"),
    }
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def _report(message: catalog_pb2.UnavailableOffering, path: str) -> Report:
    if message.capacity_type not in set(CapacityType):
        words = ", ".join(CapacityType)
        raise InvalidRequestError(f"{path}.capacity_type: {message.capacity_type!r} is not one of {words}")
    if message.scope and parse_scope(message.scope) is None:
        raise InvalidRequestError(f"{path}.scope: {message.scope!r} is no scope such as subnet/ID")
    for field in ("instance_type", "zone"):
        if not getattr(message, field) or ":" in getattr(message, field):
            raise InvalidRequestError(f"{path}.{field}: {getattr(message, field)!r} is not a name")
        if getattr(message, field) == ANY and not message.scope:
            raise InvalidRequestError(f"{path}.{field}: '*' needs a scope")
    return Report(
        message.capacity_type, message.instance_type, message.zone, message.reason or "Unknown", message.scope
    )
