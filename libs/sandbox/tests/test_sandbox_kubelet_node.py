"""How an instance shows itself as a Node."""

import base64
from typing import Any

import pytest

from sawhorse_sandbox.kubelet.node import (
    BootError,
    Instance,
    Machine,
    allocatable,
    boot,
    build_node,
    build_status,
    capacity,
    region_of,
    reserved_cpu,
)

MIB = 2**20
NOW = "2026-01-02T03:04:05Z"


def an_instance(kubelet: str = "", **overrides: Any) -> Instance:
    config = f"apiVersion: node.eks.aws/v1alpha1\nspec: {{kubelet: {{{kubelet}}}}}"
    values: dict[str, Any] = {
        "instance_id": "i-1",
        "state": "running",
        "type": "m5.large",
        "zone": "us-east-1b",
        "private_dns_name": "ip-10-0-0-1.ec2.internal",
        "private_ip": "10.0.0.1",
        "user_data": base64.b64encode(config.encode()).decode(),
    }
    return Instance(**(values | overrides))


def a_machine(kubelet: str = "", **overrides: Any) -> Machine:
    return boot(an_instance(kubelet, **overrides), "v1.36.3")


def test_a_node_registers_not_ready_under_its_private_dns_name_with_what_the_user_data_says() -> None:
    taint = "{key: karpenter.sh/unregistered, effect: NoExecute}"
    node = build_node(
        a_machine(
            f"config: {{registerWithTaints: [{taint}]}}, flags: ['--node-labels=pool=a,kubernetes.io/arch=wrong']"
        ),
        now=NOW,
    )

    assert node["metadata"]["name"] == "ip-10-0-0-1.ec2.internal"
    assert node["spec"] == {
        "providerID": "aws:///us-east-1b/i-1",
        "taints": [
            {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        ],
    }
    assert node["metadata"]["labels"] == {
        "pool": "a",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": "ip-10-0-0-1.ec2.internal",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1b",
        "topology.kubernetes.io/region": "us-east-1",
    }
    ready = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
    assert [c["status"] for c in ready] == ["False"]


def test_a_graviton_type_is_an_arm64_node() -> None:
    node = build_node(a_machine(type="m7g.large"), now=NOW)

    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert node["status"]["nodeInfo"]["architecture"] == "arm64"


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("us-gov-west-1b", "us-gov-west-1"), ("us-west-2-lax-1a", "us-west-2")],
)
def test_the_region_is_the_zones_beginning(zone: str, region: str) -> None:
    assert region_of(zone) == region


def test_a_machine_shows_more_memory_than_the_planner_guesses_and_less_than_advertised() -> None:
    memory = capacity(a_machine(), with_devices=True)["memory"]

    assert 8192 * MIB * 925 // 1000 < memory < 8192 * MIB
    assert memory % 1024 == 0


def test_allocatable_is_capacity_less_the_usual_reservations() -> None:
    machine = a_machine("config: {maxPods: 29}")
    total = capacity(machine, with_devices=True)

    left = allocatable(machine, total)

    assert left["cpu"] == 1930
    assert total["memory"] - left["memory"] == (11 * 29 + 255 + 100) * MIB
    assert left["ephemeral-storage"] == 18_253_611_008
    assert left["pods"] == 29


def test_a_pod_limit_by_the_user_does_not_change_the_memory_reservation() -> None:
    machine = a_machine("config: {maxPods: 110}")
    total = capacity(machine, with_devices=True)

    assert total["memory"] - allocatable(machine, total)["memory"] == (11 * 29 + 255 + 100) * MIB


def test_reservations_of_the_user_data_replace_the_usual_ones_one_by_one() -> None:
    machine = a_machine(
        "config: {kubeReserved: {memory: 1Gi}, systemReserved: {cpu: 100m}, evictionHard: {memory.available: 10%}}"
    )
    total = capacity(machine, with_devices=True)

    left = allocatable(machine, total)

    assert left["cpu"] == 2000 - 70 - 100
    assert left["memory"] == total["memory"] - 1024 * MIB - -(-total["memory"] // 10)


@pytest.mark.parametrize(("cpu", "reserved"), [(1000, 60), (2000, 70), (4000, 80), (16000, 110), (192_000, 550)])
def test_reserved_cpu_shrinks_from_core_to_core(cpu: int, reserved: int) -> None:
    assert reserved_cpu(cpu) == reserved


def test_pods_per_core_lowers_the_pod_limit() -> None:
    assert capacity(a_machine("config: {maxPods: 29, podsPerCore: 4}"), with_devices=True)["pods"] == 8


def test_without_a_limit_in_the_user_data_a_node_takes_110_pods() -> None:
    assert capacity(a_machine(), with_devices=True)["pods"] == 110


def test_gpus_appear_only_with_their_device_plugin() -> None:
    machine = a_machine(type="g5.12xlarge")

    assert "nvidia.com/gpu" not in capacity(machine, with_devices=False)
    assert capacity(machine, with_devices=True)["nvidia.com/gpu"] == 4


def test_neuron_devices_and_cores_are_counted() -> None:
    total = capacity(a_machine(type="trn1.2xlarge"), with_devices=True)

    assert (total["aws.amazon.com/neuron"], total["aws.amazon.com/neuroncore"]) == (1, 2)


def test_local_disks_hold_pods_only_where_the_user_data_says_so() -> None:
    raid = base64.b64encode(
        b"apiVersion: node.eks.aws/v1alpha1\nspec: {instance: {localStorage: {strategy: RAID0}}}"
    ).decode()

    without = capacity(a_machine(type="m5d.large"), with_devices=True)
    with_disks = capacity(a_machine(type="m5d.large", user_data=raid), with_devices=True)

    assert without["ephemeral-storage"] == 20 * 2**30
    assert with_disks["ephemeral-storage"] == 75 * 10**9


def test_a_report_keeps_foreign_conditions_and_the_transition_time_of_what_stays() -> None:
    before = [
        {"type": "NetworkUnavailable", "status": "False"},
        {"type": "DiskPressure", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        {"type": "Ready", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
    ]

    status = build_status(a_machine(), ready=True, with_devices=True, now=NOW, present=before)

    after = {condition["type"]: condition for condition in status["conditions"]}
    assert after["NetworkUnavailable"] == before[0]
    assert after["DiskPressure"]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert (after["Ready"]["status"], after["Ready"]["lastTransitionTime"]) == ("True", NOW)


@pytest.mark.parametrize(
    "overrides",
    [
        {"type": "zz9.large"},
        {"private_dns_name": None},
        {"user_data": "not base64!"},
        {"kubelet": "config: {kubeReserved: {memory: lots}}"},
    ],
)
def test_an_instance_that_cannot_become_a_node_is_told_from_one_that_can(overrides: dict[str, Any]) -> None:
    with pytest.raises(BootError):
        a_machine(**overrides)
