"""What every `Kube` must do, as coroutines that raise AssertionError: run over FakeKube and over a real API server.

Each gets the client and a namespace of its own, which exists. Names of cluster-scoped objects start with it, too.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeVar

from sawhorse_kube.api import Kube, KubeEvent, PatchType, WatchEvent, WatchType
from sawhorse_kube.conditions import patch_conditions
from sawhorse_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
)
from sawhorse_kube.kinds import LEASE, NODE, NODECLAIM, POD, raw_kind
from sawhorse_model.labels import TERMINATION_FINALIZER
from sawhorse_model.meta import Condition, find_condition
from sawhorse_model.pod import Pod

Contract = Callable[[Kube, str], Awaitable[None]]

E = TypeVar("E", bound=KubeError)

_SECONDS = 20.0


def a_pod(namespace: str, name: str, *, node: str = "", **labels: str) -> dict[str, Any]:
    """A small pod that any API server takes."""
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}],
        "terminationGracePeriodSeconds": 20,
    }
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


def a_claim(name: str, **metadata: Any) -> dict[str, Any]:
    """A NodeClaim that its CRD takes."""
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeClassRef": ref, "requirements": [requirement], "expireAfter": "Never"},
    }


def a_lease(namespace: str, name: str, holder: str = "me") -> dict[str, Any]:
    """A Lease."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"holderIdentity": holder}}


async def refused(kind: type[E], call: Awaitable[object]) -> E:
    """The error of a call that must fail so."""
    try:
        await call
    except kind as err:
        return err
    raise AssertionError(f"expected {kind.__name__}, but the call was accepted")


