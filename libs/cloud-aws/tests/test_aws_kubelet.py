"""Checks of spec.kubelet: what a kubelet would refuse at its start."""

from typing import Any

import pytest

from sawhorse_cloud_aws.kubelet import UNSUPPORTED, kubelet_problems
from sawhorse_cloud_aws.spec import KUBELET, KUBELET_EXPRESSIONS
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_testing.cloud_worlds import an_ec2_node_class


def problems(kubelet: dict[str, Any], family: str = "AL2023") -> list[tuple[str, str]]:
    spec = {"kubelet": kubelet, "amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}]}
    return [(p.reason, p.message) for p in kubelet_problems(parse_ec2_node_class(an_ec2_node_class(spec=spec)))]


@pytest.mark.parametrize(
    ("kubelet", "told"),
    [
        ({"registerWithTaints": []}, "spec.kubelet.registerWithTaints: "),
        ({"evictionHard": {"disk.available": "5%"}}, "spec.kubelet.evictionHard[disk.available]: is none of "),
        ({"evictionHard": {"memory.available": "101%"}}, "spec.kubelet.evictionHard[memory.available]: '101%'"),
        ({"evictionHard": {"memory.available": "-1Mi"}}, "spec.kubelet.evictionHard[memory.available]: "),
        ({"evictionHard": {"memory.available": "nan%"}}, "spec.kubelet.evictionHard[memory.available]: "),
        ({"evictionMinimumReclaim": {"memory.available": "some"}}, "spec.kubelet.evictionMinimumReclaim["),
        ({"evictionSoft": {"memory.available": "5%"}}, "spec.kubelet.evictionSoft[memory.available]: has no "),
        (
            {"evictionSoftGracePeriod": {"memory.available": "1m"}},
            "spec.kubelet.evictionSoftGracePeriod[memory.available]: has no evictionSoft",
        ),
        (
            {
                "evictionSoft": {"memory.available": "5%"},
                "evictionSoftGracePeriod": {"memory.available": "a minute"},
            },
            "spec.kubelet.evictionSoftGracePeriod[memory.available]: 'a minute'",
        ),
        ({"kubeReserved": {"gpu": "1"}}, "spec.kubelet.kubeReserved[gpu]: is none of "),
        ({"systemReserved": {"cpu": "-100m"}}, "spec.kubelet.systemReserved[cpu]: '-100m' is negative"),
        ({"maxPods": -1}, "spec.kubelet.maxPods: -1"),
        ({"podsPerCore": -1}, "spec.kubelet.podsPerCore: -1"),
        ({"evictionMaxPodGracePeriod": "60"}, "spec.kubelet.evictionMaxPodGracePeriod: '60'"),
        ({"imageGCHighThresholdPercent": 101}, "spec.kubelet.imageGCHighThresholdPercent: 101"),
        (
            {"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80},
            "spec.kubelet.imageGCHighThresholdPercent: 80 must be greater",
        ),
        ({"cpuCFSQuota": "no"}, "spec.kubelet.cpuCFSQuota: 'no'"),
    ],
)
def test_a_setting_that_the_kubelet_refuses_is_told_with_its_field(kubelet: dict[str, Any], told: str) -> None:
    ((reason, message),) = problems(kubelet)

    assert reason == KUBELET
    assert message.startswith(told)


def test_an_expression_is_told_as_such() -> None:
    ((reason, message),) = problems({"kubeReserved": {"memory": "memory_mib * 0.05", "cpu": "80m"}})

    assert reason == KUBELET_EXPRESSIONS
    assert message.startswith("spec.kubelet.kubeReserved[memory]: ")


@pytest.mark.parametrize(
    "kubelet",
    [
        {},
        {"evictionHard": {"memory.available": "100%", "nodefs.inodesFree": "5%", "pid.available": "1000"}},
        {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}},
        {"kubeReserved": {"cpu": "80m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "100"}},
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 0},
        {"maxPods": 0, "podsPerCore": 0},
        {"featureGates": {"SomeGate": True}, "topologyManagerPolicy": "best-effort"},
    ],
)
def test_good_settings_have_no_problem(kubelet: dict[str, Any]) -> None:
    assert problems(kubelet) == []


def test_all_problems_of_a_kind_are_told() -> None:
    assert len(problems({"maxPods": -1, "podsPerCore": -1, "registerWithTaints": []})) == 3


@pytest.mark.parametrize(
    ("family", "kubelet"),
    [
        ("Bottlerocket", {"topologyManagerPolicy": "best-effort"}),
        ("AL2", {"featureGates": {}}),
        ("Windows2022", {"containerLogMaxSize": "10Mi"}),
        ("Bottlerocket", {"podsPerCore": 4}),
        ("AL2", {"clusterDNS": ["10.0.0.1", "10.0.0.2"]}),
    ],
)
def test_what_a_familys_image_does_not_take_is_refused_for_it_alone(family: str, kubelet: dict[str, Any]) -> None:
    ((reason, message),) = problems(kubelet, family)

    assert reason == UNSUPPORTED
    assert family in message
    assert problems(kubelet) == []
    assert problems(kubelet, "Custom") == []
