"""What kubelets report of pods, and when pods end."""

import pytest

from sawhorse_sandbox.kubelet.pods import (
    RUN_ANNOTATION,
    SHUTDOWN_ANNOTATION,
    Addresses,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    run_seconds,
    running_status,
    shutdown_seconds,
    succeeded_status,
)
from sawhorse_sandbox.kubelet.reflector import Metadata

NOW = "2026-01-02T03:04:05Z"


def a_pod(*, grace: int | None = 30, phase: str = "Running", **annotations: str) -> Pod:
    names = {"shutdown": SHUTDOWN_ANNOTATION, "run": RUN_ANNOTATION}
    meta = Metadata(
        name="web",
        namespace="default",
        uid="u",
        deletion_grace_period_seconds=grace,
        annotations={names[key]: value for key, value in annotations.items()},
    )
    spec = PodSpec(
        containers=(Container("app", "app:1"),),
        init_containers=(Container("setup"), Container("proxy", restart_policy="Always")),
    )
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    target = {"type": "DisruptionTarget", "status": "True"}
    return Pod(meta, spec, PodStatus(phase=phase, conditions=[scheduled, target]))


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        (a_pod(grace=30), 1.0),
        (a_pod(grace=0), 0.0),
        (a_pod(grace=5, shutdown="20"), 5.0),
        (a_pod(grace=30, shutdown="20"), 20.0),
        (a_pod(grace=30, shutdown="soon"), 1.0),
        (a_pod(grace=30, phase="Succeeded"), 0.0),
    ],
)
def test_a_pod_ends_after_its_shutdown_time_and_never_after_its_grace(pod: Pod, seconds: float) -> None:
    assert shutdown_seconds(pod, 1.0) == seconds


def test_a_running_pod_is_ready_with_all_its_containers_and_keeps_others_conditions() -> None:
    status = running_status(a_pod(phase="Pending"), Addresses(pod="100.64.0.1", host="10.0.0.1"), now=NOW)

    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert status["phase"] == "Running"
    assert (status["podIP"], status["hostIP"]) == ("100.64.0.1", "10.0.0.1")
    assert {conditions[name] for name in ("Ready", "ContainersReady", "PodScheduled", "DisruptionTarget")} == {"True"}
    assert [each["ready"] for each in status["containerStatuses"]] == [True]


def test_an_ordinary_init_container_has_ended_and_a_sidecar_runs() -> None:
    status = running_status(a_pod(), Addresses(pod="100.64.0.1", host="10.0.0.1"), now=NOW)

    assert [list(each["state"]) for each in status["initContainerStatuses"]] == [["terminated"], ["running"]]


def test_a_condition_that_does_not_change_keeps_its_time() -> None:
    status = running_status(a_pod(), Addresses(pod="100.64.0.1", host="10.0.0.1"), now=NOW)

    times = {each["type"]: each.get("lastTransitionTime") for each in status["conditions"]}
    assert times["PodScheduled"] == "2025-01-01T00:00:00Z"
    assert times["Ready"] == NOW


def test_only_an_annotated_pod_ends_by_itself_and_then_it_has_succeeded() -> None:
    status = succeeded_status(a_pod(), now=NOW)

    assert run_seconds(a_pod()) is None
    assert run_seconds(a_pod(run="2.5")) == 2.5
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
