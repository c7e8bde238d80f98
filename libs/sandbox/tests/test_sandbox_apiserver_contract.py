"""What the embedded API server promises, asked of it and of a real kube-apiserver: the double must not drift."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.controlplane import find_assets, start_control_plane

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WIDGETS = "/apis/test.sawhorse.dev/v1/widgets"

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "share": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "nested": {"type": "object", "properties": {"deep": {"type": "string", "default": "yes"}}},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}
WIDGET_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.sawhorse.dev"},
    "spec": {
        "group": "test.sawhorse.dev",
        "scope": "Cluster",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
            }
        ],
    },
}


@dataclass(frozen=True)
class Server:
    """An API server, spoken to in plain JSON."""

    http: aiohttp.ClientSession
    url: str

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        headers = {"Content-Type": kind}
        async with self.http.request(method, self.url + path, json=body, headers=headers) as answer:
            text = await answer.text()  # of a kind that is only just registered, not JSON
            return answer.status, msgspec.json.decode(text) if text.startswith("{") else text

    async def done(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        status, answer = await self.ask(method, path, body, kind)
        assert status < 300, answer
        return answer

    async def refused(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """The code, reason and message of an answer that must be a failure."""
        status, answer = await self.ask(method, path, body, kind)
        assert status >= 400, answer
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", status)
        return status, answer["reason"], answer["message"]

    async def events(self, path: str, count: int) -> list[dict[str, Any]]:
        """The first events of a watch, ten seconds at most."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(10), self.http.get(self.url + path) as answer:
            async for line in answer.content:
                found.append(msgspec.json.decode(line))
                if len(found) == count:
                    break
        return found


