"""A NodeClass that cannot be read, or cannot work: a condition that names the field, never an exception."""

from typing import Any

import pytest

from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.spec import INVALID, KUBELET, KUBELET_EXPRESSIONS, read_node_class
from sawhorse_cloud_aws.user_data import LARGEST_BYTES
from sawhorse_cloud_aws.validation import validate
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_model.meta import Condition
from sawhorse_testing.cloud_worlds import an_ec2_node_class

CLUSTER = ClusterFacts("demo", "https://demo", "Q0E=", "10.100.0.0/16", "1.36")
GOOD = [Condition(kind, "True", kind) for kind in ("SubnetsReady", "AMIsReady")]


def validated(cluster: ClusterFacts = CLUSTER, conditions: Any = GOOD, **spec: Any) -> Condition:
    parsed, misfits = read_node_class(an_ec2_node_class(spec=spec))
    return validate(parsed, misfits, conditions, cluster)


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"kubelet": {"maxPods": "vcpus * 10"}}, KUBELET_EXPRESSIONS, "spec.kubelet.maxPods"),
        ({"kubelet": {"podsPerCore": "4"}}, KUBELET, "spec.kubelet.podsPerCore"),
        ({"kubelet": {"clusterDNS": "10.0.0.10"}}, KUBELET, "spec.kubelet.clusterDNS"),
        ({"kubelet": []}, KUBELET, "spec.kubelet"),
        ({"subnetSelectorTerms": [{"tags": {"a": 1}}]}, INVALID, "spec.subnetSelectorTerms[0].tags[a]"),
        ({"subnetSelectorTerms": "all"}, INVALID, "spec.subnetSelectorTerms"),
        ({"amiFamily": 2023}, INVALID, "spec.amiFamily"),
        (
            {"blockDeviceMappings": [{"deviceName": "x", "ebs": {"volumeSize": "big"}}]},
            INVALID,
            "spec.blockDeviceMappings[0].ebs.volumeSize",
        ),
        (
            {"metadataOptions": {"httpPutResponseHopLimit": "1"}},
            INVALID,
            "spec.metadataOptions.httpPutResponseHopLimit",
        ),
        ({"tags": {"a": True}}, INVALID, "spec.tags[a]"),
        ({"cpuOptions": {"nestedVirtualization": True}}, INVALID, "spec.cpuOptions.nestedVirtualization"),
    ],
)
def test_a_field_that_cannot_be_read_is_a_false_condition_that_names_it(
    spec: dict[str, Any], reason: str, field: str
) -> None:
    condition = validated(**spec)

    assert (condition.type, condition.status, condition.reason) == ("ValidationSucceeded", "False", reason)
    assert condition.message.startswith(f"{field}: ")


def test_the_rest_of_a_class_with_a_bad_field_stays_usable() -> None:
    node_class = an_ec2_node_class(spec={"kubelet": {"maxPods": "vcpus"}, "userData": "#!/bin/sh"})

    parsed, misfits = read_node_class(node_class)

    assert len(misfits) == 1
    assert (parsed.user_data, parsed.role, len(parsed.subnet_terms)) == ("#!/bin/sh", "node-role", 1)
    assert parsed.node_class.spec == node_class.spec


def test_all_bad_fields_are_told_at_once() -> None:
    condition = validated(tags={"a": 1}, kubelet={"maxPods": "x"}, context=7)

    assert all(f"spec.{field}" in condition.message for field in ("tags", "kubelet.maxPods", "context"))


def test_a_status_that_cannot_be_read_is_looked_up_anew() -> None:
    parsed, misfits = read_node_class(an_ec2_node_class(status={"subnets": "none", "amis": [{"requirements": [1]}]}))

    assert misfits == ()
    assert (parsed.subnets, parsed.amis) == ((), ())
    assert parsed.resolved_profile == "demo_1"


def test_a_good_class_is_read_as_it_is() -> None:
    node_class = an_ec2_node_class()

    assert read_node_class(node_class) == (parse_ec2_node_class(node_class), ())
    assert validated().status == "True"


def test_al2023_without_the_service_range_cannot_join() -> None:
    unknown = ClusterFacts("demo", "https://demo", "Q0E=", "", "1.36")

    assert validated(unknown).reason == "ClusterCIDRResolutionFailed"
    assert validated(unknown, amiFamily="Custom").status == "True"


@pytest.mark.parametrize(("word", "status"), [("False", "False"), ("Unknown", "Unknown")])
def test_validation_waits_for_what_it_depends_on(word: str, status: str) -> None:
    condition = validated(conditions=[*GOOD, Condition("SecurityGroupsReady", word, "why")])

    assert (condition.status, condition.reason) == (status, "DependenciesNotReady")
    assert condition.message == f"SecurityGroupsReady={word}"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "kubernetes.io/cluster/demo",
        "eks:eks-cluster-name",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
        "aws:createdBy",
    ],
)
def test_tags_that_are_not_the_users_are_refused(key: str) -> None:
    assert validated(tags={"Name": "x", key: "y"}).reason == "TagValidationFailed"


def test_user_data_that_is_too_large_with_ours_is_told_before_any_launch() -> None:
    condition = validated(userData="#!/bin/sh\n" + "#" * LARGEST_BYTES)

    assert condition.reason == "UserDataSizeLimitExceeded"
    assert str(LARGEST_BYTES) in condition.message


def test_broken_user_data_is_told_before_any_launch() -> None:
    assert validated(userData="--X\nContent-Type: text/x-shellscript\n").reason == "UserDataInvalid"