async def first(events: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    """The first events that are no bookmarks."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(_SECONDS), aclosing(events):  # type: ignore[type-var]  # watches are async generators
        async for event in events:
            if event.type is not WatchType.BOOKMARK:
                found.append(event)
            if len(found) == count:
                break
    return found


async def what_is_created_can_be_read_and_listed(kube: Kube, namespace: str) -> None:
    made = await kube.create(POD, a_pod(namespace, "a", app="x"))
    await kube.create(POD, a_pod(namespace, "b", app="y"))

    listing = await kube.list(POD, namespace=namespace)
    labelled = await kube.list(POD, namespace=namespace, label_selector="app=x")
    named = await kube.list(POD, namespace=namespace, field_selector="metadata.name=b")
    assert made.meta.uid
    assert (await kube.get(POD, "a", namespace)).meta.uid == made.meta.uid
    assert [p.meta.name for p in listing.objects] == ["a", "b"]
    assert [p.meta.name for p in labelled.objects] == ["a"]
    assert [p.meta.name for p in named.objects] == ["b"]
    assert int(listing.resource_version) >= int(made.meta.resource_version)
    assert (await kube.list_raw(POD, namespace=namespace)).objects[0]["kind"] == "Pod"


async def a_name_that_is_taken_is_told_apart_from_a_conflict(kube: Kube, namespace: str) -> None:
    await kube.create(POD, a_pod(namespace, "a"))

    await refused(AlreadyExistsError, kube.create(POD, a_pod(namespace, "a")))


async def a_generated_name_is_completed(kube: Kube, namespace: str) -> None:
    raw = a_lease(namespace, "")
    raw["metadata"] = {"generateName": "made-", "namespace": namespace}

    made = await kube.create(LEASE, raw)
    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) > len("made-")


async def an_absent_object_is_not_found_whatever_is_asked(kube: Kube, namespace: str) -> None:
    await refused(NotFoundError, kube.get(POD, "none", namespace))
    await refused(NotFoundError, kube.patch(POD, "none", {"metadata": {}}, namespace=namespace))
    await refused(NotFoundError, kube.delete(POD, "none", namespace))


async def a_merge_patch_sets_and_null_removes(kube: Kube, namespace: str) -> None:
    await kube.create(POD, a_pod(namespace, "a", app="x", old="1"))

    body = {"metadata": {"labels": {"old": None, "new": "2"}}}
    changed = await kube.patch(POD, "a", body, namespace=namespace)
    assert dict(changed.meta.labels) == {"app": "x", "new": "2"}


async def a_patch_with_an_old_version_conflicts_and_changes_nothing(kube: Kube, namespace: str) -> None:
    made = await kube.create(POD, a_pod(namespace, "a"))
    await kube.patch(POD, "a", {"metadata": {"labels": {"by": "other"}}}, namespace=namespace)

    mine = {"metadata": {"resourceVersion": made.meta.resource_version, "labels": {"by": "me"}}}
    err = await refused(ConflictError, kube.patch(POD, "a", mine, namespace=namespace))
    assert err.status == 409
    assert dict((await kube.get(POD, "a", namespace)).meta.labels) == {"by": "other"}


async def a_patch_that_changes_nothing_keeps_the_version(kube: Kube, namespace: str) -> None:
    made = await kube.create(LEASE, a_lease(namespace, "a", "me"))

    same = await kube.patch(LEASE, "a", {"spec": {"holderIdentity": "me"}}, namespace=namespace)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def a_json_patch_tests_before_it_changes(kube: Kube, namespace: str) -> None:
    await kube.create(POD, a_pod(namespace, "a", app="x"))
    change = [
        {"op": "test", "path": "/metadata/labels/app", "value": "x"},
        {"op": "replace", "path": "/metadata/labels/app", "value": "y"},
    ]

    changed = await kube.patch(POD, "a", change, namespace=namespace, patch_type=PatchType.JSON)
    assert changed.meta.labels["app"] == "y"
    await refused(InvalidError, kube.patch(POD, "a", change, namespace=namespace, patch_type=PatchType.JSON))


async def a_strategic_patch_merges_conditions_by_type_and_replaces_taints(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-node"
    one = {"key": "one", "effect": "NoSchedule"}
    await kube.create(NODE, {"metadata": {"name": name}, "spec": {"taints": [one]}})

    taints = {"spec": {"taints": [{"key": "two", "effect": "NoSchedule"}]}}
    changed = await kube.patch(NODE, name, taints, patch_type=PatchType.STRATEGIC)
    assert "two" in {t.key for t in changed.taints}
    assert "one" not in {t.key for t in changed.taints}
    for condition in ({"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}):
        body = {"status": {"conditions": [condition]}}
        changed = await kube.patch(NODE, name, body, subresource="status", patch_type=PatchType.STRATEGIC)
    assert changed.is_ready
    assert find_condition(changed.conditions, "Other") is not None
    await kube.delete(NODE, name)


async def a_custom_resource_takes_no_strategic_patch(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-claim"
    await kube.create(NODECLAIM, a_claim(name))

    body = {"metadata": {"labels": {"a": "b"}}}
    await refused(InvalidError, kube.patch(NODECLAIM, name, body, patch_type=PatchType.STRATEGIC))


async def a_status_patch_changes_the_status_only_and_others_never_do(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-claim"
    await kube.create(NODECLAIM, a_claim(name))

    status = {"status": {"providerID": "aws:///z/i-1"}, "metadata": {"labels": {"no": "no"}}}
    await kube.patch(NODECLAIM, name, {"status": {"providerID": "elsewhere"}})
    by_status = await kube.patch(NODECLAIM, name, status, subresource="status")
    assert by_status.provider_id == "aws:///z/i-1"
    assert (await kube.get(NODECLAIM, name)).provider_id == "aws:///z/i-1"


async def conditions_are_written_whole_under_a_lock(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-claim"
    claim = await kube.create(NODECLAIM, a_claim(name))

    launched = Condition("Launched", "True", "Launched", "", claim.meta.created, 1)
    written = await patch_conditions(kube, NODECLAIM, claim, [launched], {"imageID": "ami-1"}, manager="tests")
    assert [c.type for c in written.conditions] == ["Launched"]
    assert written.image_id == "ami-1"
    other = Condition("Registered", "True", "Registered", "", claim.meta.created, 1)
    await refused(ConflictError, patch_conditions(kube, NODECLAIM, claim, [other]))


async def the_manager_of_a_nominated_node_is_told(kube: Kube, namespace: str) -> None:
    await kube.create(POD, a_pod(namespace, "a"))

    body = {"status": {"nominatedNodeName": "n"}}
    await kube.patch(POD, "a", body, namespace=namespace, subresource="status", manager="sawhorse")
    pod = await kube.get(POD, "a", namespace)
    assert (pod.nominated_node, pod.nominated_by) == ("n", "sawhorse")


async def preconditions_guard_a_deletion(kube: Kube, namespace: str) -> None:
    made = await kube.create(LEASE, a_lease(namespace, "a"))
    version = made["metadata"]["resourceVersion"]
    await kube.patch(LEASE, "a", {"spec": {"holderIdentity": "other"}}, namespace=namespace)

    await refused(ConflictError, kube.delete(LEASE, "a", namespace, uid="another"))
    await refused(ConflictError, kube.delete(LEASE, "a", namespace, resource_version=version))
    await kube.delete(LEASE, "a", namespace, uid=made["metadata"]["uid"])
    await refused(NotFoundError, kube.get(LEASE, "a", namespace))


async def a_finalizer_keeps_a_deleted_object_until_it_is_removed(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-claim"
    await kube.create(NODECLAIM, a_claim(name, finalizers=[TERMINATION_FINALIZER]))

    await kube.delete(NODECLAIM, name)
    deleting = await kube.get(NODECLAIM, name)
    assert deleting.meta.is_deleting
    await kube.delete(NODECLAIM, name)  # again: no change, no error
    assert (await kube.get(NODECLAIM, name)).meta.deletion_timestamp == deleting.meta.deletion_timestamp
    await kube.patch(NODECLAIM, name, {"metadata": {"finalizers": None}})
    await refused(NotFoundError, kube.get(NODECLAIM, name))


async def a_bound_pod_keeps_its_grace_which_may_only_be_shortened(kube: Kube, namespace: str) -> None:
    await kube.create(POD, a_pod(namespace, "a", node=f"{namespace}-node"))

    await kube.delete(POD, "a", namespace)
    full = await kube.get(POD, "a", namespace)
    await kube.delete(POD, "a", namespace, grace_seconds=5)
    short = await kube.get(POD, "a", namespace)
    await kube.delete(POD, "a", namespace, grace_seconds=15)
    assert full.meta.deletion_grace_seconds == 20
    assert short.meta.deletion_grace_seconds == 5
    assert (await kube.get(POD, "a", namespace)).meta.deletion_grace_seconds == 5
    await kube.delete(POD, "a", namespace, grace_seconds=0)
    await refused(NotFoundError, kube.get(POD, "a", namespace))


async def a_pod_without_a_node_is_deleted_at_once(kube: Kube, namespace: str) -> None:
    # A gate keeps schedulers off.
    raw = a_pod(namespace, "a")
    raw["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await kube.create(POD, raw)

    await kube.delete(POD, "a", namespace)
    await refused(NotFoundError, kube.get(POD, "a", namespace))


async def an_eviction_deletes_this_pod_and_no_other_of_its_name(kube: Kube, namespace: str) -> None:
    pod: Pod = await kube.create(POD, a_pod(namespace, "a", node=f"{namespace}-node"))
    old = await kube.create(POD, a_pod(namespace, "b", node=f"{namespace}-node"))
    await kube.delete(POD, "b", namespace, grace_seconds=0)
    await kube.create(POD, a_pod(namespace, "b", node=f"{namespace}-node"))

    await kube.evict(pod, grace_seconds=7)
    assert (await kube.get(POD, "a", namespace)).meta.deletion_grace_seconds == 7
    await refused(ConflictError, kube.evict(old))
    assert not (await kube.get(POD, "b", namespace)).meta.is_deleting
    await kube.delete(POD, "b", namespace, grace_seconds=0)
    await refused(NotFoundError, kube.evict(old))


async def a_watch_tells_what_happens_after_a_list_in_order(kube: Kube, namespace: str) -> None:
    await kube.create(LEASE, a_lease(namespace, "before"))
    version = (await kube.list(LEASE)).resource_version

    await kube.create(LEASE, a_lease(namespace, "a"))
    await kube.patch(LEASE, "a", {"spec": {"holderIdentity": "other"}}, namespace=namespace)
    await kube.delete(LEASE, "a", namespace)
    events = await first(_of(kube.watch(LEASE, resource_version=version), namespace), 3)
    assert [e.type for e in events] == [WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED]
    assert events[1].object is not None
    assert events[1].object["spec"]["holderIdentity"] == "other"
    versions = [int(e.resource_version) for e in events]
    assert versions == sorted(set(versions))


async def a_watch_goes_on_from_any_version_it_told(kube: Kube, namespace: str) -> None:
    version = (await kube.list(LEASE)).resource_version
    for name in ("a", "b"):
        await kube.create(LEASE, a_lease(namespace, name))
    (added,) = await first(_of(kube.watch(LEASE, resource_version=version), namespace), 1)

    (later,) = await first(_of(kube.watch(LEASE, resource_version=added.resource_version), namespace), 1)
    assert later.raw["metadata"]["name"] == "b"


async def a_watch_is_told_open_first_and_ends_after_its_time(kube: Kube, namespace: str) -> None:
    version = (await kube.list(POD)).resource_version
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with asyncio.timeout(_SECONDS):
        events = [e async for e in kube.watch(POD, resource_version=version, timeout=timedelta(seconds=1))]
    assert events[0].type is WatchType.BOOKMARK
    assert events[0].resource_version == version
    assert 0.5 < loop.time() - began < 15


async def a_version_that_is_too_old_is_gone(kube: Kube, namespace: str) -> None:
    for name in ("a", "b"):
        await kube.create(LEASE, a_lease(namespace, name))
    forget_history(kube)

    await refused(GoneError, first(kube.watch(LEASE, resource_version="1"), 1))


async def an_event_is_recorded_about_namespaced_and_other_objects(kube: Kube, namespace: str) -> None:
    pod = await kube.create(POD, a_pod(namespace, "a"))
    node = await kube.create(NODE, {"metadata": {"name": f"{namespace}-node"}})

    await kube.record(KubeEvent(POD, pod.meta, "Normal", "Nominated", "m"))
    await kube.record(KubeEvent(NODE, node.meta, "Warning", "FailedDraining", "x" * 5000))
    await kube.delete(NODE, f"{namespace}-node")


async def an_unknown_kind_is_not_found(kube: Kube, namespace: str) -> None:
    unknown = raw_kind("Nothing", "example.sawhorse.dev", "v1", "nothings", namespaced=False)
    forget_kind(kube, unknown.name)

    await refused(NotFoundError, kube.list(unknown))


async def the_version_is_a_pair_of_numbers(kube: Kube, namespace: str) -> None:
    major, minor = await kube.server_version()

    assert major == 1
    assert minor >= 30


def forget_history(kube: Kube) -> None:
    """Make old versions be gone: a fake is told to; a server's history begins after its own first objects."""
    compact = getattr(kube, "compact", None)
    if compact is not None:
        compact()


def forget_kind(kube: Kube, name: str) -> None:
    """A fake serves every kind unless told otherwise."""
    missing = getattr(kube, "missing_kinds", None)
    if missing is not None:
        missing.add(name)


async def _of(events: AsyncIterator[WatchEvent], namespace: str) -> AsyncIterator[WatchEvent]:
    """Only the events of one namespace: controllers of a real cluster hold Leases too."""
    async with aclosing(events):  # type: ignore[type-var]  # watches are async generators
        async for event in events:
            if event.type is WatchType.BOOKMARK or event.raw["metadata"].get("namespace") == namespace:
                yield event


CONTRACT: tuple[Contract, ...] = (
    what_is_created_can_be_read_and_listed,
    a_name_that_is_taken_is_told_apart_from_a_conflict,
    a_generated_name_is_completed,
    an_absent_object_is_not_found_whatever_is_asked,
    a_merge_patch_sets_and_null_removes,
    a_patch_with_an_old_version_conflicts_and_changes_nothing,
    a_patch_that_changes_nothing_keeps_the_version,
    a_json_patch_tests_before_it_changes,
    a_strategic_patch_merges_conditions_by_type_and_replaces_taints,
    a_custom_resource_takes_no_strategic_patch,
    a_status_patch_changes_the_status_only_and_others_never_do,
    conditions_are_written_whole_under_a_lock,
    the_manager_of_a_nominated_node_is_told,
    preconditions_guard_a_deletion,
    a_finalizer_keeps_a_deleted_object_until_it_is_removed,
    a_bound_pod_keeps_its_grace_which_may_only_be_shortened,
    a_pod_without_a_node_is_deleted_at_once,
    an_eviction_deletes_this_pod_and_no_other_of_its_name,
    a_watch_tells_what_happens_after_a_list_in_order,
    a_watch_goes_on_from_any_version_it_told,
    a_watch_is_told_open_first_and_ends_after_its_time,
    a_version_that_is_too_old_is_gone,
    an_event_is_recorded_about_namespaced_and_other_objects,
    an_unknown_kind_is_not_found,
    the_version_is_a_pair_of_numbers,
)
