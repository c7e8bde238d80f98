"""Instances that exist, with an EC2 that answers what the sandbox cannot: odd instances, protected ones, many ids."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sawhorse_cloud.cloud import InstanceState
from sawhorse_cloud.errors import CloudError, InstanceNotFoundError, ThrottledError
from sawhorse_cloud_aws.instances import Instances
from sawhorse_cloud_aws.launched import described_instance, fleet_instances


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "X")


def raw(instance_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "InstanceId": instance_id,
        "State": {"Name": "running"},
        "InstanceType": "m5.large",
        "Placement": {"AvailabilityZone": "us-west-2a"},
        **fields,
    }


class FakeEc2:
    """Records calls; TerminateInstances refuses as a whole when one id is refused, as EC2 does."""

    def __init__(self, *instances: dict[str, Any], refused: dict[str, str] | None = None) -> None:
        self.instances = instances
        self.refused = refused or {}
        self.filters: list[list[dict[str, Any]]] = []
        self.ended: set[str] = set()
        self.calls = 0

    def get_paginator(self, method: str) -> "FakeEc2":
        assert method == "describe_instances"
        return self

    async def paginate(self, *, Filters: list[dict[str, Any]], **_: Any) -> AsyncIterator[dict[str, Any]]:
        self.filters.append(Filters)
        yield {"Reservations": [{"Instances": [each]} for each in self.instances]}

    async def terminate_instances(self, *, InstanceIds: list[str]) -> None:
        self.calls += 1
        for instance_id in InstanceIds:
            if instance_id in self.refused:
                raise refusal(self.refused[instance_id])
        self.ended.update(InstanceIds)

    async def create_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> None:
        raise refusal(self.refused[Resources[0]])


def over(ec2: FakeEc2) -> Instances:
    return Instances(ec2=ec2, cluster="demo")


async def test_one_instance_that_makes_no_sense_does_not_hide_the_others() -> None:
    ec2 = FakeEc2(raw("i-1"), raw("i-2", State={"Name": "sleeping"}), {"InstanceId": "i-3"}, raw("i-4"))

    assert [i.id for i in await over(ec2).ours()] == ["i-1", "i-4"]


async def test_only_our_clusters_living_instances_are_asked_for() -> None:
    ec2 = FakeEc2()

    await over(ec2).ours()

    names = {f["Name"]: f.get("Values") for f in ec2.filters[0]}
    assert names["tag:eks:eks-cluster-name"] == ["demo"]
    assert "terminated" not in names["instance-state-name"]
    assert [f["Values"] for f in ec2.filters[0] if f["Name"] == "tag-key"] == [
        ["karpenter.sh/nodepool"],
        ["karpenter.k8s.aws/ec2nodeclass"],
    ]


async def test_many_ids_are_described_in_parts_that_a_filter_takes() -> None:
    ec2 = FakeEc2()

    await over(ec2).by_id([f"i-{n}" for n in range(450)] + ["", "i-1"])

    assert [len(f[0]["Values"]) for f in ec2.filters] == [200, 200, 50]


async def test_nothing_is_asked_about_empty_ids_and_tokens() -> None:
    ec2 = FakeEc2(raw("i-1"))

    assert await over(ec2).by_id([""]) == {}
    assert await over(ec2).by_token("") == []
    await over(ec2).terminate(["", ""])
    assert (ec2.filters, ec2.calls) == ([], 0)


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"])
async def test_unknown_ids_do_not_keep_others_alive(code: str) -> None:
    ec2 = FakeEc2(refused={"i-gone": code})

    await over(ec2).terminate(["i-1", "i-gone", "i-2"])

    assert ec2.ended == {"i-1", "i-2"}


async def test_a_protected_instance_is_told_after_the_others_have_ended() -> None:
    ec2 = FakeEc2(refused={"i-1": "OperationNotPermitted"})

    with pytest.raises(CloudError) as caught:
        await over(ec2).terminate([f"i-{n}" for n in range(30)])

    assert caught.value.reason == "OperationNotPermitted"
    assert len(ec2.ended) == 29


async def test_a_throttled_end_is_not_tried_one_by_one() -> None:
    ec2 = FakeEc2(refused={"i-1": "RequestLimitExceeded"})

    with pytest.raises(ThrottledError):
        await over(ec2).terminate([f"i-{n}" for n in range(30)])

    assert ec2.calls == 1


async def test_more_ids_than_a_call_takes_are_ended_in_parts() -> None:
    ec2 = FakeEc2()

    await over(ec2).terminate([f"i-{n}" for n in range(1200)])

    assert (ec2.calls, len(ec2.ended)) == (3, 1200)


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidID"])
async def test_tagging_what_is_not_there_is_not_found(code: str) -> None:
    with pytest.raises(InstanceNotFoundError):
        await over(FakeEc2(refused={"i-1": code})).tag("i-1", {"a": "b"})


async def test_tagging_without_an_id_asks_nothing() -> None:
    with pytest.raises(InstanceNotFoundError):
        await over(FakeEc2()).tag("", {"a": "b"})


async def test_any_other_refusal_to_tag_is_told_as_it_is() -> None:
    with pytest.raises(CloudError) as caught:
        await over(FakeEc2(refused={"i-1": "TagLimitExceeded"})).tag("i-1", {"a": "b"})

    assert caught.value.reason == "TagLimitExceeded"


def test_an_instance_is_spot_by_its_life_cycle() -> None:
    assert described_instance(raw("i-1", InstanceLifecycle="spot")).capacity_type == "spot"
    assert described_instance(raw("i-1")).capacity_type == "on-demand"
    assert described_instance(raw("i-1", State={"Name": "shutting-down"})).state is InstanceState.SHUTTING_DOWN


def test_what_a_fleets_answer_leaves_out_follows_from_the_request() -> None:
    answer = {
        "Instances": [
            {"InstanceIds": ["i-2", "i-1"], "LaunchTemplateAndOverrides": {"Overrides": {"SubnetId": "subnet-b"}},
             "InstanceType": "m5.large"}
        ]
    }  # fmt: skip

    found = fleet_instances(
        answer,
        token="t",
        capacity_type="spot",
        tags={"a": "b"},
        zones={"subnet-b": "us-west-2b"},
        images={"m5.large": "ami-1"},
    )

    assert [i.id for i in found] == ["i-1", "i-2"]
    assert found[0].provider_id == "aws:///us-west-2b/i-1"
    assert (found[0].image_id, found[0].capacity_type, found[0].token) == ("ami-1", "spot", "t")
    assert found[0].tags == {"a": "b", "sawhorse.dev/launch": "t"}
