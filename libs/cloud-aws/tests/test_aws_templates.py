"""Launch templates: their content, their names, and how long they live."""

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sawhorse_cloud.errors import CloudError, UnauthorizedError
from sawhorse_cloud_aws.template_data import TemplateRequest, template_data
from sawhorse_cloud_aws.templates import LaunchTemplates, template_name
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_testing.cloud_worlds import an_ec2_node_class

TAGS = {"eks:eks-cluster-name": "demo"}


def a_class(name: str = "default", **spec: Any) -> EC2NodeClass:
    return parse_ec2_node_class(an_ec2_node_class(name, spec=spec))


def data(node_class: EC2NodeClass | None = None, **request: Any) -> dict[str, Any]:
    chosen = {"image_id": "ami-1", "user_data": "aGk=", "tags": TAGS, "spot": False, "region": "us-west-2", **request}
    return template_data(node_class or a_class(), TemplateRequest(**chosen))


def test_equal_content_has_an_equal_name_whatever_the_order_of_its_parts() -> None:
    first = template_name("demo", "default", data(tags={"a": "1", "b": "2"}))
    second = template_name("demo", "default", data(tags={"b": "2", "a": "1"}))

    assert first == second
    assert first.startswith("karpenter.k8s.aws/")
    assert first.rpartition("/")[2].isdigit()


@pytest.mark.parametrize(
    "other",
    [
        {"image_id": "ami-2"},
        {"user_data": "aG8="},
        {"spot": True},
        {"tags": {"eks:eks-cluster-name": "demo", "team": "a"}},
        {"tenancy": "dedicated"},
        {"node_class": a_class(detailedMonitoring=True)},
        {"node_class": a_class(associatePublicIPAddress=True)},
        {"node_class": a_class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "21Gi"}}])},
        {"node_class": a_class(metadataOptions={"httpPutResponseHopLimit": 2})},
    ],
)
def test_other_content_has_another_name(other: dict[str, Any]) -> None:
    assert template_name("demo", "default", data(**other)) != template_name("demo", "default", data())


def test_clusters_and_classes_do_not_share_templates() -> None:
    names = {template_name(c, n, data()) for c in ("demo", "other") for n in ("default", "gpu")}

    assert len(names) == 4


@pytest.mark.parametrize(("size", "gib"), [("20Gi", 20), ("20G", 19), ("1Ti", 1024), ("20.5Gi", 21), ("1", 1)])
def test_a_volumes_size_is_rounded_up_to_whole_gibibytes(size: str, gib: int) -> None:
    node_class = a_class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}])

    assert data(node_class)["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == gib


def test_empty_user_data_is_left_out() -> None:
    assert "UserData" not in data(user_data="")


def test_an_isolated_region_does_not_get_the_field_that_it_does_not_know() -> None:
    assert "HttpProtocolIpv6" in data()["MetadataOptions"]
    assert "HttpProtocolIpv6" not in data(region="us-iso-east-1")["MetadataOptions"]


class FakeEc2:
    """CreateLaunchTemplate and what belongs to it, in memory."""

    def __init__(self) -> None:
        self.templates: dict[str, dict[str, str]] = {}
        self.created = 0
        self.protected: set[str] = set()

    async def create_launch_template(self, **request: Any) -> dict[str, Any]:
        self.created += 1
        await asyncio.sleep(0)
        name = request["LaunchTemplateName"]
        if name in self.templates:
            raise _client_error("InvalidLaunchTemplateName.AlreadyExistsException")
        self.templates[name] = {t["Key"]: t["Value"] for t in request["TagSpecifications"][0]["Tags"]}
        return {}

    async def delete_launch_template(self, *, LaunchTemplateName: str) -> None:
        await asyncio.sleep(0)
        if LaunchTemplateName in self.protected:
            raise _client_error("UnauthorizedOperation")
        if self.templates.pop(LaunchTemplateName, None) is None:
            raise _client_error("InvalidLaunchTemplateName.NotFoundException")

    def get_paginator(self, method: str) -> Any:
        assert method == "describe_launch_templates"
        return self

    async def paginate(self, *, Filters: list[dict[str, Any]]) -> Any:
        wanted = {f["Name"].removeprefix("tag:"): f["Values"] for f in Filters}
        names = [n for n, tags in self.templates.items() if all(tags.get(k) in v for k, v in wanted.items())]
        yield {"LaunchTemplates": [{"LaunchTemplateName": name} for name in names]}


def _client_error(code: str) -> Exception:
    return ClientError({"Error": {"Code": code, "Message": "x"}}, "X")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_store(ec2: FakeEc2) -> tuple[LaunchTemplates, Clock]:
    clock = Clock()
    return LaunchTemplates(ec2=ec2, cluster="demo", monotonic=clock, idle_seconds=600), clock


async def test_a_template_is_made_once() -> None:
    ec2 = FakeEc2()
    store, _ = a_store(ec2)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.ensure(a_class(), data(), TAGS)) for _ in range(5)]

    assert len({t.result() for t in tasks}) == 1
    assert ec2.created == 1


