"""The labels of a type, as requirements."""

import pytest

from sawhorse_catalog.aws import EXOTIC, WELL_KNOWN, resolve
from sawhorse_catalog.aws.labels import name_labels
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.facts import Accelerator, Gpu, InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model import aws, labels
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.requirements import Operator, Requirements
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

ZONE_IDS = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1", "us-east-1c": "use1-az2"}


def described(facts: InstanceFacts, node_class: EC2NodeClass | None = None) -> Requirements:
    return resolve([facts], node_class, PriceBook(), region="us-east-1", zones=ZONE_IDS).instance_types[0].requirements


def test_m5_large_carries_the_documented_labels() -> None:
    found = described(an_ec2_type("m5.large")).labels()

    assert found == {
        labels.INSTANCE_TYPE: "m5.large",
        labels.ARCH: "amd64",
        labels.OS: "linux",
        labels.REGION: "us-east-1",
        aws.INSTANCE_CPU: "2",
        aws.INSTANCE_CPU_MANUFACTURER: "intel",
        aws.INSTANCE_CPU_SPEED: "3100",
        aws.INSTANCE_MEMORY: "8192",
        aws.INSTANCE_EBS_BANDWIDTH: "4750",
        aws.INSTANCE_NETWORK_BANDWIDTH: "750",
        aws.CATEGORY: "m",
        aws.GENERATION: "5",
        aws.FAMILY: "m5",
        aws.SIZE: "large",
        aws.INSTANCE_FLEX: "false",
        aws.INSTANCE_HYPERVISOR: "nitro",
        aws.INSTANCE_ENCRYPTION: "false",
        aws.NITRO_SANDBOX: "false",
    }


def test_what_launch_decides_has_several_values() -> None:
    found = described(an_ec2_type("m5.large", zones=tuple(ZONE_IDS)))

    assert found[labels.ZONE].values == set(ZONE_IDS)
    assert found[aws.ZONE_ID].values == set(ZONE_IDS.values())
    assert found[labels.CAPACITY_TYPE].values == {"on-demand", "spot"}
    assert found[aws.TENANCY].values == {"default", "dedicated"}


def test_every_well_known_label_but_the_pool_and_the_zone_id_is_described_for_every_type() -> None:
    expected = WELL_KNOWN - {labels.NODEPOOL, aws.ZONE_ID}

    types = resolve(builtin_facts(), None, PriceBook(), region="us-east-1", zones={}).instance_types

    assert {t.name for t in types if set(t.requirements) != expected} == set()


def test_a_fact_that_the_type_does_not_have_is_said_not_to_exist() -> None:
    found = described(an_ec2_type("m5.large"))

    for key in (aws.GPU_NAME, aws.ACCELERATOR_COUNT, aws.INSTANCE_LOCAL_NVME, labels.WINDOWS_BUILD, aws.RESERVATION_ID):
        assert found[key].operator is Operator.DOES_NOT_EXIST


@pytest.mark.parametrize(
    ("name", "category", "generation"),
    [
        ("m5.large", "m", "5"),
        ("u-6tb1.112xlarge", "u", "1"),
        ("u7i-6tb.112xlarge", "u", "7"),
        ("x2iedn.metal", "x", "2"),
        ("mac-m4.metal", None, None),
        ("fake-it-0", None, None),
    ],
)
def test_category_and_generation_are_read_from_the_name(
    name: str, category: str | None, generation: str | None
) -> None:
    found = name_labels(name)

    assert (found.get(aws.CATEGORY), found.get(aws.GENERATION)) == (category, generation)


def test_a_name_without_exactly_one_dot_has_no_family_and_size() -> None:
    assert aws.FAMILY not in name_labels("fake-it-0")
    assert aws.SIZE not in name_labels("a.b.c")


def test_flex_families_say_so() -> None:
    assert name_labels("m7i-flex.large")[aws.INSTANCE_FLEX] == "true"


def test_bare_metal_has_an_empty_hypervisor() -> None:
    assert described(an_ec2_type("m5.metal"))[aws.INSTANCE_HYPERVISOR].values == {""}


def test_gpu_labels_describe_exactly_one_model() -> None:
    one = described(an_ec2_type("g6.xlarge", gpus=(Gpu("RTX PRO 6000", "NVIDIA", 2, 24576),))).labels()
    two = described(an_ec2_type("g6.xlarge", gpus=(Gpu("A", "NVIDIA", 1), Gpu("B", "NVIDIA", 1))))

    assert (one[aws.GPU_NAME], one[aws.GPU_MANUFACTURER]) == ("rtx-pro-6000", "nvidia")
    assert (one[aws.GPU_COUNT], one[aws.GPU_MEMORY]) == ("2", "24576")
    assert two[aws.GPU_COUNT].operator is Operator.DOES_NOT_EXIST


def test_accelerator_labels_come_from_neuron_first_and_else_from_one_inference_accelerator() -> None:
    neuron = described(an_ec2_type("trn1.32xlarge")).labels()
    qualcomm = described(
        an_ec2_type("m5.large", inference_accelerators=(Accelerator("Qualcomm AI100", "Qualcomm", 8),))
    ).labels()

    assert (neuron[aws.ACCELERATOR_NAME], neuron[aws.ACCELERATOR_MANUFACTURER]) == ("trainium", "aws")
    assert neuron[aws.ACCELERATOR_COUNT] == "16"
    assert (qualcomm[aws.ACCELERATOR_NAME], qualcomm[aws.ACCELERATOR_COUNT]) == ("qualcomm-ai100", "8")


def test_local_disks_are_labelled_when_they_are_nvme() -> None:
    assert described(an_ec2_type("i4i.large")).labels()[aws.INSTANCE_LOCAL_NVME] == "468"
    assert described(an_ec2_type("d2.xlarge"))[aws.INSTANCE_LOCAL_NVME].operator is Operator.DOES_NOT_EXIST


def test_windows_nodes_are_amd64_only_and_carry_their_build() -> None:
    windows = an_ec2_node_class({"amiSelectorTerms": [{"alias": "windows2022@latest"}]})
    intel, graviton = (
        described(an_ec2_type("m5.large"), windows),
        described(an_ec2_type("m6g.large"), windows),
    )

    assert intel.labels()[labels.OS] == "windows"
    assert intel.labels()[labels.WINDOWS_BUILD] == "10.0.20348"
    assert graviton[labels.OS].operator is Operator.DOES_NOT_EXIST


def test_zones_are_those_with_a_subnet_of_the_node_class() -> None:
    one_zone = an_ec2_node_class(zones={"us-east-1b": "use1-az1"})

    found = described(an_ec2_type("m5.large"), one_zone)

    assert found.labels()[labels.ZONE] == "us-east-1b"
    assert found.labels()[aws.ZONE_ID] == "use1-az1"


def test_the_resources_of_accelerators_are_exotic() -> None:
    assert EXOTIC == {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "habana.ai/gaudi",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
    }
