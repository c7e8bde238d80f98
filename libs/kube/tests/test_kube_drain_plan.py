"""Which pods are evicted or deleted when, by every rule of a drain. Seconds count from the start, T = 0."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_kube.drain_plan import (
    DrainPlanner,
    DrainPolicy,
    DrainStep,
    deadline_of,
    pods_to_drain,
    policy_of,
    protected_until,
    shortened_grace,
)
from sawhorse_model.labels import DO_NOT_DISRUPT, INTERRUPTED_AT, REPLACEMENT_READY, TERMINATION_TIMESTAMP
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.pod import Pod, PodSpec
from sawhorse_model.taints import Toleration

START = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
DAEMONSET = OwnerReference("apps/v1", "DaemonSet", "d", "u-d", controller=True)
STATIC = OwnerReference("v1", "Node", "n", "u-n", controller=True)
CRITICAL = "system-node-critical"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def a_pod(
    name: str = "a",
    *,
    grace: int = 30,
    deleted: float | None = None,
    do_not_disrupt: str = "",
    started: float | None = None,
    owner: OwnerReference | None = None,
    priority_class: str = "",
    tolerations: tuple[Toleration, ...] = (),
    **more: Any,
) -> Pod:
    """A running pod; `deleted` is its deletionTimestamp: when its grace ends."""
    meta = ObjectMeta(
        name,
        "default",
        uid=f"uid-{name}",
        annotations={DO_NOT_DISRUPT: do_not_disrupt} if do_not_disrupt else {},
        deletion_timestamp=at(deleted) if deleted is not None else None,
        owners=(owner,) if owner else (),
    )
    spec = PodSpec(grace_seconds=grace, priority_class=priority_class, tolerations=tolerations)
    began = at(started) if started is not None else None
    return Pod(meta, spec, node_name="n", started=began, **{"phase": "Running", **more})


def look(
    seconds: float,
    *pods: Pod,
    deadline: float | None = None,
    policy: DrainPolicy | None = None,
    since: float | None = 0,
    blocked: dict[str, float] | None = None,
) -> DrainStep:
    """Decide at a moment; `blocked` names pods and when they may be asked again."""
    return DrainPlanner(policy).decide(
        at(seconds),
        pods,
        at(deadline) if deadline is not None else None,
        since=at(since) if since is not None else None,
        blocked={f"uid-{name}": at(again) for name, again in (blocked or {}).items()},
    )


def evicted(step: DrainStep) -> list[str]:
    return [pod.meta.name for pod in step.evict]


def forced(step: DrainStep) -> list[tuple[str, int]]:
    return [(pod.meta.name, grace) for pod, grace in step.force_delete]


def warned(*, ready: bool = False, requested: bool = True) -> DrainPolicy:
    return DrainPolicy(warned_at=START, replacement_ready=ready, replacement_requested=requested)


WARNING_DEADLINE = 110.0


# Who is drained at all.


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(tolerations=(Toleration(operator="Exists"),)),
        a_pod(tolerations=(Toleration("karpenter.sh/disrupted", "Exists"),)),
        a_pod(owner=STATIC),
        a_pod(phase="Succeeded"),
        a_pod(phase="Failed"),
        a_pod(deleted=-61),
    ],
    ids=["tolerates-all", "tolerates-the-taint", "static", "succeeded", "failed", "stuck-for-a-minute"],
)
def test_some_pods_are_neither_evicted_nor_waited_for(pod: Pod) -> None:
    step = look(10, pod)

    assert (step.evict, step.force_delete, step.waiting, step.done) == ((), (), (), True)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(do_not_disrupt="true"),
        a_pod(deleted=-59),
        a_pod(tolerations=(Toleration("karpenter.sh/disrupted", "Exists", effect="NoExecute"),)),
    ],
    ids=["do-not-disrupt", "terminating", "tolerates-another-effect"],
)
def test_others_hold_the_drain(pod: Pod) -> None:
    assert pods_to_drain([pod], START) == (pod,)


# Order.


def test_groups_go_one_after_the_other_and_what_serves_the_others_goes_last() -> None:
    plain, daemon = a_pod("plain"), a_pod("daemon", owner=DAEMONSET)
    critical, both = a_pod("critical", priority_class=CRITICAL), a_pod("both", owner=DAEMONSET, priority_class=CRITICAL)
    left = [both, critical, daemon, plain]

    order = []
    while left:
        order += evicted(look(0, *left))
        left = [pod for pod in left if pod.meta.name not in order]

    assert order == ["plain", "daemon", "critical", "both"]


def test_a_group_waits_until_the_pods_of_the_one_before_have_ended() -> None:
    terminating, daemon = a_pod("plain", deleted=30), a_pod("daemon", owner=DAEMONSET)

    assert evicted(look(0, terminating, daemon)) == []
    assert evicted(look(0, daemon)) == ["daemon"]


def test_a_pod_that_is_terminating_is_not_evicted_again() -> None:
    step = look(0, a_pod(deleted=30))

    assert (step.evict, step.force_delete) == ((), ())
    assert len(step.waiting) == 1


# do-not-disrupt.


def test_do_not_disrupt_keeps_a_pod_for_ever_without_a_deadline() -> None:
    step = look(86_400, a_pod(do_not_disrupt="true"))

    assert (evicted(step), forced(step), step.done) == ([], [], False)


def test_a_length_of_do_not_disrupt_counts_from_the_start_of_the_pod() -> None:
    pod = a_pod(do_not_disrupt="30m", started=0)

    assert evicted(look(1799, pod)) == []
    assert evicted(look(1800, pod)) == ["a"]


@pytest.mark.parametrize(
    ("value", "started", "protected"),
    [
        ("true", None, True),
        ("1h", None, True),
        ("1h", -3601, False),
        ("0s", 0, False),
        ("yes", 0, False),
        ("", 0, False),
    ],
)
def test_values_of_do_not_disrupt(value: str, started: float | None, protected: bool) -> None:
    assert (protected_until(a_pod(do_not_disrupt=value, started=started), START) is not None) is protected


# Deadlines.


def test_a_pod_is_deleted_when_its_grace_would_pass_the_deadline() -> None:
    protected = a_pod(grace=300, do_not_disrupt="true")

    assert forced(look(3299, protected, deadline=3600)) == []
    assert forced(look(3300, protected, deadline=3600)) == [("a", 300)]


def test_a_grace_longer_than_what_is_left_is_cut_to_it() -> None:
    assert forced(look(0, a_pod(grace=7200), deadline=3600)) == [("a", 3600)]


def test_the_grace_is_never_zero_even_past_the_deadline() -> None:
    assert forced(look(4000, a_pod(), deadline=3600)) == [("a", 1)]


def test_pods_past_their_time_are_deleted_whatever_their_group() -> None:
    plain, critical = a_pod("plain", do_not_disrupt="true"), a_pod("critical", priority_class=CRITICAL)

    step = look(95, plain, critical, deadline=100)

    assert sorted(forced(step)) == [("critical", 5), ("plain", 5)]


def test_a_terminating_pod_that_would_outlive_the_deadline_gets_a_shorter_grace_once() -> None:
    asked = look(10, a_pod(deleted=1000), deadline=100)
    done = look(10, a_pod(deleted=101), deadline=100)

    assert forced(asked) == [("a", 90)]
    assert forced(done) == []


def test_a_terminating_pod_that_ends_before_the_deadline_is_left_alone() -> None:
    assert forced(look(90, a_pod(deleted=99), deadline=100)) == []


def test_a_pod_that_a_budget_blocks_is_deleted_at_its_deadline() -> None:
    before = look(69, a_pod(), deadline=100, blocked={"a": 79})
    after = look(70, a_pod(), deadline=100, blocked={"a": 79})

    assert (evicted(before), forced(before)) == ([], [])
    assert (evicted(after), forced(after)) == ([], [("a", 30)])


def test_a_pod_that_a_budget_blocks_is_asked_again_when_its_pause_is_over() -> None:
    assert evicted(look(4.9, a_pod(), blocked={"a": 5})) == []
    assert evicted(look(5, a_pod(), blocked={"a": 5})) == ["a"]


def test_an_absurd_grace_is_no_reason_to_fail() -> None:
    assert forced(look(0, a_pod(grace=2**62), deadline=60)) == [("a", 60)]


# The end.


def test_an_empty_node_is_drained_after_five_seconds() -> None:
    assert not look(4.9).done
    assert look(5).done


def test_a_drain_that_has_only_begun_is_not_done() -> None:
    step = look(100, since=None)

    assert not step.done
    assert step.next_look == timedelta(seconds=1)


def test_a_pod_bound_late_is_drained_too() -> None:
    step = look(4, a_pod(started=3))

    assert (evicted(step), step.done) == (["a"], False)


def test_the_minimum_is_left_out_where_the_policy_says_so() -> None:
    assert look(0, policy=DrainPolicy(minimum=timedelta(0))).done


# When to look again.


def test_the_next_look_is_when_something_is_due_and_within_a_second() -> None:
    assert look(0, a_pod(deleted=30)).next_look == timedelta(seconds=1)
    assert look(69.7, a_pod(do_not_disrupt="true"), deadline=100).next_look == timedelta(seconds=0.3)
    assert look(4.99, a_pod(), blocked={"a": 5}).next_look == timedelta(milliseconds=50)


# Nodes that their cloud takes away.


def test_a_warned_pod_waits_for_its_place_until_45_seconds_after_the_warning() -> None:
    pod = a_pod(grace=20)

    assert evicted(look(44.9, pod, deadline=WARNING_DEADLINE, policy=warned())) == []
    assert evicted(look(45, pod, deadline=WARNING_DEADLINE, policy=warned())) == ["a"]


def test_a_warned_pod_goes_as_soon_as_its_place_is_ready() -> None:
    assert evicted(look(3, a_pod(), deadline=WARNING_DEADLINE, policy=warned(ready=True))) == ["a"]


def test_a_warned_pod_with_a_long_grace_goes_early_enough_for_it() -> None:
    pod = a_pod(grace=60)

    # 110 - 60 - 15 = 35
    assert evicted(look(34.9, pod, deadline=WARNING_DEADLINE, policy=warned())) == []
    assert evicted(look(35, pod, deadline=WARNING_DEADLINE, policy=warned())) == ["a"]


def test_a_warned_pod_whose_grace_exceeds_what_is_left_goes_at_once_with_what_is_left() -> None:
    pod = a_pod(grace=600)

    step = look(5, pod, deadline=WARNING_DEADLINE, policy=warned())

    assert (evicted(step), forced(step)) == (["a"], [])
    assert shortened_grace(pod, at(5), at(WARNING_DEADLINE)) == 105


def test_nothing_is_evicted_before_a_replacement_is_requested() -> None:
    policy = warned(ready=True, requested=False)

    step = look(60, a_pod(), deadline=WARNING_DEADLINE, policy=policy)

    assert (evicted(step), forced(step)) == ([], [])
    assert forced(look(80, a_pod(), deadline=WARNING_DEADLINE, policy=policy)) == [("a", 30)]


def test_a_warned_pod_that_a_budget_blocks_is_deleted_at_deadline_minus_grace() -> None:
    before = look(79, a_pod(), deadline=WARNING_DEADLINE, policy=warned(), blocked={"a": 85})
    after = look(80, a_pod(), deadline=WARNING_DEADLINE, policy=warned(), blocked={"a": 85})

    assert (evicted(before), forced(before)) == ([], [])
    assert forced(after) == [("a", 30)]


def test_a_warned_pod_with_a_long_grace_that_a_budget_blocks_is_deleted_at_once() -> None:
    step = look(6, a_pod(grace=600), deadline=WARNING_DEADLINE, policy=warned(), blocked={"a": 6.1})

    assert forced(step) == [("a", 104)]


def test_a_warned_pod_that_may_not_be_disrupted_is_deleted_at_deadline_minus_grace() -> None:
    pod = a_pod(do_not_disrupt="true")

    early = look(60, pod, deadline=WARNING_DEADLINE, policy=warned(ready=True))
    late = look(80, pod, deadline=WARNING_DEADLINE, policy=warned(ready=True))

    assert (evicted(early), forced(early)) == ([], [])
    assert forced(late) == [("a", 30)]


def test_groups_of_a_warned_node_keep_their_order_until_a_pods_own_last_moment() -> None:
    plain, critical = a_pod("plain", deleted=80), a_pod("critical", priority_class=CRITICAL)

    # 110 - 30 - 15 = 65
    assert evicted(look(64, plain, critical, deadline=WARNING_DEADLINE, policy=warned(ready=True))) == []
    assert evicted(look(65, plain, critical, deadline=WARNING_DEADLINE, policy=warned(ready=True))) == ["critical"]


def test_a_warned_node_is_looked_at_again_when_the_first_pod_is_due() -> None:
    step = look(44.6, a_pod(grace=20), deadline=WARNING_DEADLINE, policy=warned())

    assert step.next_look == timedelta(seconds=0.4)


# What the claim says.


def a_claim(**annotations: str) -> NodeClaim:
    names = {"deadline": TERMINATION_TIMESTAMP, "interrupted": INTERRUPTED_AT, "ready": REPLACEMENT_READY}
    meta = ObjectMeta("c", annotations={names[k]: v for k, v in annotations.items()})
    return NodeClaim(meta, NodeClassRef("g", "k", "n"))


def test_deadline_and_policy_are_read_from_the_claims_annotations() -> None:
    claim = a_claim(deadline="2026-11-29T10:01:50Z", interrupted="2026-11-29T10:00:00Z", ready="true")

    policy = policy_of(claim, reason="SpotInterrupted")

    assert deadline_of(claim) == at(110)
    assert policy == DrainPolicy(warned_at=START, replacement_ready=True, reason="SpotInterrupted")


def test_a_claim_without_annotations_and_one_with_nonsense_have_no_deadline() -> None:
    assert deadline_of(a_claim()) is None
    assert deadline_of(a_claim(deadline="soon")) is None
    assert policy_of(a_claim()).warned_at is None


# Properties over all mixes.


def test_whatever_the_mix_every_pod_is_asked_to_go_before_the_deadline_and_nothing_is_done_twice_at_once() -> None:
    mixes = [
        a_pod(f"{grace}-{protect}-{kind}", grace=grace, do_not_disrupt=protect, owner=owner, priority_class=priority)
        for grace in (0, 1, 30, 109, 600)
        for protect in ("", "true")
        for kind, owner, priority in (("plain", None, ""), ("daemon", DAEMONSET, ""), ("critical", None, CRITICAL))
    ]
    asked: set[str] = set()

    for tenth in range(0, 1110):
        step = look(tenth / 10, *mixes, deadline=WARNING_DEADLINE, policy=warned())
        names = [*evicted(step), *(name for name, _ in forced(step))]
        assert len(names) == len(set(names))
        assert all(grace >= 1 for _, grace in forced(step))
        asked |= set(names)

    assert asked == {pod.meta.name for pod in mixes}
