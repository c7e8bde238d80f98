"""FakeKube, the embedded and the real API server give the same answers to what our code relies on."""

from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from sawhorse_kube.api import KubeEvent
from sawhorse_kube.client import KubeClient
from sawhorse_kube.errors import GoneError
from sawhorse_kube.kinds import EVENT, POD
from sawhorse_sandbox.controlplane import ControlPlane
from sawhorse_testing.kube import FakeKube
from sawhorse_testing.kube_contract import CONTRACT, Contract, a_pod, a_version_that_is_too_old_is_gone

# A server keeps its whole short history, so nothing in it is too old unless it is compacted (see the last test).
SERVERS = tuple(rule for rule in CONTRACT if rule is not a_version_that_is_too_old_is_gone)


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
async def test_the_fake_keeps_the_contract(rule: Contract) -> None:
    kube = FakeKube()

    await rule(kube, "test")  # raises AssertionError where it is broken

    assert kube.calls or rule.__name__ == "the_version_is_a_pair_of_numbers"


@pytest.mark.integration
@pytest.mark.embedded
@pytest.mark.parametrize("rule", SERVERS, ids=lambda rule: rule.__name__)
async def test_the_client_on_the_embedded_api_server_keeps_the_contract(
    rule: Contract, embedded_kube: KubeClient, embedded_namespace: str
) -> None:
    await rule(embedded_kube, embedded_namespace)  # raises AssertionError where it is broken

    assert await embedded_kube.server_version() >= (1, 30)


@pytest.mark.integration
@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("rule", SERVERS, ids=lambda rule: rule.__name__)
async def test_the_client_on_the_real_api_server_keeps_the_contract(
    rule: Contract, real_kube: KubeClient, real_namespace: str
) -> None:
    await rule(real_kube, real_namespace)  # raises AssertionError where it is broken

    assert await real_kube.server_version() >= (1, 30)


@pytest.mark.integration
@pytest.mark.real
@pytest.mark.timeout(180)
async def test_a_watch_from_a_version_that_etcd_has_compacted_is_gone(
    real_plane: ControlPlane, real_kube: KubeClient, real_namespace: str
) -> None:
    pod = await real_kube.create(POD, a_pod(real_namespace, "a"))
    await real_kube.record(KubeEvent(POD, pod.meta, "Normal", "Nominated", "m"))
    await compact(real_plane, (await real_kube.list(EVENT)).resource_version)

    # Events are the one kind that the API server does not hold in memory.
    with pytest.raises(GoneError):
        async for _ in real_kube.watch(EVENT, resource_version="1", timeout=timedelta(seconds=10)):
            pass


def etcd_address(plane: ControlPlane) -> str:
    command = Path(f"/proc/{plane.pids['etcd']}/cmdline").read_bytes().decode().split("\0")
    return next(word.partition("=")[2] for word in command if word.startswith("--listen-client-urls="))


async def compact(plane: ControlPlane, revision: str) -> None:
    """Let etcd forget what was before a revision, over its JSON gateway."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{etcd_address(plane)}/v3/kv/compaction", json={"revision": revision}) as answer,
    ):
        assert answer.status == 200, await answer.text()
