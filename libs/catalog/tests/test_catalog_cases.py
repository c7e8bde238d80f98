"""Cases from public bug reports about node size and hardware: what a user wanted, as rules of the catalogue."""

from typing import Any

import pytest

from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.facts import InstanceFacts, InstanceStorage
from sawhorse_catalog.measured import kubelet_hash, memory_for
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.instances import InstanceType
from sawhorse_model.resources import EPHEMERAL_STORAGE, MEMORY, PODS
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

MIB, GIB = 2**20, 2**30


def seen(
    fact: InstanceFacts, spec: dict[str, Any] | None = None, *, memory: int | None = None, **settings: Any
) -> InstanceType:
    """A type under a NodeClass of alias al2023 with this spec."""
    found = resolve(
        [fact],
        an_ec2_node_class({"amiFamily": "AL2023", **(spec or {})}),
        PriceBook(on_demand={fact.name: 1.0}),
        region="us-east-1",
        zones={},
        settings=ResolveSettings(**settings),
        measured_memory={} if memory is None else {fact.name: memory},
    )
    return found.instance_types[0]


def reasons(facts: list[InstanceFacts], spec: dict[str, Any]) -> dict[str, str]:
    prices = PriceBook(on_demand={fact.name: 1.0 for fact in facts})
    return dict(resolve(facts, an_ec2_node_class(spec), prices, region="us-east-1", zones={}).excluded)


def test_z01_a_large_node_holds_four_pods_once_its_memory_is_measured() -> None:
    big = an_ec2_type("r5.24xlarge", memory_mib=1048576, vcpus=128)
    four = 4 * 240954 * MIB

    estimated, measured = seen(big), seen(big, memory=1015 * GIB)

    assert estimated.allocatable[MEMORY] < four <= 1007423 * MIB
    assert measured.allocatable[MEMORY] >= four


def test_z02_a_measurement_is_kept_by_type_image_and_kubelet_settings() -> None:
    spec, other = {"kubelet": {"maxPods": 20}}, {"kubelet": {"maxPods": 21}}
    measured = {
        ("m5.large", "ami-1", kubelet_hash(spec)): 8_000,
        ("m5.large", "ami-2", kubelet_hash(spec)): 7_000,
        ("c5.large", "ami-9", kubelet_hash(spec)): 4_000,
    }

    assert memory_for(spec, ["ami-1"], measured) == {"m5.large": 8_000}
    assert memory_for(spec, ["ami-1", "ami-2"], measured) == {"m5.large": 7_000}
    assert memory_for(other, ["ami-1"], measured) == {}


def test_z02_absent_and_empty_kubelet_settings_are_one_and_the_order_of_keys_is_none() -> None:
    assert kubelet_hash({}) == kubelet_hash({"kubelet": {}}) == kubelet_hash({"kubelet": None})
    assert kubelet_hash({"kubelet": {"a": 1, "b": 2}}) == kubelet_hash({"kubelet": {"b": 2, "a": 1}})
    assert kubelet_hash({"kubelet": {"a": 1}}) != kubelet_hash({})


def test_z04_soft_eviction_is_not_a_reservation() -> None:
    hard = {"evictionHard": {"memory.available": "500Mi"}}
    soft = {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}
    plain = seen(an_ec2_type())

    both = seen(an_ec2_type(), {"kubelet": {**hard, **soft}})

    assert plain.allocatable[MEMORY] - both.allocatable[MEMORY] == 400 * MIB


@pytest.mark.parametrize(("vcpus", "pods"), [(2, 110), (30, 110), (31, 250), (96, 250)])
def test_z05_with_prefix_delegation_small_nodes_take_110_pods_and_large_ones_250(vcpus: int, pods: int) -> None:
    small = an_ec2_type("m5.large", vcpus=vcpus)

    assert seen(small).capacity[PODS] == 29
    assert seen(small, prefix_delegation=True).capacity[PODS] == pods


def test_z05_the_users_own_max_pods_goes_before_prefix_delegation() -> None:
    assert seen(an_ec2_type(), {"kubelet": {"maxPods": 42}}, prefix_delegation=True).capacity[PODS] == 42


def test_z05_machines_without_prefixes_keep_their_addresses() -> None:
    xen = an_ec2_type("m4.large")

    assert seen(xen, prefix_delegation=True).capacity[PODS] == seen(xen).capacity[PODS]


def test_z07_a_volume_of_100_gib_never_holds_a_pod_that_asks_for_100_gib() -> None:
    spec = {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}]}

    found = seen(an_ec2_type(), spec)

    assert found.capacity[EPHEMERAL_STORAGE] == 100 * GIB
    assert found.allocatable[EPHEMERAL_STORAGE] == 89 * GIB


def test_z08_local_disks_count_only_with_the_policy_that_uses_them() -> None:
    volume = {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}]}
    nvme = an_ec2_type("m5d.24xlarge", instance_storage=InstanceStorage(total_gb=1900, nvme="required"))

    plain, raid = seen(nvme, volume), seen(nvme, {**volume, "instanceStorePolicy": "RAID0"})
    without = seen(an_ec2_type(), {**volume, "instanceStorePolicy": "RAID0"})

    assert plain.capacity[EPHEMERAL_STORAGE] == without.capacity[EPHEMERAL_STORAGE] == 20 * GIB
    assert raid.allocatable[EPHEMERAL_STORAGE] > 500 * GIB


def test_g05_only_types_whose_processor_has_the_feature_are_offered_with_nested_virtualization() -> None:
    facts = [an_ec2_type("m6i.large"), an_ec2_type("m8i.large"), an_ec2_type("m5.large", processor_features=())]

    found = reasons(facts, {"cpuOptions": {"nestedVirtualization": "enabled"}})

    assert set(found) == {"m6i.large", "m5.large"}
    assert set(found.values()) == {"spec.cpuOptions.nestedVirtualization is enabled, its processor does not support it"}


def test_g07_a_core_count_drops_types_with_a_reason_and_sizes_the_others() -> None:
    few = an_ec2_type("m8i.xlarge", valid_cores=(1, 2))
    many = an_ec2_type("c8i.2xlarge", valid_cores=(1, 2, 3, 4), valid_threads_per_core=(1, 2))

    found = reasons([few, many], {"cpuOptions": {"coreCount": 4}})
    halved = seen(many, {"cpuOptions": {"coreCount": 4, "threadsPerCore": 1}})

    assert found == {"m8i.xlarge": "spec.cpuOptions.coreCount is 4, it takes 1, 2"}
    assert (halved.capacity["cpu"], halved.allocatable["cpu"]) == (4000, 3920)


def test_p11_a_type_that_ec2_lists_no_more_keeps_its_size_and_price_and_is_not_sold() -> None:
    retired = an_ec2_type("g5.xlarge", retired=True)

    found = seen(retired)

    assert found.capacity == seen(an_ec2_type("g5.xlarge")).capacity
    assert {(o.price, o.available) for o in found.offerings} == {(1.0, False)}
