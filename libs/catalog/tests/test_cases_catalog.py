"""Sizes to the letter, and every type that is sold under every family and every field that moves size or offer."""

from collections.abc import Mapping
from typing import Any

import pytest

from sawhorse_catalog.aws import resolve
from sawhorse_catalog.aws.overhead import kube_reserved
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.instances import InstanceType
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

MIB = 2**20
PRICES = PriceBook(on_demand=dict.fromkeys((f.name for f in builtin_facts()), 1.0), spot_share=0.4)


def resolved(name: str, spec: Mapping[str, Any] | None = None) -> InstanceType:
    """A type under a NodeClass of AL2023 with defaults, and with what `spec` adds."""
    node_class = an_ec2_node_class({"amiFamily": "AL2023", **(spec or {})})
    return resolve([an_ec2_type(name)], node_class, PRICES, region="us-east-1", zones={}).instance_types[0]


@pytest.mark.parametrize(
    ("name", "pods", "memory_mib", "kube_cpu", "kube_mib", "cpu", "allocatable_mib"),
    [
        ("m5.large", 29, 7577, 70, 574, 1930, 6903),  # 2 vCPU, 8192 MiB, 3 interfaces of 10 addresses
        ("m6g.large", 29, 7518, 70, 574, 1930, 6844),  # the same, arm64
        ("m5.4xlarge", 234, None, 110, 2829, 15890, None),  # 16 vCPU, 8 interfaces of 30 addresses
    ],
)
def test_the_published_sizes_are_met_to_the_unit(
    name: str,
    pods: int,
    memory_mib: int | None,
    kube_cpu: int,
    kube_mib: int,
    cpu: int,
    allocatable_mib: int | None,
) -> None:
    kind, fact = resolved(name), an_ec2_type(name)
    kept = kube_reserved(fact.vcpus * 1000, pods, an_ec2_node_class().kubelet)

    assert (kind.capacity[PODS], kept[CPU], kept[MEMORY]) == (pods, kube_cpu, kube_mib * MIB)
    assert kind.allocatable[CPU] == cpu
    if memory_mib is not None and allocatable_mib is not None:
        assert (kind.capacity[MEMORY], kind.allocatable[MEMORY]) == (memory_mib * MIB, allocatable_mib * MIB)
    # The 100 Mi that eviction keeps, and what the kubelet keeps, and no more.
    assert kind.capacity[MEMORY] - kind.allocatable[MEMORY] == (kube_mib + 100) * MIB
    assert kind.allocatable[EPHEMERAL_STORAGE] == 18253611008


SPECS: dict[str, dict[str, Any]] = {
    **{
        f"family {name}": {"amiFamily": name, "amiSelectorTerms": [{"id": "ami-1"}]}
        for name in ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025", "Custom")
    },
    "sizes": {
        "kubelet": {
            "maxPods": 110,
            "podsPerCore": 10,
            "kubeReserved": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "2Gi", "pid": "1000"},
            "systemReserved": {"cpu": "50m", "memory": "100Mi"},
            "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
        },
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "100Gi"}}],
        "instanceStorePolicy": "RAID0",
        "ipPrefixCount": 4,
        "cpuOptions": {"nestedVirtualization": "disabled"},
    },
    "nested virtualization": {"cpuOptions": {"nestedVirtualization": "enabled"}},
    "cores": {"cpuOptions": {"coreCount": 4, "threadsPerCore": 1}, "connectionTracking": {"udpTimeout": 30}},
    "interfaces": {
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ]
    },
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_all_1395_types_resolve_under_every_family_and_field(spec: dict[str, Any]) -> None:
    resolution = resolve(builtin_facts(), an_ec2_node_class(spec), PRICES, region="us-east-1", zones={})

    assert len(resolution.instance_types) == len({t.name for t in resolution.instance_types}) == 1395
    assert [name for name, why in resolution.excluded.items() if "no sense" in why] == []
    assert [t.name for t in resolution.instance_types if not t.capacity[CPU] or not t.capacity[MEMORY]] == []
    # Whoever is left out is so for a reason that a person can read.
    available = {t.name for t in resolution.instance_types if any(o.available for o in t.offerings)}
    sold = {f.name for f in builtin_facts() if f.zones}
    assert sorted(sold - available - set(resolution.excluded)) == []


def test_types_that_nested_virtualization_leaves_are_exactly_those_whose_processor_says_so() -> None:
    node_class = an_ec2_node_class(SPECS["nested virtualization"])
    supporting = {f.name for f in builtin_facts() if "nested-virtualization" in f.processor_features}

    resolution = resolve(builtin_facts(), node_class, PRICES, region="us-east-1", zones={})

    ruled_out = {name for name, why in resolution.excluded.items() if "nestedVirtualization" in why}
    offered = {t.name for t in resolution.instance_types if any(o.available for o in t.offerings)}
    assert supporting
    assert offered <= supporting
    assert ruled_out.isdisjoint(supporting)
