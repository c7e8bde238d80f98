"""Events: told once per reason, object and while; never an error for who tells them."""

from datetime import UTC, datetime, timedelta

from sawhorse_kube.api import KubeEvent
from sawhorse_kube.errors import ForbiddenError
from sawhorse_kube.events import EventRecorder, event_to_raw
from sawhorse_kube.kinds import NODE, POD
from sawhorse_model.meta import ObjectMeta
from sawhorse_testing.kube import FakeKube

NOW = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
POD_A = ObjectMeta("a", "web", uid="uid-a")
POD_B = ObjectMeta("b", "web", uid="uid-b")


class Moment:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds


async def test_a_reason_about_an_object_is_quiet_for_two_minutes() -> None:
    kube, clock = FakeKube(), Moment()
    recorder = EventRecorder(kube, clock)

    for seconds in (0, 119, 120):
        clock.seconds = seconds
        await recorder.publish(POD, POD_A, reason="Nominated", message=f"at {seconds}")

    assert [event.message for event in kube.events] == ["at 0", "at 120"]


async def test_other_objects_and_other_reasons_are_told() -> None:
    kube = FakeKube()
    recorder = EventRecorder(kube, Moment())

    await recorder.publish(POD, POD_A, reason="Nominated", message="m")
    await recorder.publish(POD, POD_B, reason="Nominated", message="m")
    await recorder.publish(POD, POD_A, reason="Evicted", message="m")

    assert [(e.meta.name, e.reason) for e in kube.events] == [("a", "Nominated"), ("b", "Nominated"), ("a", "Evicted")]


async def test_a_longer_quiet_time_and_a_key_can_be_given() -> None:
    kube, clock = FakeKube(), Moment()
    recorder = EventRecorder(kube, clock)

    for seconds, key in ((0, "x"), (200, "x"), (200, "y")):
        clock.seconds = seconds
        quiet = timedelta(minutes=15)
        await recorder.publish(NODE, POD_A, reason="Unconsolidatable", message=key, dedupe=quiet, key=key)

    assert [event.message for event in kube.events] == ["x", "y"]


async def test_an_event_that_cannot_be_written_is_nobodys_error_and_is_tried_again() -> None:
    kube = FakeKube()
    kube.fail("record", ForbiddenError("no"))
    recorder = EventRecorder(kube, Moment())

    await recorder.publish(POD, POD_A, reason="Nominated", message="first")
    await recorder.publish(POD, POD_A, reason="Nominated", message="second")

    assert [event.message for event in kube.events] == ["second"]


def test_an_event_about_a_node_is_where_kubectl_looks_for_it() -> None:
    raw = event_to_raw(KubeEvent(NODE, ObjectMeta("n", uid="u"), "Warning", "FailedDraining", "m"), NOW)

    assert raw["metadata"]["namespace"] == "default"
    assert raw["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "namespace": "", "uid": "u"}
    assert raw["source"] == {"component": "karpenter"}


def test_a_message_longer_than_the_api_takes_is_cut() -> None:
    raw = event_to_raw(KubeEvent(POD, POD_A, "Normal", "R", "x" * 5000), NOW)

    assert len(raw["message"]) == 1024
    assert raw["message"].endswith("…")
