"""What tests can do to FakeKube beyond the contract that it keeps."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sawhorse_kube.api import WatchEvent, WatchType
from sawhorse_kube.errors import EvictionBlockedError, GoneError, InvalidError, KubeUnavailableError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_testing.eventually import eventually
from sawhorse_testing.kube import FakeKube
from sawhorse_testing.kube_patch import fields_match, json_patch, labels_match, merge

BOUND = {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}}


async def test_an_object_put_twice_keeps_its_identity_and_moves_its_version() -> None:
    kube = FakeKube()
    first = kube.put(POD, BOUND)
    second = kube.put(POD, {**BOUND, "status": {"phase": "Running"}})

    assert second.meta.uid == first.meta.uid
    assert int(second.meta.resource_version) > int(first.meta.resource_version)
    assert second.phase == "Running"


async def test_calls_fail_as_scripted_and_then_work_again() -> None:
    kube = FakeKube()
    kube.put(NODE, {"metadata": {"name": "n"}})
    kube.fail("get", KubeUnavailableError("refused"), kind="Node", times=2)
    answers = []

    for _ in range(3):
        try:
            answers.append((await kube.get(NODE, "n")).meta.name)
        except KubeUnavailableError:
            answers.append("refused")

    assert answers == ["refused", "refused", "n"]
    assert kube.called("get", "Node") == ["n", "n", "n"]


async def test_bound_pods_end_when_told_or_at_once() -> None:
    slow, fast = FakeKube(), FakeKube(pods_end_at_once=True)
    for kube in (slow, fast):
        await kube.evict(kube.put(POD, BOUND))
    deleting = slow.raw(POD, "a", "default")["metadata"]
    slow.end_pod("a")

    assert deleting["deletionGracePeriodSeconds"] == 30
    assert slow.names(POD) == fast.names(POD) == []


async def test_a_deletion_is_stamped_with_the_end_of_the_grace_by_the_given_clock() -> None:
    kube = FakeKube(now=lambda: datetime(2026, 11, 29, 10, 0, tzinfo=UTC))
    pod = kube.put(POD, BOUND)

    await kube.evict(pod, grace_seconds=7)

    assert (await kube.get(POD, "a", "default")).meta.deletion_timestamp == datetime(2026, 11, 29, 10, 0, 7, tzinfo=UTC)


async def test_evictions_are_blocked_by_the_tests_own_rule() -> None:
    kube = FakeKube()
    pod = kube.put(POD, BOUND)
    kube.block_evictions(lambda each: each.meta.name == "a")

    with pytest.raises(EvictionBlockedError, match="disruption budget"):
        await kube.evict(pod)


async def test_open_watches_end_when_broken_and_are_gone_when_history_is_forgotten() -> None:
    kube = FakeKube()
    ends: list[str] = []

    async def follow() -> None:
        try:
            async for _ in kube.watch(POD, resource_version="0"):
                pass
            ends.append("ended")
        except GoneError:
            ends.append("gone")

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await eventually(lambda: len(kube.called("watch")) == 1)
        kube.break_watches()
        await eventually(lambda: ends == ["ended"])
        group.create_task(follow())
        await eventually(lambda: len(kube.called("watch")) == 2)
        kube.put(NODE, {"metadata": {"name": "n"}})
        kube.compact()

    assert ends == ["ended", "gone"]


async def test_a_quiet_watch_tells_its_place_at_its_end() -> None:
    kube = FakeKube()
    kube.put(NODE, {"metadata": {"name": "n"}})
    events: list[WatchEvent] = []

    async for event in kube.watch(POD, resource_version="0", timeout=timedelta(milliseconds=10)):
        events.append(event)

    assert [(e.type, e.resource_version) for e in events] == [(WatchType.BOOKMARK, "0"), (WatchType.BOOKMARK, "1")]


async def test_a_kind_without_its_crd_is_not_found() -> None:
    kube = FakeKube()
    kube.missing_kinds.add("NodeClaim")

    with pytest.raises(NotFoundError):
        await kube.list(NODECLAIM)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b!=3", True),
        ("a=2", False),
        ("a in (1,2),c notin (x)", True),
        ("a notin (1)", False),
        ("a,!c", True),
        ("c", False),
    ],
)
def test_label_selectors_as_kubectl_spells_them(selector: str, matches: bool) -> None:
    assert labels_match(selector, {"a": "1", "b": "2"}) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("spec.nodeName=n", True),
        ("spec.nodeName=", False),
        ("status.phase!=Running", True),
        ("metadata.name==x", False),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:
    assert fields_match(selector, {"spec": {"nodeName": "n"}, "metadata": {"name": "a"}}) is matches


def test_merge_patches_remove_by_null_and_strategic_ones_merge_known_lists() -> None:
    old = {"a": 1, "conditions": [{"type": "X", "status": "False"}], "finalizers": ["f"]}
    patch = {"a": None, "conditions": [{"type": "X", "status": "True"}, {"type": "Y"}], "finalizers": ["g"]}

    plain, strategic = merge(old, patch), merge(old, patch, strategic=True)

    assert plain == {"conditions": patch["conditions"], "finalizers": ["g"]}
    assert strategic["conditions"] == [{"type": "X", "status": "True"}, {"type": "Y"}]
    assert strategic["finalizers"] == ["f", "g"]


def test_json_patches_work_on_lists_and_refuse_paths_that_are_not_there() -> None:
    old = {"list": [1, 2], "map": {"a/b": 1}}

    new = json_patch(
        old,
        [
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "remove", "path": "/list/0"},
            {"op": "replace", "path": "/map/a~1b", "value": 2},
        ],
    )

    assert new == {"list": [2, 3], "map": {"a/b": 2}}
    with pytest.raises(InvalidError, match="no such path"):
        json_patch(old, [{"op": "replace", "path": "/map/none", "value": 1}])
