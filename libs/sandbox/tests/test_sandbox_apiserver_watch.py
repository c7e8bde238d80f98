"""Watches of the embedded API server at their edges: too old, bookmarks, the end, and what needs no real server."""

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import pytest

from sawhorse_sandbox.apiserver import watch
from sawhorse_sandbox.apiserver.bootstrap import bootstrap
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import ResourceTable
from sawhorse_sandbox.apiserver.server import serve_api
from sawhorse_sandbox.apiserver.storage import Store

pytestmark = pytest.mark.integration

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
HISTORY = 4  # changes that are kept for sure; up to twice as many may be


@dataclass(frozen=True)
class Client:
    http: aiohttp.ClientSession
    url: str

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.http.request(method, self.url + path, json=body) as answer:
            return answer.status, await answer.json()

    async def create(self, name: str) -> str:
        """Create a config map; return its resourceVersion."""
        _, made = await self.ask("POST", CONFIG_MAPS, {"metadata": {"name": name}})
        version: str = made["metadata"]["resourceVersion"]
        return version

    async def watch(self, query: str, count: int = 100) -> list[dict[str, Any]]:
        """The first events, or all until the server ends the watch; five seconds at most."""
        found: list[dict[str, Any]] = []
        url = f"{self.url}{CONFIG_MAPS}?watch=true&{query}"
        async with asyncio.timeout(5), self.http.get(url) as answer:
            assert answer.status == 200
            async for line in answer.content:
                found.append(msgspec.json.decode(line))
                if len(found) == count:
                    break
        return found


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    api = Api(Store(history=HISTORY), ResourceTable())
    bootstrap(api)
    headers = {"Authorization": "Bearer token"}
    timeout = aiohttp.ClientTimeout(total=10)
    async with serve_api(api, "token") as serving, aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        yield Client(http, serving.url)


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["object"]["metadata"]["name"] for event in events]


async def test_a_watch_from_a_revision_that_is_forgotten_gets_one_error_event_with_410(client: Client) -> None:
    oldest = await client.create("first")
    for index in range(2 * HISTORY + 1):
        await client.create(f"later-{index}")

    events = await client.watch(f"resourceVersion={oldest}&timeoutSeconds=3")

    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_history_that_is_kept_is_replayed_from_the_given_revision(client: Client) -> None:
    await client.create("a")
    start = await client.create("b")
    await client.create("c")
    await client.create("d")

    assert names(await client.watch(f"resourceVersion={start}&timeoutSeconds=3", 2)) == ["c", "d"]


async def test_compaction_makes_older_watches_relist_and_spares_current_ones(client: Client) -> None:
    start = await client.create("a")
    latest = await client.create("b")

    await client.ask("POST", "/sandbox/compact")
    old = await client.watch(f"resourceVersion={start}&timeoutSeconds=1")
    current = await client.watch(f"resourceVersion={latest}&timeoutSeconds=1")

    assert [event["object"]["code"] for event in old] == [410]
    assert current == []


async def test_bookmarks_carry_the_newest_revision_when_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_EVERY", 0.05)
    start = await client.create("a")
    _, made = await client.ask("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "elsewhere"}})

    marks = await client.watch(f"resourceVersion={start}&allowWatchBookmarks=true&timeoutSeconds=3", 2)
    without = await client.watch(f"resourceVersion={start}&timeoutSeconds=1")

    assert [event["type"] for event in marks] == ["BOOKMARK", "BOOKMARK"]
    assert marks[0]["object"]["kind"] == "ConfigMap"
    assert marks[0]["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert without == []


async def test_a_streaming_list_ends_its_first_events_with_an_annotated_bookmark(client: Client) -> None:
    await client.create("a")

    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3"
    events = await client.watch(query, 2)

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_running_watch_sees_a_change_at_once(client: Client) -> None:
    start = await client.create("a")

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(client.watch(f"resourceVersion={start}&timeoutSeconds=4", 1))
        await asyncio.sleep(0)
        await client.create("b")

    assert names(watching.result()) == ["b"]


async def test_a_revision_from_the_future_is_refused(client: Client) -> None:
    listing, _ = await client.ask("GET", f"{CONFIG_MAPS}?resourceVersion=999999")
    watching, answer = await client.ask("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion=999999")

    assert (listing, watching) == (504, 504)
    assert answer["reason"] == "Timeout"


async def test_a_watch_ends_when_the_server_stops() -> None:
    api = Api(Store(), ResourceTable())
    bootstrap(api)
    ended = asyncio.Event()

    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as http, asyncio.TaskGroup() as group:
        async with serve_api(api, "token") as serving:
            answer = await http.get(f"{serving.url}{CONFIG_MAPS}?watch=1")

            async def follow() -> None:
                async with answer:
                    await answer.content.read()
                ended.set()

            group.create_task(follow())
        async with asyncio.timeout(3):
            await ended.wait()

    assert ended.is_set()


async def test_bodies_may_be_large_but_not_without_end(client: Client) -> None:
    async def send(name: str, size: int) -> int:
        body = msgspec.json.encode({"metadata": {"name": name}, "data": {"key": "x" * size}})
        async with client.http.post(client.url + CONFIG_MAPS, data=io.BytesIO(body)) as answer:
            return answer.status

    assert await send("large", 2 * 2**20) == 201
    assert await send("endless", 4 * 2**20) == 413


async def test_a_continue_token_that_is_not_known_is_gone_and_nonsense_is_refused(client: Client) -> None:
    unknown, answer = await client.ask("GET", f"{CONFIG_MAPS}?limit=1&continue=Nzc3OjE=")
    nonsense, _ = await client.ask("GET", f"{CONFIG_MAPS}?limit=1&continue=%21%21")

    assert (unknown, answer["reason"], nonsense) == (410, "Expired", 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("PATCH", CONFIG_MAPS, None, 405),
        ("POST", f"{CONFIG_MAPS}/name", {}, 405),
        ("GET", "/api/v1/namespaces/default/nodes", None, 404),
        ("GET", "/api/v1/namespaces/default/pods/a/unknown", None, 404),
        ("POST", "/api/v1/configmaps", {"metadata": {"name": "a"}}, 404),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "other"}}, 400),
        ("POST", CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "a"}}, 400),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "resourceVersion": "1"}}, 400),
        ("POST", CONFIG_MAPS, {"metadata": "name"}, 400),
        ("POST", CONFIG_MAPS, [1], 400),
        ("POST", CONFIG_MAPS, {}, 422),
        ("GET", f"{CONFIG_MAPS}?labelSelector=a+in+b", None, 400),
        ("GET", f"{CONFIG_MAPS}?resourceVersion=abc", None, 400),
        ("GET", f"{CONFIG_MAPS}?limit=many", None, 400),
    ],
)
async def test_requests_that_make_no_sense_get_a_status_and_harm_nothing(
    client: Client, method: str, path: str, body: Any, code: int
) -> None:
    status, answer = await client.ask(method, path, body)
    healthy, _ = await client.ask("GET", CONFIG_MAPS)

    assert (status, answer["kind"], answer["code"]) == (code, "Status", code)
    assert healthy == 200
