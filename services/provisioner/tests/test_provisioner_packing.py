"""Snapshots on their way to the worker, and types on their way from the catalogue: the same, and only once."""

import pickle
from dataclasses import replace
from typing import Any

from sawhorse_catalog.wire import instance_type_to_message
from sawhorse_cloud.errors import FailedOffering
from sawhorse_kube.kinds import nodeclass_kind
from sawhorse_model.instances import InstanceType
from sawhorse_proto.catalog.v1 import catalog_pb2
from sawhorse_provisioner.alike import Alike
from sawhorse_provisioner.catalog_client import CatalogClient
from sawhorse_provisioner.packing import Packer, Unpacker
from sawhorse_scheduling.snapshot import ExistingNode, Pool, Snapshot
from sawhorse_testing.builders import a_group, a_pod, a_pool
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud_worlds import an_ec2_node_class

SMALL, LARGE = an_instance_type("m5.large"), an_instance_type("m5.xlarge", cpu="4")
CLASS = nodeclass_kind("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses")


def a_snapshot(types: tuple[InstanceType, ...], *, in_flight: tuple[InstanceType, ...] = ()) -> Snapshot:
    """Two pools of one class, and a claim that may become some types."""
    pools = tuple(Pool(a_pool(name).nodepool, types) for name in ("a", "b"))
    node = ExistingNode("claim-1", {}, {"cpu": 1}, claim="claim-1", instance_types=in_flight)
    return Snapshot(pods=(a_group("web", 2),), pools=pools, nodes=(node,))


def test_what_the_worker_gets_is_the_snapshot() -> None:
    packer, unpacker = Packer(), Unpacker()
    foreign = an_instance_type("r5.large")
    for snapshot in (
        a_snapshot((SMALL, LARGE), in_flight=(LARGE,)),
        a_snapshot((SMALL, LARGE), in_flight=(LARGE, SMALL)),
        a_snapshot((LARGE,), in_flight=(foreign,)),
        Snapshot(),
    ):
        packed = pickle.loads(pickle.dumps(packer.pack(snapshot)))

        assert unpacker.unpack(packed) == snapshot


def test_a_type_travels_once_and_then_only_what_has_changed() -> None:
    packer, types = Packer(), (SMALL, LARGE)
    changed = replace(LARGE, offerings=())

    first = packer.pack(a_snapshot(types, in_flight=(SMALL,)))
    second = packer.pack(a_snapshot((SMALL, LARGE), in_flight=(SMALL,)))
    third = packer.pack(a_snapshot((SMALL, changed)))

    assert [len(p.new) for p in (first, second, third)] == [2, 0, 1]
    assert list(third.new.values()) == [changed]
    assert all(not pool.instance_types for pool in second.snapshot.pools)
    assert second.snapshot.nodes[0].instance_types == ()


def test_types_out_of_use_are_forgotten_at_both_ends_and_come_again() -> None:
    packer, unpacker = Packer(most_known=5), Unpacker()
    lists = [(SMALL, an_instance_type(f"m{n}.large")) for n in range(5, 30)]
    for types in (*lists, lists[0]):
        snapshot = a_snapshot(types)

        assert unpacker.unpack(packer.pack(snapshot)) == snapshot
    assert len(unpacker._types) <= 6


def test_equal_bound_pods_are_one_object_and_others_are_not() -> None:
    alike = Alike()
    alike.begin()
    one, same, other = (replace(a_pod(n), node_name="n") for n in ("a", "b", "c"))
    other = replace(other, meta=replace(other.meta, labels={"x": "y"}))

    found = alike.of([one, same, other])

    assert found[0] is found[1]
    assert found[2] is other


def test_what_stands_for_a_pod_stays_the_same_from_snapshot_to_snapshot_until_the_pod_changes() -> None:
    alike = Alike()
    pod = replace(a_pod("a"), node_name="n")
    alike.begin()
    (first,) = alike.of([replace(pod)])
    alike.begin()
    (second,) = alike.of([pod])
    alike.begin()
    (changed,) = alike.of([replace(pod, ready=True)])

    assert second is first
    assert changed.ready


class Stub:
    """The catalogue service; `types` and `version` are what it has."""

    def __init__(self) -> None:
        self.types, self.version = [SMALL, LARGE], "1"
        self.asked: list[Any] = []
        self.reported: list[Any] = []

    async def Resolve(self, request: Any, timeout: float) -> Any:
        self.asked.append(request)
        info = catalog_pb2.CatalogInfo(version=self.version)
        if request.known_version == self.version:
            return catalog_pb2.ResolveResponse(info=info, not_modified=True)
        messages = [instance_type_to_message(t) for t in self.types]
        return catalog_pb2.ResolveResponse(info=info, instance_types=messages, node_labels={"a": "b"})

    async def ReportUnavailable(self, request: Any, timeout: float) -> Any:
        self.reported += request.offerings
        return catalog_pb2.ReportUnavailableResponse()


async def test_an_unchanged_catalogue_is_not_read_again() -> None:
    stub = Stub()
    client = CatalogClient(stub, CLASS)

    first = await client.resolve(an_ec2_node_class())
    second = await client.resolve(an_ec2_node_class())

    assert second is first
    assert [r.known_version for r in stub.asked] == ["", "1"]
    assert first.instance_types == (SMALL, LARGE)
    assert first.node_labels == {"a": "b"}


async def test_a_changed_class_is_asked_anew_whatever_the_version() -> None:
    stub = Stub()
    client = CatalogClient(stub, CLASS)
    await client.resolve(an_ec2_node_class())

    await client.resolve(an_ec2_node_class(status={"subnets": []}))

    assert [r.known_version for r in stub.asked] == ["", ""]


async def test_a_condition_that_changes_is_no_reason_to_read_the_types_again() -> None:
    stub = Stub()
    client = CatalogClient(stub, CLASS)
    first = await client.resolve(an_ec2_node_class())

    second = await client.resolve(an_ec2_node_class(ready=False))

    assert second is first
    assert [r.known_version for r in stub.asked] == ["", "1"]


async def test_types_that_a_new_version_leaves_as_they_were_are_the_same_objects() -> None:
    stub = Stub()
    client = CatalogClient(stub, CLASS)
    before = await client.resolve(an_ec2_node_class())
    sold_out = replace(LARGE, offerings=tuple(replace(o, available=False) for o in LARGE.offerings))
    stub.types, stub.version = [SMALL, sold_out], "2"

    after = await client.resolve(an_ec2_node_class())

    assert after.instance_types[0] is before.instance_types[0]
    assert after.instance_types[1] == sold_out


async def test_failed_offerings_are_reported_and_nothing_is_not() -> None:
    stub = Stub()
    client = CatalogClient(stub, CLASS)

    await client.report_unavailable([])
    await client.report_unavailable([FailedOffering("spot", "m5.large", "a", "InsufficientInstanceCapacity")])

    (offering,) = stub.reported
    assert (offering.capacity_type, offering.instance_type, offering.zone) == ("spot", "m5.large", "a")
    assert offering.reason == "InsufficientInstanceCapacity"
