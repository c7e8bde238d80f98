"""What a pod takes from its node: init containers, sidecars, overhead, pod-level resources, resize."""

from typing import Any

import pytest

from sawhorse_model.manifests import ManifestError, parse_pod
from sawhorse_model.manifests.pods import effective_requests


def a_container(cpu: str, **fields: Any) -> dict[str, Any]:
    return {"name": fields.pop("name", "c"), "resources": {"requests": {"cpu": cpu}}, **fields}


def cpu_of(**spec: Any) -> int:
    return effective_requests(spec, "spec")["cpu"]


SIDECAR = {"restartPolicy": "Always"}


def test_containers_add_up() -> None:
    assert cpu_of(containers=[a_container("1"), a_container("250m")]) == 1250


def test_an_init_container_counts_only_where_it_is_larger() -> None:
    assert cpu_of(containers=[a_container("1")], initContainers=[a_container("3"), a_container("2")]) == 3000


def test_a_sidecar_before_an_init_container_runs_beside_it() -> None:
    order = [a_container("1", **SIDECAR), a_container("2")]

    assert cpu_of(containers=[a_container("1")], initContainers=order) == 3000


def test_a_sidecar_after_an_init_container_does_not_run_beside_it() -> None:
    order = [a_container("2"), a_container("1", **SIDECAR)]

    assert cpu_of(containers=[a_container("1")], initContainers=order) == 2000


def test_sidecars_run_beside_the_containers() -> None:
    order = [a_container("1", **SIDECAR), a_container("1", **SIDECAR)]

    assert cpu_of(containers=[a_container("1")], initContainers=order) == 3000


def test_overhead_is_added_last() -> None:
    assert cpu_of(containers=[a_container("1")], initContainers=[a_container("2")], overhead={"cpu": "100m"}) == 2100


def test_pod_level_resources_replace_the_sum() -> None:
    asked = effective_requests(
        {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}],
            "resources": {"requests": {"cpu": "2"}},
        },
        "spec",
    )

    assert asked == {"cpu": 2000, "memory": 2**30}


def test_a_limit_stands_in_for_a_missing_request() -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}

    assert effective_requests({"containers": [container]}, "spec") == {"cpu": 1000, "memory": 2**30}


def test_during_a_resize_the_larger_of_asked_and_held_counts() -> None:
    pod = parse_pod(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [a_container("1", name="app")]},
            "status": {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "2"}}]},
        }
    )

    assert pod.spec.requests == {"cpu": 2000, "pods": 1}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [a_container("-1")]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": [a_container("many")]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": {}}, "spec.containers"),
        ({"containers": ["x"]}, "spec.containers[0]"),
        ({"nodeSelector": {"zone": 1}}, "spec.nodeSelector[zone]"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "k"}]},
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Near"}]}]
                        }
                    }
                }
            },
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
    ],
)
def test_a_misfit_names_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod({"metadata": {"name": "p"}, "spec": spec})

    assert caught.value.field == field
