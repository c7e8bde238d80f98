"""`spec.cpuOptions.nestedVirtualization` from the EC2NodeClass to the machine, on the real control plane.

One world, one NodeClass and one NodePool for each way to write the field, a pod each. On-demand prices are EC2's list,
so that of the types with and without the feature it is known which is cheaper: m5.large, which lacks it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sawhorse_cloud_aws.calls import client
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import EC2_NODECLASS, NODECLAIM, NODEPOOL, POD
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_sandbox.world import World, start_world
from sawhorse_testing.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

CLUSTER = "nested"
CLASS_LABEL = "karpenter.k8s.aws/ec2nodeclass"
HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
FEATURE = "nested-virtualization"
# Name of the class → its cpuOptions; None leaves the field out.
WRITTEN: Mapping[str, dict[str, str] | None] = {
    "enabled": {"nestedVirtualization": "enabled"},
    "disabled": {"nestedVirtualization": "disabled"},
    "empty": {},
    "absent": None,
}


@dataclass(frozen=True)
class Launched:
    """What EC2 was asked for by one class, and what it gave."""

    claim: NodeClaim
    templates: list[dict[str, Any]]
    types: set[str]  # of the overrides of its fleets
    machine: dict[str, Any]


@dataclass(frozen=True)
class Story:
    """The world after every pod runs."""

    kube: KubeClient
    ec2: Any
    launched: Mapping[str, Launched]
    with_feature: set[str]


def a_class(name: str, role: str, options: dict[str, str] | None) -> dict[str, Any]:
    discovery = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    return {
        "metadata": {"name": name},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": role,
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
            **({} if options is None else {"cpuOptions": options}),
        },
    }


def a_pool(name: str) -> dict[str, Any]:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5", "m8i", "c8i", "r8i"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}
    return {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}},
    }


def a_pod(pool: str) -> dict[str, Any]:
    container = {"name": "app", "image": "example.test/app", "resources": {"requests": {"cpu": "1", "memory": "5Gi"}}}
    return {
        "metadata": {"name": pool, "namespace": "default"},
        "spec": {"nodeSelector": {"karpenter.sh/nodepool": pool}, "containers": [container]},
    }


async def asked_for(ec2: Any, kube: KubeClient, name: str) -> Launched:
    """What a class led to in EC2."""
    mine = [{"Name": f"tag:{CLASS_LABEL}", "Values": [name]}]
    templates: list[dict[str, Any]] = []
    names = [t["LaunchTemplateName"] for t in (await ec2.describe_launch_templates(Filters=mine))["LaunchTemplates"]]
    for template in names:
        answer = await ec2.describe_launch_template_versions(LaunchTemplateName=template)
        templates += [version["LaunchTemplateData"] for version in answer["LaunchTemplateVersions"]]
    fleets = [f for f in (await ec2.describe_fleets())["Fleets"] if {"Key": CLASS_LABEL, "Value": name} in f["Tags"]]
    types = {o["InstanceType"] for f in fleets for c in f["LaunchTemplateConfigs"] for o in c["Overrides"]}
    (claim,) = (c for c in (await kube.list(NODECLAIM)).objects if c.nodepool == name)
    described = (await ec2.describe_instances(InstanceIds=[claim.instance_id]))["Reservations"]
    return Launched(claim, templates, types, described[0]["Instances"][0])


async def types_with_the_feature(ec2: Any) -> set[str]:
    found: set[str] = set()
    async for page in ec2.get_paginator("describe_instance_types").paginate():
        for each in page["InstanceTypes"]:
            if FEATURE in (each["ProcessorInfo"].get("SupportedFeatures") or ()):
                found.add(each["InstanceType"])
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def story(tmp_path_factory: pytest.TempPathFactory, real_assets: Path) -> AsyncIterator[Story]:
    directory: Path = tmp_path_factory.mktemp("nested")
    async with (
        start_world(directory, cluster=CLUSTER, column="assets", assets=real_assets) as world,
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        await world.start_services(without=("interruption",))
        for name, options in WRITTEN.items():
            await kube.create(EC2_NODECLASS, a_class(name, world.account.role_name, options))
            await kube.create(NODEPOOL, a_pool(name))
            await kube.create(POD, a_pod(name))
        await eventually(lambda: all_run(kube), seconds=60, what="each class's pod runs")
        async with ec2_client(world) as ec2:
            yield Story(
                kube,
                ec2,
                {name: await asked_for(ec2, kube, name) for name in WRITTEN},
                await types_with_the_feature(ec2),
            )


def ec2_client(world: World) -> Any:
    return client("ec2", region=world.aws.region, endpoint_url=world.aws.endpoint_url)


async def all_run(kube: KubeClient) -> bool:
    pods = (await kube.list(POD, namespace="default")).objects
    return sum(p.phase == "Running" for p in pods) == len(WRITTEN)


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Any:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "sandbox")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "sandbox")
        yield


async def test_enabled_asks_for_and_launches_only_types_that_have_the_feature(story: Story) -> None:
    launched = story.launched["enabled"]

    assert launched.types
    assert launched.types <= story.with_feature
    assert launched.machine["InstanceType"] in story.with_feature
    assert types_of_claim(launched.claim) <= story.with_feature


def types_of_claim(claim: NodeClaim) -> set[str]:
    """The instance types that the scheduler allowed."""
    return {v for r in claim.requirements if r.key == "node.kubernetes.io/instance-type" for v in r.values}


@pytest.mark.parametrize("name", ["disabled", "empty", "absent"])
async def test_every_other_way_to_write_it_filters_nothing_and_takes_the_cheaper_type(story: Story, name: str) -> None:
    launched = story.launched[name]

    assert launched.types - story.with_feature
    assert launched.types & story.with_feature
    assert launched.machine["InstanceType"] not in story.with_feature


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("enabled", {"NestedVirtualization": "enabled"}),
        ("disabled", {"NestedVirtualization": "disabled"}),
        ("empty", None),
        ("absent", None),
    ],
)
async def test_ec2_receives_the_block_as_written_and_no_block_where_nothing_is(
    story: Story, name: str, block: dict[str, str] | None
) -> None:
    launched = story.launched[name]

    assert launched.templates
    assert [t.get("CpuOptions") for t in launched.templates] == [block] * len(launched.templates)
    kept = (launched.machine.get("CpuOptions") or {}).get("NestedVirtualization")
    assert kept == (block or {}).get("NestedVirtualization")


async def test_a_change_of_the_field_marks_the_class_as_another_and_no_node_label_tells_it(story: Story) -> None:
    before = story.launched["absent"].claim.meta.annotations[HASH]

    change = {"spec": {"cpuOptions": {"nestedVirtualization": "enabled"}}}
    await story.kube.patch(EC2_NODECLASS, "absent", change)

    async def stamped_anew() -> bool:
        live = await story.kube.get(EC2_NODECLASS, "absent")
        return str(live.meta.annotations.get(HASH, before)) != before

    await eventually(stamped_anew, seconds=20, what="the class's hash follows its spec")
    assert not [key for key in story.launched["enabled"].claim.meta.labels if "nested" in key]


async def test_the_api_server_refuses_any_third_word(story: Story) -> None:
    wrong = a_class("wrong", "role", {"nestedVirtualization": "maybe"})

    with pytest.raises(KubeError, match="nestedVirtualization"):
        await story.kube.create(EC2_NODECLASS, wrong)
