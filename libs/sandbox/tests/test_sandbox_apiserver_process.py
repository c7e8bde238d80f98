"""The embedded Kubernetes as a process: it starts, serves the Kubernetes client, stops, and says why it failed."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.rest import ApiException
from kubernetes_asyncio.watch import Watch

from sawhorse_sandbox.apiserver import EmbeddedKube, start_embedded_kube
from sawhorse_sandbox.processes import ChildError

pytestmark = pytest.mark.integration


@pytest.fixture
async def kube(tmp_path: Path) -> AsyncIterator[EmbeddedKube]:
    async with await start_embedded_kube(tmp_path / "kube") as started:
        yield started


async def a_client(kube: EmbeddedKube) -> client.ApiClient:
    settings = client.Configuration()
    await config.load_kube_config(config_file=str(kube.kubeconfig), client_configuration=settings)
    return client.ApiClient(configuration=settings)


def a_pod(name: str) -> client.V1Pod:
    container = client.V1Container(name="app", image="app:1")
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name), spec=client.V1PodSpec(containers=[container]))


async def until_refused(call: Callable[[], Awaitable[object]]) -> int:
    """The status of the first answer that is a failure, five seconds at most."""
    async with asyncio.timeout(5):
        while True:
            try:
                await call()
            except ApiException as err:
                return int(err.status)
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_it_answers_and_its_kubeconfig_is_for_its_owner_only(kube: EmbeddedKube) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(kube.url + "/readyz") as ready:
            healthy = (ready.status, await ready.text())
        async with http.get(kube.url + "/api/v1/nodes") as nodes:
            anonymous = nodes.status

    assert healthy == (200, "ok")
    assert anonymous == 401
    assert stat.S_IMODE(kube.kubeconfig.stat().st_mode) == 0o600
    assert is_alive(kube.pid)


async def test_stopping_ends_the_process_and_may_be_repeated(tmp_path: Path) -> None:
    kube = await start_embedded_kube(tmp_path / "kube")

    await kube.stop()
    await kube.stop()

    assert kube.child.process.returncode == 0
    with pytest.raises(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as http, http.get(kube.url + "/readyz"):
            pass


async def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").mkdir()  # where the file should go

    with pytest.raises(ChildError) as failed:
        await start_embedded_kube(tmp_path)

    assert "ended with exit code 1 before it was ready" in str(failed.value)
    assert "Is a directory" in str(failed.value)


async def test_the_kubernetes_client_creates_lists_patches_and_deletes(kube: EmbeddedKube) -> None:
    async with await a_client(kube) as api_client:
        core = client.CoreV1Api(api_client)

        made = await core.create_namespaced_pod("default", a_pod("a"))
        labels = {"metadata": {"labels": {"x": "y"}}}
        patched = await core.patch_namespaced_pod("a", "default", labels, _content_type="application/merge-patch+json")
        listed = await core.list_pod_for_all_namespaces(label_selector="x=y")
        with pytest.raises(ApiException) as taken:
            await core.create_namespaced_pod("default", a_pod("a"))
        await core.delete_namespaced_pod("a", "default")
        with pytest.raises(ApiException) as missing:
            await core.read_namespaced_pod("a", "default")

    assert made.status.phase == "Pending"
    assert patched.metadata.labels == {"x": "y"}
    assert [pod.metadata.uid for pod in listed.items] == [made.metadata.uid]
    assert (taken.value.status, taken.value.reason) == (409, "Conflict")
    assert missing.value.status == 404


async def test_the_kubernetes_client_watches(kube: EmbeddedKube) -> None:
    async with await a_client(kube) as api_client:
        core = client.CoreV1Api(api_client)
        start = (await core.list_namespaced_config_map("default")).metadata.resource_version
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="seen"))
        await core.create_namespaced_config_map("default", body)
        await core.delete_namespaced_config_map("seen", "default")

        seen = []
        async with Watch() as watch:
            stream = watch.stream(core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=1)
            async for event in stream:
                seen.append((event["type"], event["object"].metadata.name))

    assert seen == [("ADDED", "seen"), ("DELETED", "seen")]


async def test_the_kubernetes_client_applies_custom_resources(kube: EmbeddedKube) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Cluster", "names": names, "versions": [version]},
    }
    thing = {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"a": "b"}}
    async with await a_client(kube) as api_client:
        custom = client.CustomObjectsApi(api_client)
        where = ("test.dev", "v1", "things")

        extensions = client.ApiextensionsV1Api(api_client)
        made = await extensions.create_custom_resource_definition(definition)
        options = {"_content_type": "application/apply-patch+yaml", "field_manager": "us", "force": True}
        await custom.patch_cluster_custom_object(*where, "one", thing, **options)
        listed = await custom.list_cluster_custom_object(*where)
        await extensions.delete_custom_resource_definition("things.test.dev")
        gone = await until_refused(lambda: custom.list_cluster_custom_object(*where))  # its instances go first

    established = [(c.type, c.status) for c in made.status.conditions]
    assert ("Established", "True") in established
    assert [item["spec"] for item in listed["items"]] == [{"a": "b"}]
    assert gone == 404
