"""The hash of a NodeClass: what drifts nodes, and what does not."""

from typing import Any

import pytest

from sawhorse_cloud_aws.hashing import static_hash
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_testing.cloud_worlds import an_ec2_node_class

DEVICE = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "encrypted": True}}


def hashed(**spec: Any) -> str:
    return static_hash(parse_ec2_node_class(an_ec2_node_class(spec=spec)))


@pytest.mark.parametrize(
    "spec",
    [
        {"role": "other"},
        {"userData": "#!/bin/sh"},
        {"tags": {"a": "b"}},
        {"kubelet": {"maxPods": 10}},
        {"blockDeviceMappings": [DEVICE]},
        {"instanceStorePolicy": "RAID0"},
        {"detailedMonitoring": True},
        {"metadataOptions": {"httpTokens": "optional"}},
        {"associatePublicIPAddress": False},
        {"context": "c"},
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        {"amiFamily": "Custom"},
        {"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]},
        {"connectionTracking": {"udpTimeout": 30}},
        {"placementGroupSelector": {"name": "g"}},
    ],
)
def test_a_change_of_a_static_field_changes_the_hash(spec: dict[str, Any]) -> None:
    assert hashed(**spec) != hashed()


@pytest.mark.parametrize(
    "spec",
    [
        {"subnetSelectorTerms": [{"id": "subnet-1"}]},
        {"securityGroupSelectorTerms": [{"id": "sg-1"}]},
        {"amiSelectorTerms": [{"alias": "al2023@v20261118"}]},
        {"capacityReservationSelectorTerms": [{"id": "cr-1"}]},
        {"ipPrefixCount": 3},
        {"amiFamily": "AL2023"},  # what the alias says already
        {"tags": {}},
        {"kubelet": {}},
        {"blockDeviceMappings": []},
        {"userData": ""},
        {"detailedMonitoring": False},
        {"cpuOptions": {}},
        {
            "metadataOptions": {
                "httpEndpoint": "enabled",
                "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1,
                "httpTokens": "required",
            }
        },
    ],
)
def test_looked_up_fields_empty_fields_and_defaults_do_not_change_it(spec: dict[str, Any]) -> None:
    assert hashed(**spec) == hashed()


def test_the_order_of_maps_and_lists_does_not_matter() -> None:
    second = {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "30Gi"}}

    assert hashed(tags={"a": "1", "b": "2"}) == hashed(tags={"b": "2", "a": "1"})
    assert hashed(blockDeviceMappings=[DEVICE, second]) == hashed(blockDeviceMappings=[second, DEVICE])


def test_unset_and_false_differ_where_aws_decides_for_unset() -> None:
    plain = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}
    bare = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "encrypted": False}}

    assert hashed(blockDeviceMappings=[plain]) != hashed(blockDeviceMappings=[bare])


def test_a_volumes_size_is_compared_as_typed() -> None:
    one, other = ({"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}} for size in ("1Ti", "1024Gi"))

    assert hashed(blockDeviceMappings=[one]) != hashed(blockDeviceMappings=[other])


def test_the_hash_is_the_same_in_every_version_of_this_scheme() -> None:
    # A new value would roll every fleet: change HASH_VERSION with it.
    assert hashed() == "5516326820493439750"
