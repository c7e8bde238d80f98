"""The shipped CRDs on a real API server: that it serves them, and the cost of their rules.

What it takes and refuses, field by field, is in `test_crds_verdicts.py`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from sawhorse_sandbox.controlplane import find_assets, start_control_plane

ROOT = Path(__file__).resolve().parents[2]
CRDS = [yaml.safe_load(path.read_text("utf-8")) for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))]
RESOURCES = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEADLINE = 30.0  # seconds for a CRD to be served; 2 s were seen
ADocument = Callable[[str, Mapping[str, Any]], dict[str, Any]]

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@dataclass(frozen=True, slots=True)
class Server:
    """The API server, spoken to in plain JSON."""

    http: aiohttp.ClientSession
    url: str

    async def call(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> tuple[int, Any]:
        """Return status and decoded answer. A patch is a merge patch."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": accept}
        async with self.http.request(method, self.url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            # A path that is not served yet is answered in plain words.
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else {"message": text}

    async def create(self, document: Mapping[str, Any], **metadata: str) -> tuple[int, str]:
        """Create with unknown fields refused, as `kubectl apply` does; returns status and message."""
        body = {**document, "metadata": metadata or document["metadata"]}
        status, answer = await self.call("POST", RESOURCES[document["kind"]] + "?fieldValidation=Strict", body)
        return status, answer.get("message", "")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A control plane with the three CRDs, served and ready for objects."""
    assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    assert assets, "no control plane binaries: run `make kube-assets`"
    async with await start_control_plane(tmp_path_factory.mktemp("kube"), assets) as plane:
        connector = aiohttp.TCPConnector(ssl=False)
        headers = {"Authorization": f"Bearer {plane.token}"}
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as http:
            server = Server(http, plane.url)
            for crd in CRDS:
                status, answer = await server.call("POST", DEFINITIONS, crd)
                assert status == 201, f"{crd['metadata']['name']}: {answer.get('message')}"
            for collection in RESOURCES.values():
                await until_served(server, collection)
            yield server


async def until_served(server: Server, collection: str) -> None:
    """Wait until objects of a new kind can be listed; creating works from then on."""
    async with asyncio.timeout(DEADLINE):
        status = 0
        while status != 200:
            await asyncio.sleep(0.1)
            status, _ = await server.call("GET", collection)


@pytest.mark.parametrize("name", [crd["metadata"]["name"] for crd in CRDS])
async def test_a_definition_is_established_and_structural(server: Server, name: str) -> None:
    _, crd = await server.call("GET", f"{DEFINITIONS}/{name}")
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_the_largest_lists_of_the_contract_are_within_the_cost_limits_of_the_rules(
    server: Server, a_document: ADocument
) -> None:
    requirements = [{"key": f"k{n}", "operator": "In", "values": [f"v{m}" for m in range(300)]} for n in range(100)]
    first = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    others = [{"networkCardIndex": n, "deviceIndex": 1, "interfaceType": "efa-only"} for n in range(1, 150)]
    pool = a_document("NodePool", {"spec.template.spec.requirements": requirements})
    node_class = a_document("EC2NodeClass", {"spec.networkInterfaces": [first, *others]})

    answers = [await server.create(pool, name="wide"), await server.create(node_class, name="wide")]

    assert answers == [(201, ""), (201, "")]


async def test_a_static_pool_is_scaled_through_its_subresource(server: Server, a_document: ADocument) -> None:
    await server.create(a_document("NodePool", {"spec.replicas": 2}), name="scaled")

    status, _ = await server.call("PATCH", f"{RESOURCES['NodePool']}/scaled/scale", {"spec": {"replicas": 5}})
    _, pool = await server.call("GET", f"{RESOURCES['NodePool']}/scaled")

    assert status == 200
    assert pool["spec"]["replicas"] == 5


async def test_only_a_claims_condition_may_have_an_empty_reason(server: Server, a_document: ADocument) -> None:
    condition = {"type": "Launched", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": ""}
    body = {"status": {"conditions": [{**condition, "message": ""}]}}
    statuses = {}

    for kind, collection in RESOURCES.items():
        await server.create(a_document(kind, {}), name="conditions")
        statuses[kind], _ = await server.call("PATCH", f"{collection}/conditions/status", body)

    assert statuses == {"NodePool": 422, "NodeClaim": 200, "EC2NodeClass": 422}


async def test_a_listing_shows_the_values_of_its_columns(server: Server, a_document: ADocument) -> None:
    await server.create(a_document("NodePool", {"spec.weight": 7}), name="columns")
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"

    _, answer = await server.call("GET", f"{RESOURCES['NodePool']}/columns", accept=table)
    shown = dict(zip((c["name"] for c in answer["columnDefinitions"]), answer["rows"][0]["cells"], strict=True))

    assert (shown["Name"], shown["NodeClass"], shown["Weight"]) == ("columns", "default", 7)
