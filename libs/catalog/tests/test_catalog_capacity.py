"""Capacity and overhead: the vectors, and each setting that moves a figure."""

import json
from pathlib import Path
from typing import Any

import pytest

from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.builtin import builtin_catalog
from sawhorse_catalog.facts import Gpu, InstanceFacts, Network, NetworkCard
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.aws import EFA, NEURON, NEURON_CORE, NVIDIA_GPU, POD_ENI, EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, parse_resources
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

MIB = 2**20
GIB = 2**30
BENCH = Path(__file__).parents[3] / "tests" / "bench" / "data"


def resolved(
    facts: InstanceFacts,
    node_class: EC2NodeClass | None = None,
    settings: ResolveSettings | None = None,
    measured: dict[str, int] | None = None,
) -> InstanceType:
    return resolve(
        [facts], node_class, PriceBook(), region="us-east-1", zones={}, settings=settings, measured_memory=measured
    ).instance_types[0]


def with_kubelet(**kubelet: Any) -> EC2NodeClass:
    return an_ec2_node_class({"kubelet": kubelet})


def of_family(family: str, **spec: Any) -> EC2NodeClass:
    return an_ec2_node_class({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": family, **spec})


def test_m5_large_has_exactly_the_published_size() -> None:
    m5 = resolved(an_ec2_type("m5.large"))

    assert (m5.capacity[PODS], m5.capacity[MEMORY]) == (29, 7577 * MIB)
    assert (m5.allocatable[CPU], m5.allocatable[MEMORY]) == (1930, 6903 * MIB)
    assert m5.allocatable[EPHEMERAL_STORAGE] == 18253611008


def test_m6g_large_loses_64_mib_to_its_firmware_before_the_percentage() -> None:
    m6g = resolved(an_ec2_type("m6g.large"))

    assert m6g.capacity[MEMORY] == 7518 * MIB
    assert (m6g.allocatable[CPU], m6g.allocatable[MEMORY]) == (1930, 6844 * MIB)


def test_16_vcpu_with_8_interfaces_of_30_addresses_take_234_pods_and_keep_110m_and_2829_mib() -> None:
    big = resolved(an_ec2_type("c5.4xlarge"))
    kept = big.capacity[MEMORY] - big.allocatable[MEMORY] - 100 * MIB

    assert (big.capacity[CPU], big.capacity[PODS]) == (16000, 234)
    assert big.allocatable[CPU] == 15890
    assert kept == 2829 * MIB


@pytest.mark.parametrize("file", ["catalog-cmr.json", "catalog-gpu.json"])
def test_the_built_in_sizes_equal_those_computed_elsewhere_for_all_types_with_one_network_card(file: str) -> None:
    ours = {t.name: t for t in builtin_catalog().instance_types}
    cards = {f.name: len(f.network.cards) for f in builtin_catalog().facts}
    theirs = {
        t["name"]: parse_resources(t["allocatable"])
        for t in json.loads((BENCH / file).read_text(encoding="utf-8"))["instanceTypes"]
        if cards[t["name"]] == 1
    }

    differing = [
        (name, resource)
        for name, wanted in theirs.items()
        for resource, amount in wanted.items()
        if ours[name].allocatable.get(resource) != amount
    ]

    assert len(theirs) > 750
    assert differing == []


def test_max_pods_decides_the_pods_but_not_the_memory_kept_for_them() -> None:
    few = resolved(an_ec2_type("m5.large"), with_kubelet(maxPods=10))
    usual = resolved(an_ec2_type("m5.large"))

    assert few.capacity[PODS] == 10
    assert few.allocatable[MEMORY] == usual.allocatable[MEMORY]


def test_on_bottlerocket_the_memory_kept_follows_max_pods() -> None:
    few = resolved(an_ec2_type("m5.large"), of_family("Bottlerocket", kubelet={"maxPods": 10}))

    assert few.capacity[MEMORY] - few.allocatable[MEMORY] == (11 * 10 + 255 + 100) * MIB


def test_pods_per_core_lowers_the_pods_except_on_bottlerocket() -> None:
    assert resolved(an_ec2_type("m5.large"), with_kubelet(podsPerCore=4)).capacity[PODS] == 8
    assert resolved(an_ec2_type("m5.large"), with_kubelet(podsPerCore=40)).capacity[PODS] == 29
    assert resolved(an_ec2_type("m5.large"), of_family("Bottlerocket", kubelet={"podsPerCore": 4})).capacity[PODS] == 29


def test_windows_takes_110_pods_whatever_the_interfaces() -> None:
    windows = resolved(an_ec2_type("m5.large"), of_family("Windows2022"))

    assert windows.capacity[PODS] == 110
    assert windows.capacity["vpc.amazonaws.com/PrivateIPv4Address"] == 9
    assert windows.capacity[EPHEMERAL_STORAGE] == 50 * GIB


def test_reserved_interfaces_take_pods_but_leave_the_memory_reserve() -> None:
    usual = resolved(an_ec2_type("m5.large"))
    reserved = resolved(an_ec2_type("m5.large"), settings=ResolveSettings(reserved_enis=1))

    assert reserved.capacity[PODS] == 2 * 9 + 2
    assert reserved.allocatable[MEMORY] == usual.allocatable[MEMORY]


def test_without_a_usable_interface_no_pod_fits() -> None:
    none = resolved(an_ec2_type("m5.large"), settings=ResolveSettings(reserved_enis=3))

    assert PODS not in none.capacity


def test_pods_count_the_interfaces_of_the_default_network_card_only() -> None:
    p4d = resolved(an_ec2_type("p4d.24xlarge"))

    assert p4d.capacity[PODS] == 15 * 49 + 2


def test_the_memory_overhead_is_a_setting_and_rounds_up_exactly() -> None:
    eight_thousand = an_ec2_type("m5.large", memory_mib=8000)

    assert resolved(eight_thousand).capacity[MEMORY] == 7400 * MIB
    assert resolved(eight_thousand, settings=ResolveSettings(vm_memory_overhead_percent=0)).capacity[MEMORY] == (
        8000 * MIB
    )


def test_measured_memory_replaces_the_estimate_but_percentages_stay_with_the_estimate() -> None:
    measured = resolved(
        an_ec2_type("m5.large"),
        with_kubelet(evictionHard={"memory.available": "10%"}),
        measured={"m5.large": 7800 * MIB},
    )

    assert measured.capacity[MEMORY] == 7800 * MIB
    assert measured.allocatable[MEMORY] == 7800 * MIB - 574 * MIB - -(-7577 * MIB // 10)


def test_reserved_resources_of_the_kubelet_replace_ours_one_by_one() -> None:
    custom = resolved(
        an_ec2_type("m5.large"), with_kubelet(kubeReserved={"cpu": "200m"}, systemReserved={"memory": "1Gi"})
    )

    assert custom.allocatable[CPU] == 1800
    assert custom.allocatable[MEMORY] == (7577 - 574 - 100 - 1024) * MIB


def test_an_expression_among_the_reserved_resources_leaves_the_default() -> None:
    custom = resolved(an_ec2_type("m5.large"), with_kubelet(kubeReserved={"cpu": "vcpus * 10"}))

    assert custom.allocatable[CPU] == 1930


def test_hard_eviction_is_kept_back_and_soft_eviction_is_not() -> None:
    custom = resolved(
        an_ec2_type("m5.large"),
        with_kubelet(
            evictionHard={"memory.available": "500Mi", "nodefs.available": "15%"},
            evictionSoft={"memory.available": "1Gi"},
        ),
    )

    assert custom.allocatable[MEMORY] == (7577 - 574 - 500) * MIB
    assert custom.allocatable[EPHEMERAL_STORAGE] == 20 * GIB - GIB - 3 * GIB


def test_an_eviction_threshold_of_100_percent_is_off() -> None:
    custom = resolved(an_ec2_type("m5.large"), with_kubelet(evictionHard={"memory.available": "100%"}))

    assert custom.allocatable[MEMORY] == (7577 - 574) * MIB


def test_local_disks_in_raid_are_the_node_storage_in_decimal_gigabytes() -> None:
    raid = an_ec2_node_class({"instanceStorePolicy": "RAID0"})

    assert resolved(an_ec2_type("i4i.large"), raid).capacity[EPHEMERAL_STORAGE] == 468 * 10**9
    assert resolved(an_ec2_type("m5.large"), raid).capacity[EPHEMERAL_STORAGE] == 20 * GIB


def volume(device: str, size: str, *, root: bool = False) -> dict[str, Any]:
    return {"deviceName": device, "rootVolume": root, "ebs": {"volumeSize": size}}


def test_node_storage_is_the_root_volume_then_the_volume_of_the_family_then_the_default() -> None:
    def storage(family: str, *devices: dict[str, Any]) -> int:
        node_class = of_family(family, blockDeviceMappings=list(devices))
        return resolved(an_ec2_type("m5.large"), node_class).capacity[EPHEMERAL_STORAGE] // GIB

    assert storage("AL2023", volume("/dev/xvda", "30Gi"), volume("/dev/xvdb", "90Gi", root=True)) == 90
    assert storage("AL2023", volume("/dev/xvdb", "90Gi"), volume("/dev/xvda", "30Gi")) == 30
    assert storage("AL2023", volume("/dev/xvdc", "90Gi")) == 20
    assert storage("Bottlerocket", volume("/dev/xvda", "4Gi"), volume("/dev/xvdb", "60Gi")) == 60
    assert storage("Custom", volume("/dev/xvda", "4Gi"), volume("/dev/xvdz", "70Gi")) == 70


def test_accelerators_count_under_the_names_of_their_device_plugins() -> None:
    inferentia = resolved(an_ec2_type("inf1.6xlarge"))
    gpus = resolved(an_ec2_type("p4d.24xlarge"))

    assert (inferentia.capacity[NEURON], inferentia.capacity[NEURON_CORE]) == (4, 16)
    assert gpus.capacity[NVIDIA_GPU] == 8


@pytest.mark.parametrize(
    ("maker", "resource"), [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Habana", "habana.ai/gaudi")]
)
def test_each_maker_of_gpus_has_its_resource(maker: str, resource: str) -> None:
    facts = an_ec2_type("m5.large", gpus=(Gpu("X", maker, 2), Gpu("Y", maker, 1)))

    assert resolved(facts).capacity[resource] == 3


def test_efa_capacity_is_what_the_type_takes_or_what_the_interfaces_ask_for() -> None:
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]

    assert resolved(an_ec2_type("p4d.24xlarge")).capacity[EFA] == 4
    assert (
        resolved(an_ec2_type("p4d.24xlarge"), an_ec2_node_class({"networkInterfaces": interfaces})).capacity[EFA] == 1
    )


def test_an_efa_only_interface_on_the_first_card_takes_a_slot_from_pods() -> None:
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]

    p4d = resolved(an_ec2_type("p4d.24xlarge"), an_ec2_node_class({"networkInterfaces": interfaces}))

    assert p4d.capacity[PODS] == 14 * 49 + 2


def test_branch_interfaces_come_from_the_table() -> None:
    assert resolved(an_ec2_type("m5.large")).capacity[POD_ENI] == 9
    assert POD_ENI not in resolved(an_ec2_type("t3.large")).capacity


def test_fewer_cores_or_threads_lower_cpu_and_what_is_kept_of_it() -> None:
    half = resolved(an_ec2_type("m5.xlarge"), an_ec2_node_class({"cpuOptions": {"threadsPerCore": 1}}))
    one = resolved(an_ec2_type("m5.2xlarge"), an_ec2_node_class({"cpuOptions": {"coreCount": 2, "threadsPerCore": 1}}))

    assert (half.capacity[CPU], half.allocatable[CPU]) == (2000, 1930)
    assert one.capacity[CPU] == 2000


def test_a_type_too_small_for_its_reserves_has_negative_room_and_no_error() -> None:
    tiny = an_ec2_type(
        "t3.nano",
        memory_mib=256,
        network=Network(max_interfaces=2, ipv4_per_interface=2, cards=(NetworkCard(0, 2),)),
    )

    assert resolved(tiny).allocatable[MEMORY] < 0
