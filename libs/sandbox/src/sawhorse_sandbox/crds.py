"""Applies the project's CRDs to a cluster of the sandbox, and waits until their kinds can be used."""

import asyncio
import importlib.resources
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import yaml

READY_SECONDS = 30.0
_POLL = 0.1
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class CrdError(RuntimeError):
    """A CRD was refused or its kind did not become usable in time."""


def read_crds() -> list[dict[str, Any]]:
    """The project's CRDs as objects, in the order of their file names."""
    folder = importlib.resources.files("sawhorse_model") / "crds"
    texts = sorted((f.name, f.read_text()) for f in folder.iterdir() if f.name.endswith(".yaml"))
    return [document for _, text in texts for document in yaml.safe_load_all(text) if document]


async def apply_crds(http: aiohttp.ClientSession, url: str) -> None:
    """Create the CRDs and wait until each kind can be listed and watched.

    Args:
        http: carries the token and trusts the server.
        url: the API server's, without a trailing slash.
    Raises:
        CrdError: naming the CRD.
    """
    crds = read_crds()
    for crd in crds:
        async with http.post(url + _PATH, json=crd) as response:
            if response.status not in (201, 409):
                raise CrdError(f"{crd['metadata']['name']}: refused: {(await response.text())[:300]}")
    deadline = time.monotonic() + READY_SECONDS
    for crd in crds:
        await _wait_usable(http, url, crd, deadline)


async def _wait_usable(http: aiohttp.ClientSession, url: str, crd: Mapping[str, Any], deadline: float) -> None:
    """A real server answers 404 for some two seconds after it said Established."""
    spec = crd["spec"]
    version = next(v["name"] for v in spec["versions"] if v["storage"])
    path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
    # Creating works last, listing earlier. An object that the schema refuses shows that the kind is there.
    probe = {
        "apiVersion": f"{spec['group']}/{version}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": "probe"},
        "spec": "not an object",
    }
    while True:
        async with http.post(f"{url}{path}?dryRun=All", json=probe) as response:
            if response.status in (400, 422):
                return
        if time.monotonic() > deadline:
            raise CrdError(f"{crd['metadata']['name']}: not usable within {READY_SECONDS:g} s")
        await asyncio.sleep(_POLL)
