"""The rendered chart, applied to a real API server the way helm does: every object is accepted, nothing is dropped."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sawhorse_sandbox.controlplane import ControlPlane, find_assets, start_control_plane
from sawhorse_sandbox.crds import apply_crds

RESOURCES = {
    "ServiceAccount": "api/v1/namespaces/{ns}/serviceaccounts",
    "Secret": "api/v1/namespaces/{ns}/secrets",
    "Service": "api/v1/namespaces/{ns}/services",
    "Deployment": "apis/apps/v1/namespaces/{ns}/deployments",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
RIGHTS_SECONDS = 20.0
VARIANTS: dict[str, dict[str, str]] = {
    "defaults": {},
    "tls": {"grpc.tlsSecretName": "certificates", "settings.isolatedVPC": "true"},
    "own-redis": {"redis.enabled": "false", "redis.url": "redis://cache:6379/0", "redis.existingSecret": "cache"},
    "no-queue": {"settings.interruptionQueue": ""},
}

pytestmark = [pytest.mark.integration, pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """A control plane of its own."""
    assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    assert assets, "no control plane binaries: run `make kube-assets`"
    # Asks for rights on owners that block deletion; some clusters run it.
    plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    async with await start_control_plane(tmp_path / "kube", assets, apiserver_flags=[plugin]) as plane:
        yield plane


@asynccontextmanager
async def administrator(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with all rights, once the CRDs are there."""
    trusted = ssl.create_default_context(cafile=str(plane.directory / "certs" / "apiserver.crt"))
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=trusted)) as http:
        await apply_crds(http, plane.url)
        yield http


async def apply(http: aiohttp.ClientSession, url: str, namespace: str, documents: list[dict[str, Any]]) -> None:
    """Apply as helm 4 does; strict, so that an unknown field is an error and not dropped."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    async with http.post(f"{url}/api/v1/namespaces", json=space) as answer:
        assert answer.status == 201
    for document in documents:
        path = f"{RESOURCES[document['kind']].format(ns=namespace)}/{document['metadata']['name']}"
        kind = {"Content-Type": "application/apply-patch+yaml"}
        query = "fieldManager=helm&fieldValidation=Strict"
        async with http.patch(f"{url}/{path}?{query}", json=document, headers=kind) as answer:
            text = await answer.text()
            assert answer.status in (200, 201), f"{namespace}: {document['kind']}: {text}"
            # The API server says so when a field is deprecated or makes no sense.
            assert "Warning" not in answer.headers, answer.headers["Warning"]


async def test_every_object_of_every_variant_is_accepted(
    plane: ControlPlane, render: Callable[..., list[dict[str, Any]]]
) -> None:
    async with administrator(plane) as http:
        for variant, values in VARIANTS.items():
            documents = [d for d in render(namespace=variant, values=values) if d["kind"] in RESOURCES]

            await apply(http, plane.url, variant, documents)

            assert {d["kind"] for d in documents} >= {"Deployment", "ServiceAccount", "ClusterRole", "Service"}


def lesser(role: dict[str, Any]) -> list[dict[str, Any]]:
    """The provisioner's role without the rights on finalizers, bound to the user `lesser`."""
    rules = [rule for rule in role["rules"] if not any(r.endswith("/finalizers") for r in rule["resources"])]
    metadata = {"name": "lesser"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lesser"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "lesser"}]
    binding = {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": reference, "subjects": subjects}
    return [{**role, "metadata": metadata, "rules": rules}, {**binding, "apiVersion": role["apiVersion"]}]


async def test_owners_that_block_deletion_need_the_rights_on_finalizers(
    plane: ControlPlane, render: Callable[..., list[dict[str, Any]]]
) -> None:
    documents = [d for d in render() if d["kind"] in RESOURCES]
    (role,) = (d for d in documents if d["kind"] == "ClusterRole" and d["metadata"]["name"] == "sawhorse-provisioner")
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "claim", "uid": "0"}
    owned = {"metadata": {"ownerReferences": [{**claim, "blockOwnerDeletion": True}]}}
    async with administrator(plane) as http:
        await apply(http, plane.url, "sawhorse", [*documents, *lesser(role)])
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}
        async with http.post(f"{plane.url}/api/v1/nodes", json=node) as answer:
            assert answer.status == 201

        async def patch_as(user: str, body: dict[str, Any]) -> tuple[int, str]:
            headers = {"Impersonate-User": user, "Content-Type": "application/merge-patch+json"}
            deadline = time.monotonic() + RIGHTS_SECONDS
            while True:
                async with http.patch(f"{plane.url}/api/v1/nodes/node", json=body, headers=headers) as answer:
                    status, text = answer.status, await answer.text()
                # New roles take a moment to reach the authorizer.
                if "cannot patch resource" not in text or time.monotonic() > deadline:
                    return status, text
                await asyncio.sleep(0.1)

        refused = await patch_as("lesser", owned)
        allowed = await patch_as("system:serviceaccount:sawhorse:sawhorse-provisioner", owned)

        assert refused[0] == 403
        assert "cannot set blockOwnerDeletion" in refused[1]
        assert allowed[0] == 200, allowed[1]
