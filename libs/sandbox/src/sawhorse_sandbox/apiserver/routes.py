"""The HTTP face: paths to targets, verbs to operations, failures to Status bodies, one bearer token. Test double."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog
import yaml
from aiohttp import web

from sawhorse_sandbox.apiserver import discovery, eviction, scale
from sawhorse_sandbox.apiserver.errors import ApiError, bad_request, no_such_path
from sawhorse_sandbox.apiserver.listing import Lister, check_revision, list_bytes
from sawhorse_sandbox.apiserver.operations import APPLY, Api, view_bytes
from sawhorse_sandbox.apiserver.resources import Resource
from sawhorse_sandbox.apiserver.selectors import Selection, selection
from sawhorse_sandbox.apiserver.storage import Stored, decode, encode
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, Write, target_of
from sawhorse_sandbox.apiserver.watch import LONGEST, WatchRequest, stream

_log = structlog.get_logger(__name__)

_JSON = "application/json"
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez", "/version"})  # the real server shows these to anyone


class Server:
    """Handles every request. `stopping` ends the watches."""

    def __init__(self, api: Api, token: str, stopping: asyncio.Event) -> None:
        self._api = api
        self._lister = Lister(api)
        self._expected = f"Bearer {token}".encode()
        self._stopping = stopping

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._authenticate(request)
            return await self._route(request)
        except ApiError as err:
            headers = {"Retry-After": str(err.retry_after)} if err.retry_after is not None else None
            return web.Response(status=err.code, body=encode(err.status()), content_type=_JSON, headers=headers)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            # A field of a shape we did not check: the real server refuses such bodies when it decodes them.
            _log.warning("request body not understood", path=request.path, method=request.method, exc_info=err)
            answer = bad_request(f"the body does not have the expected form: {err!r}")
            return web.Response(status=400, body=encode(answer.status()), content_type=_JSON)

    def _authenticate(self, request: web.BaseRequest) -> None:
        if request.path in _OPEN_PATHS:
            return
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self._expected):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        table = self._api.resources
        match parts:
            case ["healthz" | "readyz" | "livez", *_]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(discovery.VERSION)
            case ["api"]:
                return _json(discovery.api_versions())
            case ["apis"]:
                return _json(discovery.group_list(table))
            case ["apis", group]:
                return _json(_or_404(discovery.group(table, group)))
            case ["api", version]:
                return _json(_or_404(discovery.resource_list(table, "", version)))
            case ["apis", group, version]:
                return _json(_or_404(discovery.resource_list(table, group, version)))
            case ["api", version, *rest]:
                return await self._resource(request, "", version, rest)
            case ["apis", group, version, *rest]:
                return await self._resource(request, group, version, rest)
            case ["sandbox", "compact"] if request.method == "POST":
                self._api.store.compact()
                return _json({"revision": self._api.store.revision})
        raise no_such_path()

    async def _resource(
        self, request: web.BaseRequest, group: str, version: str, rest: list[str]
    ) -> web.StreamResponse:
        namespace, plural, name, subresource = _split(rest)
        resource = self._api.resources.find(group, version, plural)
        if plural == "bindings" and group == "" and namespace and request.method == "POST":
            return await self._bind(request, namespace, "")
        if resource is None or (name and resource.namespaced != (namespace is not None)):
            raise no_such_path()
        if not resource.namespaced and namespace is not None:
            raise no_such_path()
        if not name:
            return await self._collection(request, resource, namespace)
        return await self._object(request, Target(resource, namespace or "", name, subresource))

    async def _collection(
        self, request: web.BaseRequest, resource: Resource, namespace: str | None
    ) -> web.StreamResponse:
        query = request.query
        if request.method == "GET":
            chosen = selection(query.get("labelSelector", ""), query.get("fieldSelector", ""))
            if _flag(query, "watch"):
                return await self._watch(request, resource, namespace, chosen)
            check_revision(self._api.store, query.get("resourceVersion", ""))
            limit = int(query.get("limit") or 0)
            page = self._lister.page(resource, namespace, chosen, limit=limit, token=query.get("continue", ""))
            return _raw(page)
        if request.method == "POST":
            if resource.namespaced and namespace is None:
                raise no_such_path()
            body = await _body(request)
            made = self._api.create(Target(resource, namespace or ""), body, _write(request))
            return _raw(view_bytes(resource, made), status=201)
        if request.method == "DELETE":
            chosen = selection(query.get("labelSelector", ""), query.get("fieldSelector", ""))
            return self._delete_collection(resource, namespace, chosen, await _delete_options(request))
        raise _not_allowed(request)

    def _delete_collection(
        self, resource: Resource, namespace: str | None, chosen: Selection, options: DeleteOptions
    ) -> web.Response:
        found = list(self._api.items(resource, namespace, chosen))
        for stored in found:
            self._api.delete(target_of(resource, stored), options)
        return _raw(list_bytes(resource, {"resourceVersion": str(self._api.store.revision)}, found))

    async def _object(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource = target.resource
        if target.subresource in ("binding", "eviction"):
            return await self._pod_verb(request, target)
        if target.subresource == "scale" and resource.scale:
            return await self._scale(request, target)
        if target.subresource == "finalize" and resource.kind == "Namespace":
            target = replace(target, subresource="")
        if target.subresource not in ("", "status") or (target.subresource == "status" and not resource.status):
            raise no_such_path()
        if request.method == "GET":
            return _raw(view_bytes(resource, self._api.get(target)))
        if request.method == "PUT":
            body = await _body(request)
            return _raw(view_bytes(resource, self._api.replace(target, body, _write(request))))
        if request.method == "PATCH":
            patch = await _body(request, of_type=(dict, list))
            force = _flag(request.query, "force")
            kind = request.content_type
            stored, made = self._api.patch(target, kind, patch, _write(request, apply=kind == APPLY), force=force)
            return _raw(view_bytes(resource, stored), status=201 if made else 200)
        if request.method == "DELETE" and not target.subresource:
            deleted = self._api.delete(target, await _delete_options(request))
            if deleted.gone and resource.kind != "Pod":
                return _json(_deleted_status(target, deleted.stored))
            return _raw(view_bytes(resource, deleted.stored))
        raise _not_allowed(request)

    async def _pod_verb(self, request: web.BaseRequest, target: Target) -> web.Response:
        if target.resource.kind != "Pod" or request.method != "POST":
            raise no_such_path() if target.resource.kind != "Pod" else _not_allowed(request)
        if target.subresource == "binding":
            return await self._bind(request, target.namespace, target.name)
        body = await _body(request)
        eviction.evict(self._api, target.namespace, target.name, body)
        return _json(_success(201), status=201)

    async def _bind(self, request: web.BaseRequest, namespace: str, name: str) -> web.Response:
        body = await _body(request)
        pod = name or str((body.get("metadata") or {}).get("name") or "")
        eviction.bind(self._api, namespace, pod, body, _write(request))
        return _json(_success(201), status=201)

    async def _scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        whole = replace(target, subresource="")
        if request.method == "GET":
            return _json(scale.scale_of(self._api.get(whole)))
        if request.method not in ("PUT", "PATCH"):
            raise _not_allowed(request)
        body = await _body(request)
        return _json(scale.scale_of(scale.set_scale(self._api, whole, body, _write(request))))

    async def _watch(
        self, request: web.BaseRequest, resource: Resource, namespace: str | None, chosen: Selection
    ) -> web.StreamResponse:
        query = request.query
        start = check_revision(self._api.store, query.get("resourceVersion", ""))
        initial = _flag(query, "sendInitialEvents")
        watched = WatchRequest(
            resource=resource,
            namespace=namespace,
            selection=chosen,
            start=0 if initial else start,
            timeout=float(query.get("timeoutSeconds") or LONGEST),
            bookmarks=_flag(query, "allowWatchBookmarks"),
            mark_initial_end=initial,
        )
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        async for chunk in stream(self._api, watched, self._stopping):
            await response.write(chunk)
        await response.write_eof()
        return response


def _flag(query: Mapping[str, str], name: str) -> bool:
    """As Go parses booleans: the Python client sends `True`."""
    return query.get(name, "") in ("1", "t", "T", "true", "TRUE", "True")


def _split(rest: list[str]) -> tuple[str | None, str, str, str]:
    """Namespace (None for cluster-wide), plural, name and subresource of the path after the version."""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace: str | None = rest[1]
        rest = rest[2:]
    else:
        namespace = None
    if len(rest) > 3:
        raise no_such_path()
    padded = [*rest, "", ""]
    return namespace, padded[0], padded[1], padded[2]


async def _body(request: web.BaseRequest, *, of_type: tuple[type, ...] = (dict,)) -> Any:
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge as err:
        raise ApiError(413, "RequestEntityTooLarge", "Request entity too large") from err
    if request.content_type == "application/vnd.kubernetes.protobuf":
        raise ApiError(415, "UnsupportedMediaType", "the sandbox speaks JSON and YAML only")
    body = _parse(raw, yaml_allowed="yaml" in request.content_type)
    if not isinstance(body, of_type):
        raise bad_request("the body must be a JSON object")
    return body


def _parse(raw: bytes, *, yaml_allowed: bool) -> Any:
    try:
        return decode(raw)
    except msgspec.DecodeError as err:
        if not yaml_allowed:
            raise bad_request(f"the body is not JSON: {err}") from err
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as err:
        raise bad_request(f"the body is not YAML: {err}") from err


def _write(request: web.BaseRequest, *, apply: bool = False) -> Write:
    """Who writes: the named field manager, or else the program in the user agent, as the real server takes it."""
    manager = request.query.get("fieldManager", "")
    if not manager and not apply:
        manager = request.headers.get("User-Agent", "unknown").partition("/")[0] or "unknown"
    strict = request.query.get("fieldValidation") == "Strict"
    return Write(manager, dry_run=bool(request.query.get("dryRun")), strict=strict)


async def _delete_options(request: web.BaseRequest) -> DeleteOptions:
    raw = await request.read()
    body: Mapping[str, Any] = _parse(raw, yaml_allowed=False) if raw else {}
    if not isinstance(body, dict):
        raise bad_request("the options of a delete must be a JSON object")
    options = eviction.delete_options(body)
    query = request.query
    if query.get("gracePeriodSeconds"):
        options = replace(options, grace=int(query["gracePeriodSeconds"]))
    if query.get("propagationPolicy"):
        options = replace(options, propagation=query["propagationPolicy"])
    return replace(options, dry_run=options.dry_run or bool(query.get("dryRun")))


def _deleted_status(target: Target, stored: Stored) -> dict[str, Any]:
    details = {"name": target.name, "kind": target.resource.plural, "uid": stored.uid}
    if target.resource.group:
        details["group"] = target.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _success(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _or_404(found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        raise no_such_path()
    return found


def _not_allowed(request: web.BaseRequest) -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {request.method}")


def _json(body: object, *, status: int = 200) -> web.Response:
    return _raw(encode(body), status=status)


def _raw(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, content_type=_JSON)