async def test_one_that_another_replica_made_is_used() -> None:
    ec2 = FakeEc2()
    first, _ = a_store(ec2)
    second, _ = a_store(ec2)

    assert await first.ensure(a_class(), data(), TAGS) == await second.ensure(a_class(), data(), TAGS)


async def test_one_that_was_forgotten_is_made_again() -> None:
    ec2 = FakeEc2()
    store, _ = a_store(ec2)
    name = await store.ensure(a_class(), data(), TAGS)
    ec2.templates.clear()

    store.forget([name])
    await store.ensure(a_class(), data(), TAGS)

    assert list(ec2.templates) == [name]


async def test_idle_templates_are_deleted_and_used_ones_kept() -> None:
    ec2 = FakeEc2()
    store, clock = a_store(ec2)
    await store.ensure(a_class(), data(), TAGS)
    clock.now = 599.0
    kept = await store.ensure(a_class(), data(spot=True), TAGS)
    clock.now = 601.0

    assert await store.collect() == 1
    assert list(ec2.templates) == [kept]


async def test_a_template_seen_for_the_first_time_counts_as_just_used() -> None:
    ec2 = FakeEc2()
    older, _ = a_store(ec2)
    await older.ensure(a_class(), data(), TAGS)
    store, clock = a_store(ec2)
    clock.now = 10_000.0

    assert await store.collect() == 0
    clock.now += 601
    assert await store.collect() == 1


async def test_templates_of_others_are_left_alone() -> None:
    ec2 = FakeEc2()
    ec2.templates = {
        "karpenter.k8s.aws/1": {"eks:eks-cluster-name": "other"},
        "by-hand": {"eks:eks-cluster-name": "demo"},
    }
    store, clock = a_store(ec2)
    await store.collect()
    clock.now = 10_000.0

    assert await store.collect() == 0
    assert len(ec2.templates) == 2


async def test_a_template_taken_up_during_the_collection_is_there_for_its_launch() -> None:
    ec2 = FakeEc2()
    store, clock = a_store(ec2)
    requests = [data(user_data=text) for text in ("aGk=", "aG8=", "aGE=")]
    for each in requests:
        await store.ensure(a_class(), each, TAGS)
    clock.now = 700.0

    async with asyncio.TaskGroup() as group:
        group.create_task(store.collect())
        await asyncio.sleep(0)
        used = [await store.ensure(a_class(), each, TAGS) for each in requests]

    assert set(used) == set(ec2.templates)


async def test_one_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    ec2 = FakeEc2()
    store, clock = a_store(ec2)
    names = sorted([await store.ensure(a_class(), data(spot=spot), TAGS) for spot in (False, True)])
    ec2.protected = {names[0]}
    clock.now = 700.0

    with pytest.raises(UnauthorizedError):
        await store.collect()

    assert list(ec2.templates) == [names[0]]


async def test_a_classes_templates_go_with_it_and_no_others() -> None:
    ec2 = FakeEc2()
    store, _ = a_store(ec2)
    mine = {**TAGS, "karpenter.k8s.aws/ec2nodeclass": "default"}
    other = {**TAGS, "karpenter.k8s.aws/ec2nodeclass": "gpu"}
    await store.ensure(a_class(), data(tags=mine), mine)
    kept = await store.ensure(a_class("gpu"), data(tags=other), other)

    await store.delete_of(a_class())
    await store.delete_of(a_class())

    assert list(ec2.templates) == [kept]


async def test_a_refusal_to_make_one_is_told() -> None:
    class Refusing(FakeEc2):
        async def create_launch_template(self, **request: Any) -> dict[str, Any]:
            raise _client_error("LaunchTemplateNameLimitExceeded")

    store, _ = a_store(Refusing())

    with pytest.raises(CloudError) as caught:
        await store.ensure(a_class(), data(), TAGS)

    assert caught.value.reason == "LaunchTemplateNameLimitExceeded"