@pytest_asyncio.fixture(
    params=["embedded", pytest.param("real", marks=pytest.mark.real)], loop_scope="module", scope="module"
)
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("kube")
    trust: ssl.SSLContext | bool = True
    if request.param == "embedded":
        started: Any = await start_embedded_kube(directory)
    else:
        assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
        assert assets is not None, "no control plane binaries: run `make kube-assets`"
        started = await start_control_plane(directory, assets)
        trust = ssl.create_default_context(cafile=str(directory / "certs" / "apiserver.crt"))
    async with started:
        headers = {"Authorization": f"Bearer {started.token}", "User-Agent": "tester/1"}
        connector = aiohttp.TCPConnector(ssl=trust)
        timeout = aiohttp.ClientTimeout(total=15)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as http:
            server = Server(http, started.url)
            await server.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGET_CRD)
            async with asyncio.timeout(20):
                status = 0
                while status != 201:
                    await asyncio.sleep(0.1)
                    status, _ = await server.ask("POST", WIDGETS + "?dryRun=All", a_widget("probe"))
            yield server


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler touches; say only what the test is about."""
    containers = [{"name": "app", "image": "app:1"}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": containers, **spec}}


def a_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"unschedulable": True}}


def a_widget(name: str, **spec: Any) -> dict[str, Any]:
    made = {"apiVersion": "test.sawhorse.dev/v1", "kind": "Widget", "metadata": {"name": name}}
    return {**made, "spec": {"size": 3, **spec}}


def a_deployment(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def a_config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


async def test_a_request_without_the_token_is_unauthorized(server: Server) -> None:
    headers = {"Authorization": "Bearer wrong"}
    async with server.http.get(server.url + PODS, headers=headers) as answer:
        body = await answer.json()

    assert (answer.status, body["reason"]) == (401, "Unauthorized")


async def test_the_version_is_that_of_a_1_36_server(server: Server) -> None:
    version = await server.done("GET", "/version")

    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.3")


async def test_discovery_lists_groups_and_custom_resources(server: Server) -> None:
    groups = await server.done("GET", "/apis")
    resources = await server.done("GET", "/apis/test.sawhorse.dev/v1")

    assert {"apps", "policy", "test.sawhorse.dev"} <= {group["name"] for group in groups["groups"]}
    assert {"widgets", "widgets/status"} <= {resource["name"] for resource in resources["resources"]}


async def test_an_unknown_path_and_an_unknown_object_are_told_apart(server: Server) -> None:
    path, _ = await server.ask("GET", "/apis/test.sawhorse.dev/v1/gadgets")
    name = await server.refused("GET", DEPLOYMENTS + "/nothing")

    assert path == 404
    assert name == (404, "NotFound", 'deployments.apps "nothing" not found')


async def test_a_pod_gets_the_defaults_that_services_rely_on(server: Server) -> None:
    container = {"name": "app", "image": "app:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}

    pod = await server.done("POST", PODS, a_pod("defaults", containers=[container]))

    spec = pod["spec"]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["restartPolicy"] == "Always"
    assert spec["priority"] == 0
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert {(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    }
    assert (pod["status"]["phase"], pod["status"]["qosClass"]) == ("Pending", "Guaranteed")
    assert pod["metadata"]["generation"] == 1


async def test_a_priority_class_gives_the_priority_and_must_exist(server: Server) -> None:
    pod = await server.done("POST", PODS, a_pod("critical", priorityClassName="system-node-critical"))
    unknown = await server.refused("POST", PODS, a_pod("unknown-class", priorityClassName="nothing"))

    assert pod["spec"]["priority"] == 2_000_001_000
    assert unknown[:2] == (403, "Forbidden")


async def test_a_name_is_taken_once_and_generated_when_asked(server: Server) -> None:
    await server.done("POST", CONFIG_MAPS, a_config_map("taken"))

    again = await server.refused("POST", CONFIG_MAPS, a_config_map("taken"))
    made = await server.done("POST", CONFIG_MAPS, {"metadata": {"generateName": "made-"}})

    assert again == (409, "AlreadyExists", 'configmaps "taken" already exists')
    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


async def test_nothing_is_created_in_a_missing_namespace_or_under_a_bad_name(server: Server) -> None:
    missing = await server.refused("POST", "/api/v1/namespaces/nowhere/configmaps", a_config_map("a"))
    bad = await server.refused("POST", CONFIG_MAPS, a_config_map("Bad_Name"))

    assert missing == (404, "NotFound", 'namespaces "nowhere" not found')
    assert bad[:2] == (422, "Invalid")


async def test_an_update_of_an_older_state_conflicts(server: Server) -> None:
    old = await server.done("POST", CONFIG_MAPS, a_config_map("stale"))
    await server.done("PATCH", CONFIG_MAPS + "/stale", {"data": {"key": "new"}}, MERGE)

    put = await server.refused("PUT", CONFIG_MAPS + "/stale", old)
    version = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"key": "newer"}}
    patch = await server.refused("PATCH", CONFIG_MAPS + "/stale", version, MERGE)

    assert put[:2] == patch[:2] == (409, "Conflict")
    assert "the object has been modified" in put[2]


async def test_an_update_meant_for_an_earlier_object_of_the_name_is_refused(server: Server) -> None:
    await server.done("POST", CONFIG_MAPS, a_config_map("reborn"))
    other = {"uid": "11111111-2222-3333-4444-555555555555"}

    put = await server.refused("PUT", CONFIG_MAPS + "/reborn", {"metadata": {"name": "reborn", **other}})
    patch = await server.refused("PATCH", CONFIG_MAPS + "/reborn", {"metadata": other}, MERGE)

    assert put[:2] == (409, "Conflict")
    assert patch[:2] == (422, "Invalid")


async def test_a_write_that_changes_nothing_leaves_the_version(server: Server) -> None:
    made = await server.done("POST", CONFIG_MAPS, a_config_map("same"))

    patched = await server.done("PATCH", CONFIG_MAPS + "/same", {"data": {"key": "value"}}, MERGE)

    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_status_and_spec_are_written_apart(server: Server) -> None:
    await server.done("POST", NODES, a_node("apart"))

    main = await server.done("PATCH", NODES + "/apart", {"status": {"phase": "Running"}}, MERGE)
    both = {"spec": {"providerID": "aws:///x"}, "status": {"phase": "Running"}}
    status = await server.done("PATCH", NODES + "/apart/status", both, MERGE)

    assert main.get("status", {}).get("phase") != "Running"
    assert status["status"]["phase"] == "Running"
    assert "providerID" not in status["spec"]


async def test_a_provider_id_is_set_once(server: Server) -> None:
    await server.done("POST", NODES, a_node("provided"))
    await server.done("PATCH", NODES + "/provided", {"spec": {"providerID": "aws:///a/i-1"}}, MERGE)

    changed = await server.refused("PATCH", NODES + "/provided", {"spec": {"providerID": "aws:///a/i-2"}}, MERGE)

    assert changed[:2] == (422, "Invalid")


async def test_the_generation_counts_changes_of_the_spec_only(server: Server) -> None:
    made = await server.done("POST", DEPLOYMENTS, a_deployment("counted"))
    labelled = await server.done("PATCH", DEPLOYMENTS + "/counted", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    changed = await server.done("PATCH", DEPLOYMENTS + "/counted", {"spec": {"paused": True}}, MERGE)

    generations = [obj["metadata"]["generation"] for obj in (made, labelled, changed)]
    assert generations == [1, 1, 2]


async def test_strategic_merge_joins_keyed_lists_and_replaces_taints(server: Server) -> None:
    await server.done("POST", NODES, a_node("merged"))
    ready = {"type": "Ready", "status": "True", "reason": "a"}
    pressure = {"type": "DiskPressure", "status": "False"}
    status = NODES + "/merged/status"
    await server.done("PATCH", status, {"status": {"conditions": [ready, pressure]}}, STRATEGIC)
    update = {"status": {"conditions": [{"type": "Ready", "reason": "b"}]}}
    merged = await server.done("PATCH", status, update, STRATEGIC)
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    await server.done("PATCH", NODES + "/merged", {"spec": {"taints": taints}}, STRATEGIC)
    other = {"spec": {"taints": [{"key": "c", "effect": "NoExecute"}]}}
    tainted = await server.done("PATCH", NODES + "/merged", other, STRATEGIC)

    conditions = {c["type"]: (c["status"], c.get("reason")) for c in merged["status"]["conditions"]}
    assert conditions == {"Ready": ("True", "b"), "DiskPressure": ("False", None)}
    assert "c" in [taint["key"] for taint in tainted["spec"]["taints"]]
    assert not {"a", "b"} & {taint["key"] for taint in tainted["spec"]["taints"]}


async def test_strategic_merge_adds_finalizers_and_deletes_by_directive(server: Server) -> None:
    finalizers = [{"metadata": {"finalizers": [f"test.dev/{name}"]}} for name in ("one", "two")]
    await server.done("POST", CONFIG_MAPS, a_config_map("directed"))
    await server.done("PATCH", CONFIG_MAPS + "/directed", finalizers[0], STRATEGIC)
    both = await server.done("PATCH", CONFIG_MAPS + "/directed", finalizers[1], STRATEGIC)
    directive = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["test.dev/one"]}}
    one = await server.done("PATCH", CONFIG_MAPS + "/directed", directive, STRATEGIC)

    assert sorted(both["metadata"]["finalizers"]) == ["test.dev/one", "test.dev/two"]
    assert one["metadata"]["finalizers"] == ["test.dev/two"]


async def test_a_json_patch_applies_whole_or_not_at_all(server: Server) -> None:
    await server.done("POST", CONFIG_MAPS, a_config_map("jsoned"))
    replace = {"op": "replace", "path": "/data/key", "value": "new"}
    failing = [replace, {"op": "test", "path": "/data/key", "value": "other"}]

    refused = await server.refused("PATCH", CONFIG_MAPS + "/jsoned", failing, JSON_PATCH)
    held = await server.done("GET", CONFIG_MAPS + "/jsoned")
    done = await server.done("PATCH", CONFIG_MAPS + "/jsoned", [replace], JSON_PATCH)

    assert refused[:2] == (422, "Invalid")
    assert (held["data"]["key"], done["data"]["key"]) == ("value", "new")


async def test_apply_creates_conflicts_forces_and_removes_what_it_leaves_out(server: Server) -> None:
    path = CONFIG_MAPS + "/applied"

    def config(**data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}

    made = await server.ask("PATCH", path + "?fieldManager=one", config(a="1", b="1"), APPLY)
    conflict = await server.refused("PATCH", path + "?fieldManager=two", config(a="2"), APPLY)
    forced = await server.done("PATCH", path + "?fieldManager=two&force=true", config(a="2"), APPLY)
    left = await server.done("PATCH", path + "?fieldManager=one", config(), APPLY)

    assert made[0] == 201
    assert conflict[:2] == (409, "Conflict")
    assert 'conflict with "one"' in conflict[2]
    assert forced["data"] == {"a": "2", "b": "1"}
    assert left["data"] == {"a": "2"}


async def test_managed_fields_tell_whose_nomination_it_is(server: Server) -> None:
    path = PODS + "/nominated/status"

    def owner(pod: Any) -> list[str]:
        entries = pod["metadata"]["managedFields"]
        return [e["manager"] for e in entries if "f:nominatedNodeName" in e["fieldsV1"].get("f:status", {})]

    await server.done("POST", PODS, a_pod("nominated"))
    first = await server.done("PATCH", path + "?fieldManager=us", {"status": {"nominatedNodeName": "a"}}, MERGE)
    second = await server.done("PATCH", path + "?fieldManager=them", {"status": {"nominatedNodeName": "b"}}, MERGE)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nominated"}, "status": {"nominatedNodeName": "c"}}
    third = await server.done("PATCH", path + "?fieldManager=us&force=true", body, APPLY)

    assert [owner(first), owner(second), owner(third)] == [["us"], ["them"], ["us"]]
    assert third["status"]["nominatedNodeName"] == "c"


async def test_a_finalizer_holds_a_deleted_object_until_it_goes(server: Server) -> None:
    widget = a_widget("held")
    widget["metadata"]["finalizers"] = ["test.dev/hold"]
    await server.done("POST", WIDGETS, widget)

    await server.done("DELETE", WIDGETS + "/held")
    held = await server.done("GET", WIDGETS + "/held")
    more = {"metadata": {"finalizers": ["test.dev/hold", "test.dev/more"]}}
    added = await server.refused("PATCH", WIDGETS + "/held", more, MERGE)
    await server.done("PATCH", WIDGETS + "/held", {"metadata": {"finalizers": None}}, MERGE)
    gone = await server.refused("GET", WIDGETS + "/held")

    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert held["metadata"]["generation"] == 2
    assert added[:2] == (422, "Invalid")
    assert gone[0] == 404


async def test_preconditions_guard_a_deletion(server: Server) -> None:
    made = await server.done("POST", CONFIG_MAPS, a_config_map("guarded"))
    version = made["metadata"]["resourceVersion"]
    await server.done("PATCH", CONFIG_MAPS + "/guarded", {"data": {"key": "new"}}, MERGE)

    uid = await server.refused("DELETE", CONFIG_MAPS + "/guarded", {"preconditions": {"uid": "other"}})
    old = await server.refused("DELETE", CONFIG_MAPS + "/guarded", {"preconditions": {"resourceVersion": version}})
    right = {"preconditions": {"uid": made["metadata"]["uid"]}}
    done = await server.done("DELETE", CONFIG_MAPS + "/guarded", right)

    assert uid[:2] == old[:2] == (409, "Conflict")
    assert (done["kind"], done["status"]) == ("Status", "Success")


async def test_a_pod_without_a_node_goes_at_once_and_a_bound_one_gets_its_grace(server: Server) -> None:
    await server.done("POST", PODS, a_pod("loose"))
    await server.done("POST", PODS, a_pod("bound", nodeName="somewhere", terminationGracePeriodSeconds=20))
    await server.done("DELETE", PODS + "/loose")
    loose = await server.refused("GET", PODS + "/loose")

    going = await server.done("DELETE", PODS + "/bound")
    sooner = await server.done("DELETE", PODS + "/bound?gracePeriodSeconds=5")
    await server.done("DELETE", PODS + "/bound?gracePeriodSeconds=60")
    later = await server.done("GET", PODS + "/bound")
    await server.done("DELETE", PODS + "/bound?gracePeriodSeconds=0")
    gone = await server.refused("GET", PODS + "/bound")

    assert (loose[0], gone[0]) == (404, 404)
    assert [pod["metadata"]["deletionGracePeriodSeconds"] for pod in (going, sooner, later)] == [20, 5, 5]
    assert going["metadata"]["deletionTimestamp"]


async def test_a_pod_is_bound_once(server: Server) -> None:
    made = await server.done("POST", PODS, a_pod("binding"))
    await server.done("PATCH", PODS + "/binding/status", {"status": {"nominatedNodeName": "n1"}}, MERGE)

    status, _ = await server.ask("POST", PODS + "/binding/binding", _binding("binding", "n1"))
    pod = await server.done("GET", PODS + "/binding")
    again = await server.refused("POST", PODS + "/binding/binding", _binding("binding", "n2"))

    assert status == 201
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["uid"] == made["metadata"]["uid"]
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]} == {"PodScheduled": "True"}
    assert "nominatedNodeName" not in pod["status"]
    assert again[:2] == (409, "Conflict")


def _binding(pod: str, node: str) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}


async def test_most_of_a_pods_spec_is_fixed(server: Server) -> None:
    await server.done("POST", PODS, a_pod("fixed"))
    containers = {"containers": [{"name": "app", "image": "app:2"}]}

    image = await server.done("PATCH", PODS + "/fixed", {"spec": containers}, STRATEGIC)
    selector = await server.refused("PATCH", PODS + "/fixed", {"spec": {"nodeSelector": {"a": "b"}}}, MERGE)

    assert image["spec"]["containers"][0]["image"] == "app:2"
    assert selector[:2] == (422, "Invalid")


async def test_lists_select_by_labels_and_fields(server: Server) -> None:
    for name, tier in (("sel-a", "web"), ("sel-b", "db"), ("sel-c", "cache")):
        await server.done("POST", CONFIG_MAPS, a_config_map(name, tier=tier, set="sel"))

    async def names(query: str) -> list[str]:
        found = await server.done("GET", f"{CONFIG_MAPS}?{query}")
        return [item["metadata"]["name"] for item in found["items"]]

    assert await names("labelSelector=set%3Dsel,tier!%3Ddb") == ["sel-a", "sel-c"]
    assert await names("labelSelector=set%3Dsel,tier+in+(db,cache)") == ["sel-b", "sel-c"]
    assert await names("labelSelector=set,!missing,tier+notin+(web)&limit=500") == ["sel-b", "sel-c"]
    assert await names("labelSelector=set%3Dsel&fieldSelector=metadata.name%3Dsel-b") == ["sel-b"]


async def test_pods_are_found_by_node_and_phase(server: Server) -> None:
    await server.done("POST", PODS, a_pod("field-a", nodeName="field-node"))
    await server.done("POST", PODS, a_pod("field-b"))

    found = await server.done("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dfield-node,status.phase%3DPending")

    assert [item["metadata"]["name"] for item in found["items"]] == ["field-a"]


async def test_pages_of_a_list_agree_though_the_world_moves(server: Server) -> None:
    for index in range(5):
        await server.done("POST", CONFIG_MAPS, a_config_map(f"page-{index}", paged="yes"))
    query = CONFIG_MAPS + "?labelSelector=paged%3Dyes&limit=2"

    first = await server.done("GET", query)
    await server.done("DELETE", CONFIG_MAPS + "/page-4")
    second = await server.done("GET", f"{query}&continue={first['metadata']['continue']}")
    third = await server.done("GET", f"{query}&continue={second['metadata']['continue']}")

    pages = [[item["metadata"]["name"][-1] for item in page["items"]] for page in (first, second, third)]
    assert pages == [["0", "1"], ["2", "3"], ["4"]]
    assert "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


async def test_a_watch_tells_what_happened_since_a_list(server: Server) -> None:
    listed = await server.done("GET", CONFIG_MAPS)
    start = listed["metadata"]["resourceVersion"]
    await server.done("POST", CONFIG_MAPS, a_config_map("watched"))
    await server.done("PATCH", CONFIG_MAPS + "/watched", {"data": {"key": "2"}}, MERGE)
    await server.done("DELETE", CONFIG_MAPS + "/watched")

    events = await server.events(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=8", 3)

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)


async def test_a_selecting_watch_sees_objects_come_and_leave(server: Server) -> None:
    listed = await server.done("GET", CONFIG_MAPS)
    await server.done("POST", CONFIG_MAPS, a_config_map("fickle", mood="off"))
    for mood in ("on", "off"):
        await server.done("PATCH", CONFIG_MAPS + "/fickle", {"metadata": {"labels": {"mood": mood}}}, MERGE)
    start = listed["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={start}&labelSelector=mood%3Don&timeoutSeconds=8"

    events = await server.events(f"{CONFIG_MAPS}?{query}", 2)

    assert [event["type"] for event in events] == ["ADDED", "DELETED"]
    assert events[1]["object"]["metadata"]["labels"]["mood"] == "on"


async def test_a_watch_from_nowhere_starts_with_what_is_there(server: Server) -> None:
    await server.done("POST", CONFIG_MAPS, a_config_map("present", present="yes"))

    query = "watch=1&resourceVersion=0&labelSelector=present%3Dyes&timeoutSeconds=8"
    events = await server.events(f"{CONFIG_MAPS}?{query}", 1)

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "present")]


async def test_a_watch_ends_cleanly_at_its_timeout(server: Server) -> None:
    listed = await server.done("GET", CONFIG_MAPS)

    version = listed["metadata"]["resourceVersion"]
    events = await server.events(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1", 100)

    assert events == []


async def test_custom_resources_are_pruned_and_defaulted(server: Server) -> None:
    body = a_widget("shaped", unknown=1, free={"any": {"thing": 1}}, nested={}, share="20%")
    body["status"] = {"phase": "made up"}

    made = await server.done("POST", WIDGETS, body)

    assert made["spec"] == {
        "size": 3,
        "color": "red",
        "free": {"any": {"thing": 1}},
        "nested": {"deep": "yes"},
        "share": "20%",
    }
    assert "status" not in made
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 0},
        {"size": 10},
        {"size": "3"},
        {"size": None},
        {"color": "green"},
        {"code": "A1"},
        {"code": "abcdef"},
        {"share": True},
        {"tags": ["a", "b", "c"]},
        {"tags": "a"},
    ],
)
async def test_custom_resources_that_break_their_schema_are_invalid(server: Server, spec: dict[str, Any]) -> None:
    refused = await server.refused("POST", WIDGETS, a_widget("broken", **spec))

    assert refused[:2] == (422, "Invalid")
    assert refused[2].startswith('Widget.test.sawhorse.dev "broken" is invalid: ')
    assert f"spec.{next(iter(spec))}" in refused[2]


async def test_strict_validation_names_the_unknown_field(server: Server) -> None:
    refused = await server.refused("POST", WIDGETS + "?fieldValidation=Strict", a_widget("strict", colour="red"))

    assert refused[:2] == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.colour"' in refused[2]


async def test_custom_resources_know_no_strategic_merge_and_no_blind_update(server: Server) -> None:
    await server.done("POST", WIDGETS, a_widget("custom"))

    strategic = await server.refused("PATCH", WIDGETS + "/custom", {"spec": {"size": 4}}, STRATEGIC)
    blind = await server.refused("PUT", WIDGETS + "/custom", a_widget("custom", size=4))
    merged = await server.done("PATCH", WIDGETS + "/custom", {"spec": {"size": 4}}, MERGE)

    assert strategic[:2] == (415, "UnsupportedMediaType")
    assert blind[:2] == (422, "Invalid")
    assert (merged["spec"]["size"], merged["metadata"]["generation"]) == (4, 2)


async def test_the_status_of_a_custom_resource_is_its_own_endpoint(server: Server) -> None:
    await server.done("POST", WIDGETS, a_widget("stated"))
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"phase": "Ready", "odd": 1}}

    stated = await server.done("PATCH", WIDGETS + "/stated/status", both, MERGE)
    kept = await server.done("PATCH", WIDGETS + "/stated", {"status": {"phase": "Lost"}}, MERGE)

    assert stated["status"] == kept["status"] == {"phase": "Ready"}
    assert stated["spec"]["size"] == 3
    assert "labels" not in stated["metadata"]
    assert kept["metadata"]["generation"] == 1


async def test_a_collection_is_deleted_by_selector(server: Server) -> None:
    for name, mark in (("many-a", "x"), ("many-b", "x"), ("many-c", "y")):
        await server.done("POST", CONFIG_MAPS, a_config_map(name, many=mark))

    await server.done("DELETE", CONFIG_MAPS + "?labelSelector=many%3Dx")
    left = await server.done("GET", CONFIG_MAPS + "?labelSelector=many")

    assert [item["metadata"]["name"] for item in left["items"]] == ["many-c"]


async def test_scale_reads_and_sets_replicas(server: Server) -> None:
    await server.done("POST", DEPLOYMENTS, a_deployment("scaled"))

    scale = await server.done("PATCH", DEPLOYMENTS + "/scaled/scale", {"spec": {"replicas": 0}}, MERGE)
    read = await server.done("GET", DEPLOYMENTS + "/scaled/scale")

    assert (scale["kind"], read["spec"].get("replicas", 0)) == ("Scale", 0)
    assert read["status"]["selector"] == "app=scaled"


async def test_both_event_apis_show_the_same_events(server: Server) -> None:
    event = {
        "metadata": {"name": "happened", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "tester",
        "reportingInstance": "tester-1",
        "action": "Testing",
        "reason": "Tested",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "some-pod"},
        "note": "it went well",
        "type": "Normal",
    }

    await server.done("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event)
    query = "fieldSelector=involvedObject.name%3Dsome-pod"
    core = await server.done("GET", f"/api/v1/namespaces/default/events?{query}")

    assert [(item["message"], item["reason"]) for item in core["items"]] == [("it went well", "Tested")]


async def test_a_dry_run_answers_and_stores_nothing(server: Server) -> None:
    status, made = await server.ask("POST", WIDGETS + "?dryRun=All", a_widget("tried"))
    missing = await server.refused("GET", WIDGETS + "/tried")

    assert (status, made["spec"]["color"], missing[0]) == (201, "red", 404)
