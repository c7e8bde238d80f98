"""The demo's story with each service under its own ServiceAccount: what the chart grants is enough, and little more.

An audit log says what each account asked for. A missing right fails the story or shows as forbidden; a granted right
that nobody used must be one of `SELDOM`, with the reason why a run can do without it.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from rich.console import Console

from sawhorse_console.demo.command import open_story
from sawhorse_console.demo.manifests import PODS
from sawhorse_console.demo.report import Report
from sawhorse_console.demo.story import Story
from sawhorse_console.demo.view import open_view
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_sandbox.controlplane import find_assets
from sawhorse_sandbox.kubelet.api import load_kubeconfig
from sawhorse_sandbox.world import World, start_world

NAMESPACE = "sawhorse"
ACCOUNTS = ("watcher", "provisioner", "interruption")  # pricing asks Kubernetes nothing
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
}
RIGHTS_SECONDS = 20.0
DRAINED_SECONDS = 60.0

Right = tuple[str, str, str, str]  # service, API group, resource with subresource, verb

SELDOM: dict[Right, str] = {
    ("provisioner", "", "pods", "delete"): "pods that cannot be evicted in time, such as at a deadline",
    ("interruption", "", "pods", "delete"): "pods that cannot be evicted in time, such as at a deadline",
    ("interruption", "", "nodes", "list"): "a message about an instance that the mirror does not show",
    (
        "provisioner",
        "karpenter.sh",
        "nodeclaims",
        "delete",
    ): "launches that fail, nodes that never join, lost instances",
    ("provisioner", "karpenter.sh", "nodepools", "get"): "a status that somebody else wrote in between",
    ("provisioner", "karpenter.k8s.aws", "ec2nodeclasses", "get"): "the same, and the finalizer of a deleted class",
}

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.timeout(300)]


def granted(documents: Iterable[dict[str, Any]]) -> set[Right]:
    """Every right in the roles, which are named after their service."""
    return {
        (document["metadata"]["name"].removeprefix("sawhorse-"), group, resource, verb)
        for document in documents
        if document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(audit: Path) -> tuple[set[Right], list[str]]:
    """What the accounts asked for, and what of it was forbidden."""
    rights: set[Right] = set()
    forbidden: list[str] = []
    for line in audit.read_text().splitlines():
        event = json.loads(line)
        user = event["user"]["username"]
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            forbidden.append(f"{user}: {event['verb']} {event['requestURI']}")
        if "objectRef" in event:
            what = event["objectRef"]
            resource = "/".join(part for part in (what["resource"], what.get("subresource", "")) if part)
            service = user.rpartition(":")[2].removeprefix("sawhorse-")
            rights.add((service, what.get("apiGroup", ""), resource, event["verb"]))
    return rights, forbidden


@asynccontextmanager
async def administrator(world: World) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Calls the API server with all rights: method, path, body → the answer's JSON."""
    access = load_kubeconfig(world.kubeconfig)
    connector = aiohttp.TCPConnector(ssl=access.tls)
    headers = {"Authorization": f"Bearer {access.token}"}
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as http:

        async def call(method: str, path: str, body: Any = None) -> Any:
            async with http.request(method, access.url + path, json=body) as answer:
                found = await answer.json()
                assert answer.status < 300, found
                return found

        yield call


async def grant(world: World, documents: Iterable[dict[str, Any]]) -> None:
    """Apply accounts and roles, and give each service a kubeconfig that holds its account's token alone."""
    base = json.loads(world.kubeconfig.read_text())
    async with administrator(world) as call:
        await call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for document in documents:
            if document["kind"] in PATHS:
                await call("POST", PATHS[document["kind"]], document)
        for service in ACCOUNTS:
            wanted = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            }
            made = await call("POST", f"{PATHS['ServiceAccount']}/sawhorse-{service}/token", wanted)
            users = [{"name": "admin", "user": {"token": made["status"]["token"]}}]
            world.kubeconfigs[service] = world.directory / f"{service}.kubeconfig"
            world.kubeconfigs[service].write_text(json.dumps({**base, "users": users}))
            await until_effective(call, service)


async def until_effective(call: Callable[..., Awaitable[Any]], service: str) -> None:
    """The authorizer learns of new roles from a watch of its own."""
    attributes = {"group": "coordination.k8s.io", "resource": "leases", "verb": "create", "namespace": NAMESPACE}
    if service == "interruption":
        attributes = {"group": "karpenter.sh", "resource": "nodeclaims", "verb": "list"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{NAMESPACE}:sawhorse-{service}", "resourceAttributes": attributes},
    }
    deadline = time.monotonic() + RIGHTS_SECONDS
    while not (await call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review))["status"]["allowed"]:
        assert time.monotonic() < deadline, f"the rights of {service} do not take effect"
        await asyncio.sleep(0.1)


async def start_services(world: World) -> None:
    await world.start_service("pricing")
    election = [f"--leader-election-namespace={NAMESPACE}"]
    async with asyncio.TaskGroup() as group:
        group.create_task(world.start_service("watcher", extra=election))
        group.create_task(world.start_service("provisioner", extra=election))
        group.create_task(world.start_service("interruption"))


async def drain_by_hand(story: Story) -> None:
    """Delete a NodeClaim as a person would: the provisioner itself drains this one."""
    claim = (await story.observer.look()).claims[0]
    await story.kube.delete(NODECLAIM, claim.meta.name, uid=claim.meta.uid)
    deadline = time.monotonic() + DRAINED_SECONDS
    while True:
        look = await story.observer.look()
        if look.running >= PODS and all(c.meta.uid != claim.meta.uid for c in look.claims):
            return
        assert time.monotonic() < deadline, "the deleted claim's pods do not run elsewhere"
        await asyncio.sleep(0.2)


async def test_the_demos_story_passes_with_the_service_accounts_own_rights(
    tmp_path: Path, render: Callable[..., list[dict[str, Any]]]
) -> None:
    assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    assert assets, "no control plane binaries: run `make kube-assets`"
    documents = render(namespace=NAMESPACE)
    policy, audit = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text(yaml.safe_dump(AUDIT))
    flags = [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit}",
        # Asks for rights on owners that block deletion; some clusters run it.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    ]
    report, told = Report(), StringIO()

    async with start_world(tmp_path, column="assets", assets=assets, apiserver_flags=flags) as world:
        await grant(world, documents)
        await start_services(world)
        with open_view(Console(file=told)) as view:
            async with open_story(world, view, report) as story:
                await story.tell()
                await drain_by_hand(story)
        await world.stop_services()

    rights, forbidden = asked(audit)
    assert forbidden == []
    assert report.ok, told.getvalue()
    # The plugin asks the authorizer directly, which the audit log does not show; test_chart_on_apiserver tries these.
    by_plugin = {right for right in granted(documents) if right[2].endswith("/finalizers")}
    unused = granted(documents) - rights - by_plugin
    assert unused <= set(SELDOM), "granted, but nothing uses it"
    assert set(SELDOM) <= granted(documents), "no longer granted; take it out of SELDOM"
