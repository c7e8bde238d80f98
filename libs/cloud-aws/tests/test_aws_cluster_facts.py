"""What nodes must know of their cluster: by setting, else from EKS."""

from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.cloud import AwsSettings, connect_cloud, fetch_cluster_facts

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

KNOWN = {
    "cluster_endpoint": "https://mine",
    "cluster_ca": "Q0E=",
    "service_cidr": "172.20.0.0/16",
    "kubernetes_version": "v1.35.2",
}


def settings(endpoint_url: str, name: str = "demo", **known: str) -> AwsSettings:
    return AwsSettings(cluster_name=name, region="us-east-1", endpoint_url=endpoint_url, attempts=1, **known)


async def test_eks_tells_what_is_not_set(world: Any) -> None:
    facts = await fetch_cluster_facts(settings(world.aws.endpoint_url))

    assert (facts.name, facts.service_cidr, facts.version) == ("demo", "10.100.0.0/16", "1.36")
    assert facts.endpoint.startswith("https://")
    assert facts.ca
    assert facts.dns_address == "10.100.0.10"


async def test_a_setting_goes_before_eks(world: Any) -> None:
    facts = await fetch_cluster_facts(settings(world.aws.endpoint_url, kubernetes_version="1.34"))

    assert (facts.version, facts.service_cidr) == ("1.34", "10.100.0.0/16")


async def test_eks_is_not_asked_when_all_is_set() -> None:
    facts = await fetch_cluster_facts(settings("http://127.0.0.1:9", **KNOWN))

    assert (facts.endpoint, facts.version, facts.dns_address) == ("https://mine", "1.35", "172.20.0.10")


async def test_a_cluster_that_eks_does_not_know_is_an_error_at_the_start(world: Any) -> None:
    with pytest.raises(CloudError, match="DescribeCluster"):
        async with connect_cloud(settings(world.aws.endpoint_url, "nobody")):
            pass


@pytest.mark.parametrize(
    ("known", "action"),
    [
        ({"service_cidr": "everywhere"}, "Set --service-cidr."),
        ({"kubernetes_version": "new"}, "Set --kubernetes-version."),
    ],
)
async def test_a_setting_that_makes_no_sense_is_an_error_at_the_start(known: dict[str, str], action: str) -> None:
    with pytest.raises(CloudError) as caught:
        await fetch_cluster_facts(settings("http://127.0.0.1:9", **{**KNOWN, **known}))

    assert caught.value.reason == "ClusterFactsMissing"
    assert caught.value.action == action
