"""The client against a scripted HTTP server: answers become errors of our tree, and nothing waits without a bound."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sawhorse_kube import client as client_module
from sawhorse_kube.api import WatchType
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeConfigError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    ThrottledError,
    error_from,
)
from sawhorse_kube.kinds import NODE, POD
from sawhorse_kube.transport import RateLimit
from sawhorse_kube.watching import LineSplitter
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import Pod

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKEN = "secret-1"


class Server:
    """Answers as the test says and remembers what was asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.url = ""
        self.answer: Answer = _empty

    def write_kubeconfig(self, token: str) -> None:
        self.kubeconfig.write_text(
            f"""apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{self.url}"}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.json() if request.can_read_body else None)
        return await self.answer(request)

    def says(self, status: int, body: Any) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status)

        self.answer = answer


async def _empty(_: web.Request) -> web.StreamResponse:
    return web.json_response({"items": [], "metadata": {"resourceVersion": "5"}})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    made.write_kubeconfig(TOKEN)
    yield made
    await runner.cleanup()


@asynccontextmanager
async def client(server: Server, **more: Any) -> AsyncIterator[KubeClient]:
    async with connect_kube(kubeconfig=server.kubeconfig, **more) as kube:
        yield kube


def a_status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


BUDGET = a_status(429, "TooManyRequests", "Cannot evict pod", causes=[{"reason": "DisruptionBudget"}])


@pytest.mark.parametrize(
    ("status", "body", "eviction", "expected", "retry"),
    [
        (404, a_status(404, "NotFound", "gone", name="a"), False, NotFoundError, "never"),
        (409, a_status(409, "AlreadyExists", "there"), False, AlreadyExistsError, "never"),
        (409, a_status(409, "Conflict", "changed"), False, ConflictError, "backoff"),
        (410, a_status(410, "Expired", "too old"), False, GoneError, "backoff"),
        (422, a_status(422, "Invalid", "bad"), False, InvalidError, "never"),
        (400, {}, False, InvalidError, "never"),
        (401, {}, False, ForbiddenError, "backoff"),
        (403, a_status(403, "Forbidden", "no"), False, ForbiddenError, "backoff"),
        (429, BUDGET, True, EvictionBlockedError, "backoff"),
        (429, BUDGET, False, ThrottledError, "backoff"),
        (429, a_status(429, "TooManyRequests", "slow down"), True, ThrottledError, "backoff"),
        (
            500,
            a_status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which is not supported"),
            True,
            EvictionBlockedError,
            "backoff",
        ),
        (500, {}, True, KubeUnavailableError, "backoff"),
        (503, {}, False, KubeUnavailableError, "backoff"),
    ],
)
def test_an_answer_becomes_an_error_that_says_what_to_do_next(
    status: int, body: dict[str, Any], eviction: bool, expected: type[KubeError], retry: str
) -> None:
    error = error_from(status, body, 'patch Node "a"', eviction=eviction)

    assert type(error) is expected
    assert (error.status, error.retry) == (status, retry)
    assert str(error).startswith('patch Node "a": ')


async def test_an_error_names_verb_kind_and_object(server: Server) -> None:
    server.says(403, a_status(403, "Forbidden", "pods is forbidden"))

    async with client(server) as kube:
        with pytest.raises(ForbiddenError, match=r'get Pod "web/a": pods is forbidden') as caught:
            await kube.get(POD, "a", "web")

    assert "ClusterRole" in caught.value.action


async def test_an_answer_in_plain_text_is_quoted(server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="upstream is down")

    server.answer = answer

    async with client(server) as kube:
        with pytest.raises(KubeUnavailableError, match="upstream is down"):
            await kube.get(NODE, "n")


async def test_an_answer_that_is_not_json_is_no_answer(server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    server.answer = answer

    async with client(server) as kube:
        with pytest.raises(KubeUnavailableError, match="not JSON"):
            await kube.get(NODE, "n")


async def test_a_server_that_does_not_answer_is_given_up_in_time(server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    server.answer = answer

    async with client(server, request_timeout=timedelta(milliseconds=200)) as kube:
        with pytest.raises(KubeUnavailableError, match=r"no answer within 0\.2 s"):
            await kube.get(NODE, "n")


async def test_a_server_that_is_not_there_is_told_with_what_to_check(server: Server) -> None:
    server.url = "http://127.0.0.1:1"
    server.write_kubeconfig(TOKEN)

    async with client(server) as kube:
        with pytest.raises(KubeUnavailableError) as caught:
            await kube.get(NODE, "n")

    assert "its address is right" in caught.value.action


async def test_a_token_that_expired_is_read_again_once(server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer secret-2":
            return web.json_response(a_status(401, "Unauthorized", "Unauthorized"), status=401)
        return web.json_response({"metadata": {"name": "n"}})

    server.answer = answer

    async with client(server) as kube:
        with pytest.raises(ForbiddenError, match="Unauthorized"):
            await kube.get(NODE, "n")
        server.write_kubeconfig("secret-2")
        node = await kube.get(NODE, "n")

    assert node.meta.name == "n"
    assert len(server.requests) == 4


async def test_a_list_is_read_page_by_page(server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        page = int(request.query.get("continue", "0"))
        more = {"continue": str(page + 1)} if page < 2 else {}
        items = [{"metadata": {"name": f"n{page}"}}]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "7", **more}})

    server.answer = answer

    async with client(server) as kube:
        listing = await kube.list(NODE, label_selector="a=b", field_selector="metadata.name=x")

    assert [node.meta.name for node in listing.objects] == ["n0", "n1", "n2"]
    assert listing.resource_version == "7"
    assert {r.query["labelSelector"] for r in server.requests} == {"a=b"}
    assert {r.query["fieldSelector"] for r in server.requests} == {"metadata.name=x"}


async def test_pages_that_expired_are_replaced_by_one_whole_list(server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response(a_status(410, "Expired", "too old"), status=410)
        more = {"continue": "x"} if "limit" in request.query else {}
        items = [{"metadata": {"name": "n0"}}, {"metadata": {"name": "bad", "labels": 5}}]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "7", **more}})

    server.answer = answer

    async with client(server) as kube:
        listing = await kube.list(NODE)

    assert [node.meta.name for node in listing.objects] == ["n0"]
    assert listing.unreadable == 1


async def test_an_eviction_carries_the_uid_and_a_blocked_one_says_so(server: Server) -> None:
    server.says(429, BUDGET)
    pod = Pod(ObjectMeta("a", "web", uid="u-1"))

    async with client(server) as kube:
        with pytest.raises(EvictionBlockedError):
            await kube.evict(pod, grace_seconds=5)

    assert server.requests[0].path == "/api/v1/namespaces/web/pods/a/eviction"
    options = server.bodies[0]["deleteOptions"]
    assert (options["preconditions"], options["gracePeriodSeconds"]) == ({"uid": "u-1"}, 5)


async def test_the_minor_version_of_managed_clusters_is_a_number(server: Server) -> None:
    server.says(200, {"major": "1", "minor": "33+"})

    async with client(server) as kube:
        assert await kube.server_version() == (1, 33)


def streaming(*chunks: bytes, hang: bool = False, abort: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if hang:
            await asyncio.sleep(30)
        if abort:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"n","resourceVersion":"8"}}}\n'


async def watched(server: Server) -> list[tuple[str, str]]:
    async with client(server) as kube:
        return [(e.type.value, e.resource_version) async for e in kube.watch(NODE, resource_version="7")]


async def test_a_watch_reads_events_however_they_are_cut(server: Server) -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
    whole = ADDED + bookmark
    server.answer = streaming(*(whole[i : i + 7] for i in range(0, len(whole), 7)))

    assert await watched(server) == [("BOOKMARK", "7"), ("ADDED", "8"), ("BOOKMARK", "9")]
    assert server.requests[0].query["allowWatchBookmarks"] == "true"
    assert server.requests[0].query["resourceVersion"] == "7"


async def test_an_error_event_of_410_is_gone_and_others_are_what_they_say(server: Server) -> None:
    gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'
    broken = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n'

    server.answer = streaming(gone)
    with pytest.raises(GoneError, match="too old"):
        await watched(server)
    server.answer = streaming(broken)
    with pytest.raises(KubeUnavailableError, match="etcd"):
        await watched(server)


async def test_a_watch_that_is_refused_with_410_is_gone(server: Server) -> None:
    server.says(410, a_status(410, "Expired", "too old resource version"))

    with pytest.raises(GoneError):
        await watched(server)


async def test_a_line_that_is_no_event_is_an_error_and_not_a_crash(server: Server) -> None:
    server.answer = streaming(b'{"type":"ADDED"}\n')

    with pytest.raises(KubeUnavailableError, match="not an event"):
        await watched(server)


async def test_an_object_that_cannot_be_read_is_told_without_one(server: Server) -> None:
    odd = b'{"type":"MODIFIED","object":{"metadata":{"name":"odd","labels":5,"resourceVersion":"8"}}}\n'
    server.answer = streaming(odd, ADDED)

    async with client(server) as kube:
        events = [e async for e in kube.watch(NODE, resource_version="7")]

    assert [(e.type, e.object is None) for e in events[1:]] == [(WatchType.MODIFIED, True), (WatchType.ADDED, False)]
    assert events[1].raw["metadata"]["name"] == "odd"


async def test_a_silent_watch_ends_as_if_the_server_had_ended_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_IDLE", timedelta(milliseconds=200))
    server.answer = streaming(ADDED, hang=True)

    assert await watched(server) == [("BOOKMARK", "7"), ("ADDED", "8")]


async def test_a_watch_that_breaks_off_is_an_error(server: Server) -> None:
    server.answer = streaming(ADDED, abort=True)

    with pytest.raises(KubeUnavailableError, match="watch nodes"):
        await watched(server)


def test_lines_are_cut_wherever_chunks_end() -> None:
    splitter = LineSplitter()

    lines = [line for chunk in (b"a", b"b\nc\n\n", b"d", b"", b"e\n") for line in splitter.feed(chunk)]

    assert lines == [b"ab", b"c", b"de"]


def test_a_line_without_an_end_is_refused_before_memory_is_gone() -> None:
    splitter = LineSplitter()

    with pytest.raises(KubeUnavailableError, match="longer than any object"):
        all(list(splitter.feed(b"x" * 2**20)) == [] for _ in range(20))


@pytest.mark.looptime
async def test_requests_go_at_the_rate_after_a_burst() -> None:
    limit, loop = RateLimit(qps=10, burst=5), asyncio.get_running_loop()
    began = loop.time()

    for _ in range(25):
        await limit.take()

    assert loop.time() - began == pytest.approx(2.0, abs=0.11)


@pytest.mark.parametrize(
    ("content", "problem"),
    [("[", "cannot be used"), ("a: b", "cannot be used"), ("", "cannot be used")],
    ids=["not-yaml", "no-contexts", "empty"],
)
async def test_a_kubeconfig_that_makes_no_sense_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)

    with pytest.raises(KubeConfigError, match=problem) as caught:
        async with connect_kube(kubeconfig=file):
            pass

    assert str(file) in str(caught.value)
    assert "--kubeconfig" in caught.value.action


async def test_without_kubeconfig_and_outside_a_pod_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(KubeConfigError, match="no kubeconfig is given") as caught:
        async with connect_kube(kubeconfig=None):
            pass

    assert caught.value.action == "Set --kubeconfig."


def test_paths_quote_names_and_name_the_group() -> None:
    assert POD.path("a b", "web", "status") == "/api/v1/namespaces/web/pods/a%20b/status"
    assert NODE.path() == "/api/v1/nodes"
