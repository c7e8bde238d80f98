"""Catalogue files: the format, what follows from name and figures, and one readable line for every mistake."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_catalog.files import CatalogError, CatalogFile, parse_catalog_file
from sawhorse_model import aws, labels
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.requirements import Operator
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from sawhorse_testing.catalog import an_ec2_node_class

BENCH = Path(__file__).parents[3] / "tests" / "bench" / "data"
MIB = 2**20


def an_entry(**overrides: Any) -> dict[str, Any]:
    entry = {
        "name": "x9.large",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "vcpus": 2,
        "memoryMiB": 8192,
        "offerings": [{"zone": "eu-west-1a", "capacityType": "spot", "price": 0.05}],
    }
    return {key: value for key, value in {**entry, **overrides}.items() if value is not None}


def a_file(*entries: dict[str, Any], **overrides: Any) -> bytes:
    whole = {"apiVersion": "sawhorse.dev/v1", "kind": "Catalog", "instanceTypes": list(entries), **overrides}
    return json.dumps(whole).encode()


def read(*entries: dict[str, Any]) -> CatalogFile:
    return parse_catalog_file(a_file(*entries))


def only(**overrides: Any) -> InstanceType:
    return read(an_entry(**overrides)).instance_types[0]


def problem(data: bytes) -> str:
    with pytest.raises(CatalogError) as caught:
        parse_catalog_file(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "types"), [("catalog-cmr.json", 811), ("catalog-gpu.json", 865), ("catalog-diverse.json", 400)]
)
def test_the_benchmark_catalogues_load_without_a_warning(file: str, types: int) -> None:
    catalog = parse_catalog_file((BENCH / file).read_bytes())

    assert len(catalog.instance_types) == types
    assert (catalog.currency, catalog.warnings) == ("USD", ())
    assert all(t.cheapest() is not None for t in catalog.instance_types)


def test_given_allocatable_is_used_as_is_and_stands_for_capacity_too() -> None:
    found = only(allocatable={"cpu": "1900m", "memory": "6Gi", "pods": "20"}, vcpus=None, memoryMiB=None)

    assert found.allocatable == {CPU: 1900, MEMORY: 6144 * MIB, PODS: 20}
    assert found.capacity == found.allocatable


def test_given_capacity_stands_beside_given_allocatable() -> None:
    found = only(allocatable={"cpu": "1900m", "memory": "6Gi"}, capacity={"cpu": "2", "memory": "8Gi"})

    assert (found.capacity[CPU], found.allocatable[CPU]) == (2000, 1900)


def test_without_allocatable_the_usual_reserves_are_kept_back() -> None:
    found = only()

    assert found.capacity[MEMORY] == 7577 * MIB
    assert found.allocatable[CPU] == 1930
    assert found.allocatable[MEMORY] == (7577 - (11 * 110 + 255) - 100) * MIB
    assert found.allocatable[PODS] == 110
    assert found.allocatable[EPHEMERAL_STORAGE] == 18253611008


def test_capacity_memory_is_what_the_system_sees_and_loses_no_machine_overhead() -> None:
    found = only(vcpus=None, memoryMiB=None, capacity={"cpu": "2", "memory": "8Gi", "pods": "29"})

    assert found.capacity[MEMORY] == 8192 * MIB
    assert found.allocatable[MEMORY] == (8192 - 574 - 100) * MIB


def test_the_name_of_a_real_type_brings_its_pod_limit() -> None:
    found = only(name="m5.large")

    assert found.capacity[PODS] == 29
    assert found.allocatable[MEMORY] == 6903 * MIB


def test_labels_follow_from_the_name_and_the_figures() -> None:
    found = only(name="m7g-flex.2xlarge", architecture="arm64", vcpus=8, memoryMiB=32768).requirements.labels()

    assert found == {
        labels.INSTANCE_TYPE: "m7g-flex.2xlarge",
        labels.ARCH: "arm64",
        labels.OS: "linux",
        labels.REGION: "eu-west-1",
        labels.ZONE: "eu-west-1a",
        labels.CAPACITY_TYPE: "spot",
        aws.CATEGORY: "m",
        aws.GENERATION: "7",
        aws.FAMILY: "m7g-flex",
        aws.SIZE: "2xlarge",
        aws.INSTANCE_FLEX: "true",
        aws.INSTANCE_CPU: "8",
        aws.INSTANCE_MEMORY: "32768",
    }


def test_a_given_label_wins_over_what_would_follow() -> None:
    found = only(labels={aws.INSTANCE_CPU: "48", "example.com/team": "a", "beta.kubernetes.io/arch": "arm64"})

    assert found.requirements.labels()[aws.INSTANCE_CPU] == "48"
    assert found.requirements.labels()["example.com/team"] == "a"
    assert found.requirements.labels()[labels.ARCH] == "arm64"


def test_zones_and_capacity_types_are_those_of_the_offerings() -> None:
    offerings = [
        {"zone": "eu-west-1a", "zoneId": "euw1-az1", "capacityType": "on-demand", "price": 0.1},
        {"zone": "eu-west-1b", "zoneId": "euw1-az2", "capacityType": "spot", "price": 0.05, "available": False},
        {
            "zone": "eu-west-1b",
            "capacityType": "reserved",
            "price": 0,
            "reservationId": "cr-1",
            "reservationCount": 3,
        },
    ]

    found = only(offerings=offerings)

    assert found.requirements[labels.ZONE].values == {"eu-west-1a", "eu-west-1b"}
    assert found.requirements[aws.ZONE_ID].values == {"euw1-az1", "euw1-az2"}
    assert found.requirements[labels.CAPACITY_TYPE].values == {"on-demand", "spot", "reserved"}
    assert found.requirements[aws.RESERVATION_ID].values == {"cr-1"}
    assert [o.available for o in found.offerings] == [True, False, True]
    assert found.offerings[2].reservation_count == 3


def test_gpus_give_the_resource_and_the_labels() -> None:
    found = only(gpus=[{"name": "L4", "manufacturer": "NVIDIA", "count": 2, "memoryMiB": 24576}])
    counted = only(allocatable={"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8"})

    assert found.capacity["nvidia.com/gpu"] == 2
    assert found.requirements.labels()[aws.GPU_NAME] == "l4"
    assert counted.requirements.labels()[aws.GPU_COUNT] == "8"
    assert counted.requirements[aws.GPU_NAME].operator is Operator.DOES_NOT_EXIST


def test_a_node_class_limits_the_zones_and_rules_types_out_by_the_features_in_the_file() -> None:
    nested = {"supportedFeatures": ["nested-virtualization"], "validCores": [1]}
    catalog = read(an_entry(name="y1.large", **nested), an_entry(name="y2.large"))
    node_class = an_ec2_node_class({"cpuOptions": {"nestedVirtualization": "enabled"}}, zones={"eu-west-1a": "x"})
    elsewhere = an_ec2_node_class(zones={"eu-west-1b": "y"})

    found = catalog.resolve(node_class)

    assert {t.name for t in found.instance_types if t.cheapest()} == {"y1.large"}
    assert set(found.excluded) == {"y2.large"}
    assert [t.cheapest() for t in catalog.resolve(elsewhere).instance_types] == [None, None]
    assert all(t.cheapest() for t in catalog.resolve(None).instance_types)


def test_fewer_threads_lower_a_computed_size_and_max_pods_its_pods() -> None:
    catalog = read(an_entry(vcpus=4, validCores=[1, 2]))
    node_class = an_ec2_node_class({"cpuOptions": {"threadsPerCore": 1}, "kubelet": {"maxPods": 7}})

    (found,) = catalog.resolve(node_class).instance_types

    assert (found.capacity[CPU], found.capacity[PODS]) == (2000, 7)


def test_unknown_fields_are_warned_about_by_their_place() -> None:
    catalog = read(an_entry(cores=4, offerings=[{"zone": "a", "capacityType": "spot", "price": 1, "prize": 2}]))

    assert [w.split(":")[0] for w in catalog.warnings] == [
        "instanceTypes[0] (x9.large).cores",
        "instanceTypes[0] (x9.large).offerings[0].prize",
    ]


def offering(**overrides: Any) -> dict[str, Any]:
    return {"zone": "a", "capacityType": "spot", "price": 1.0, **overrides}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"{", "the file is not JSON"),
        (b"\xff\xfe\x00", "the file is not JSON"),
        (b"[" * 100_000, "nests too deeply"),
        (b"[]", "holds no JSON object"),
        (a_file(an_entry(), kind="List"), "kind: 'List' is not 'Catalog'"),
        (a_file(an_entry(), apiVersion="v1"), "apiVersion: 'v1' is not 'sawhorse.dev/v1'"),
        (a_file(), "instanceTypes: the catalogue is empty; list at least one"),
        (a_file(instanceTypes={}), "instanceTypes: must be a list"),
        (a_file(an_entry(name="")), "instanceTypes[0].name: is missing"),
        (a_file(an_entry(), an_entry()), "instanceTypes[1].name: 'x9.large' is listed already at instanceTypes[0]"),
        (a_file(an_entry(vcpus=None)), "instanceTypes[0] (x9.large): its cpu is not given; set vcpus"),
        (a_file(an_entry(vcpus=0)), "instanceTypes[0] (x9.large).vcpus: 0 is outside"),
        (a_file(an_entry(vcpus=True)), "instanceTypes[0] (x9.large).vcpus: must be a whole number"),
        (a_file(an_entry(architecture="x86")), "architecture: 'x86' is not known; use one of amd64, arm64"),
        (a_file(an_entry(operatingSystems=["beos"])), "operatingSystems[0]: 'beos' is not known"),
        (a_file(an_entry(allocatable={"cpu": "two"})), "(x9.large).allocatable.cpu: 'two' is not a quantity"),
        (a_file(an_entry(capacity={"memory": "-1Gi"})), "(x9.large).capacity.memory: '-1Gi' is negative"),
        (a_file(an_entry(labels={"a": 1})), "(x9.large).labels[a]: must be a text"),
        (a_file(an_entry(validCores=[0])), "(x9.large).validCores[0]: 0 is not a whole number"),
        (a_file(an_entry(gpus=[{"count": 0}])), "(x9.large).gpus[0].count: 0 is outside"),
        (a_file(an_entry(offerings=[offering(price=float("nan"))])), "offerings[0].price: nan is not a price"),
        (a_file(an_entry(offerings=[offering(price=float("inf"))])), "offerings[0].price: inf is not a price"),
        (a_file(an_entry(offerings=[offering(price=10**400)])), "offerings[0].price: inf is not a price"),
        (a_file(an_entry(offerings=[offering(price=-0.1)])), "offerings[0].price: -0.1 is negative"),
        (a_file(an_entry(offerings=[offering(price="1")])), "offerings[0].price: '1' is not a number"),
        (a_file(an_entry(offerings=[offering(price=None)])), "offerings[0].price: is missing"),
        (a_file(an_entry(offerings=[offering(zone="")])), "offerings[0].zone: is missing"),
        (a_file(an_entry(offerings=[offering(capacityType="Spot")])), "capacityType: 'Spot' is not known"),
        (a_file(an_entry(offerings=[offering(available="yes")])), "available: 'yes' is neither true nor false"),
        (a_file(an_entry(offerings=[offering(), offering()])), "offerings[1]: spot in a is listed twice"),
    ],
)
def test_every_mistake_is_one_line_that_names_the_object_the_field_and_what_to_do(data: bytes, line: str) -> None:
    found = problem(data)

    assert line in found
    assert "\n" not in found


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode))
def test_no_bytes_make_the_reader_fail_in_another_way(data: bytes) -> None:
    assert problem(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(field=st.sampled_from([*sorted(an_entry()), "capacity", "allocatable", "labels", "gpus"]), value=values)
def test_no_value_of_a_field_makes_the_reader_fail_in_another_way(field: str, value: Any) -> None:
    types: tuple[InstanceType, ...] = ()
    with contextlib.suppress(CatalogError):
        types = read({**an_entry(), field: value}).instance_types

    assert all(o.capacity_type in CapacityType for t in types for o in t.offerings)
