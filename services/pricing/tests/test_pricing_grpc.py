"""The catalogue over gRPC: answers, filters, "not modified", and errors that say what to do."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest
from msgspec import structs

from sawhorse_catalog.account import AccountFacts, PlacementGroup, Reservation
from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.measured import kubelet_hash
from sawhorse_catalog.snapshot import make_snapshot
from sawhorse_catalog.wire import instance_type_from_message
from sawhorse_model.instances import InstanceType, Offering
from sawhorse_pricing.grpc_api import SERVICE_NAME, WATCH_DEADLINES, CatalogApi, add_catalog_service
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower
from sawhorse_pricing.serving import MOST_CLASSES, Catalogue
from sawhorse_proto.catalog.v1 import catalog_pb2 as pb
from sawhorse_proto.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from sawhorse_runtime.errors import InvalidRequestError, RemoteError, UnavailableError
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.rpc import call, channel, grpc_server
from sawhorse_testing.catalog import ZONES, an_ec2_node_class, common_facts, common_fixture, common_prices
from sawhorse_testing.catalog_source import FakeSharedCatalog


@dataclass
class Service:
    """A running server and what is behind it."""

    catalogue: Catalogue
    shared: FakeSharedCatalog
    stub: Any
    metrics: Metrics
    api: CatalogApi

    def load(self, *, types: int = 8, fetched_at: float = 1000.0) -> None:
        self.catalogue.take(
            make_snapshot(common_facts()[:types], ZONES, common_prices(), region="us-west-2", fetched_at=fetched_at)
        )

    async def list(self, *wanted: pb.Requirement, known: str = "") -> pb.ListInstanceTypesResponse:
        request = pb.ListInstanceTypesRequest(known_version=known, requirements=wanted)
        return await call(self.stub.ListInstanceTypes, request)

    async def resolve(self, node_class: dict[str, Any], known: str = "") -> pb.ResolveResponse:
        request = pb.ResolveRequest(node_class_json=json.dumps(node_class).encode(), known_version=known)
        return await call(self.stub.Resolve, request)

    async def report(self, *offerings: tuple[str, str, str], scope: str = "") -> pb.ReportUnavailableResponse:
        messages = [
            pb.UnavailableOffering(
                capacity_type=c, instance_type=t, zone=z, reason="InsufficientInstanceCapacity", scope=scope
            )
            for c, t, z in offerings
        ]
        return await call(self.stub.ReportUnavailable, pb.ReportUnavailableRequest(offerings=messages))


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    metrics, shared = Metrics(), FakeSharedCatalog()
    instruments = Instruments(metrics)
    catalogue = Catalogue(settings=ResolveSettings(require_subnets=True), instruments=instruments)
    follower = Follower(shared, catalogue, report=lambda ready, why: None)
    api = CatalogApi(catalogue=catalogue, shared=shared, follower=follower, instruments=instruments)
    servicers = {SERVICE_NAME: partial(add_catalog_service, api)}
    async with (
        grpc_server("127.0.0.1:0", servicers=servicers, readiness=Readiness(), deadlines=WATCH_DEADLINES) as port,
        channel(f"127.0.0.1:{port}") as connected,
    ):
        made = Service(catalogue, shared, CatalogServiceStub(connected), metrics, api)
        made.load()
        yield made


def a_node_class(
    *zones: str, name: str = "default", generation: int = 1, conditions: list[Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name, "generation": generation},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], **spec},
        "status": {
            "subnets": [{"id": f"subnet-{z}", "zone": z, "zoneID": ZONES[z]} for z in zones],
            "conditions": conditions or [],
        },
    }


def wish(key: str, operator: str, *values: str) -> pb.Requirement:
    return pb.Requirement(key=key, operator=operator, values=values)


def types_of(answer: Any) -> list[InstanceType]:
    return [instance_type_from_message(m) for m in answer.instance_types]


async def test_the_list_holds_every_type_with_prices_in_the_catalogues_currency(service: Service) -> None:
    answer = await service.list()

    assert {t.name: t for t in types_of(answer)} == {t.name: t for t in common_fixture()}
    assert (answer.info.currency, answer.info.fetched_at, answer.info.instance_types) == ("USD", 1000.0, 8)
    assert not answer.info.static_prices


async def test_a_caller_with_the_current_version_gets_not_modified(service: Service) -> None:
    version = (await service.list()).info.version

    again = await service.list(known=version)
    service.load(types=7)
    changed = await service.list(known=version)

    assert (again.not_modified, len(again.instance_types)) == (True, 0)
    assert (changed.not_modified, len(changed.instance_types)) == (False, 7)


async def test_a_newer_fetch_with_the_same_content_is_not_modified_and_shows_its_time(service: Service) -> None:
    version = (await service.list()).info.version

    service.load(fetched_at=2000.0)
    again = await service.list(known=version)

    assert (again.not_modified, again.info.fetched_at) == (True, 2000.0)


async def test_filters_keep_the_types_and_offerings_that_are_asked_for(service: Service) -> None:
    answer = await service.list(
        wish("kubernetes.io/arch", "In", "amd64"),
        wish("karpenter.k8s.aws/instance-cpu", "Gte", "4"),
        wish("karpenter.k8s.aws/instance-cpu", "Lt", "16"),
        wish("karpenter.sh/capacity-type", "In", "spot"),
        wish("topology.kubernetes.io/zone", "In", "us-west-2c"),
        wish("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist"),
    )

    found = types_of(answer)
    assert [t.name for t in found] == ["m6i.xlarge", "r6i.xlarge"]
    assert all({(o.zone, o.capacity_type.value) for o in t.offerings} == {("us-west-2c", "spot")} for t in found)


async def test_a_price_limit_keeps_only_available_offerings_below_it(service: Service) -> None:
    await service.report(("spot", "m7g.large", "us-west-2a"))
    request = pb.ListInstanceTypesRequest(
        max_price=0.04,
        requirements=[wish("kubernetes.io/arch", "In", "arm64"), wish("karpenter.sh/capacity-type", "In", "spot")],
    )

    answer = await call(service.stub.ListInstanceTypes, request)

    (found,) = types_of(answer)
    assert found.name == "m7g.large"
    assert {(o.zone, o.price) for o in found.offerings} == {("us-west-2b", 0.035), ("us-west-2c", 0.035)}


async def test_pages_together_hold_every_type_once_in_order(service: Service) -> None:
    names: list[str] = []
    token = ""
    for _ in range(4):
        page = await call(service.stub.ListInstanceTypes, pb.ListInstanceTypesRequest(page_size=3, page_token=token))
        names += [m.name for m in page.instance_types]
        token = page.next_page_token
        if not token:
            break

    assert names == sorted(t.name for t in common_fixture())


async def test_a_page_goes_on_behind_its_token_after_a_refresh_too(service: Service) -> None:
    first = await call(service.stub.ListInstanceTypes, pb.ListInstanceTypesRequest(page_size=2))
    service.load(types=7)

    second = await call(
        service.stub.ListInstanceTypes, pb.ListInstanceTypesRequest(page_size=9, page_token=first.next_page_token)
    )

    assert all(m.name > first.instance_types[-1].name for m in second.instance_types)
    assert second.next_page_token == ""


@pytest.mark.parametrize("field", [{"max_price": -1.0}, {"max_price": float("nan")}, {"page_size": -1}])
async def test_a_limit_that_makes_no_sense_is_refused_by_its_field(service: Service, field: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(field))):
        await call(service.stub.ListInstanceTypes, pb.ListInstanceTypesRequest(**field))


async def test_a_watch_says_what_is_now_and_each_change(service: Service) -> None:
    stream = service.stub.Watch(pb.WatchRequest(), timeout=20)

    first = await stream.read()
    await service.report(("spot", "m6i.large", "us-west-2a"))
    second = await stream.read()
    service.load(types=7)
    third = await stream.read()
    stream.cancel()

    assert len({first.version, second.version, third.version}) == 3
    assert (first.instance_types, third.instance_types) == (8, 7)
    assert third.version == service.catalogue.version


async def test_a_watch_with_the_current_version_is_silent_until_a_change(service: Service) -> None:
    stream = service.stub.Watch(pb.WatchRequest(known_version=service.catalogue.version), timeout=20)

    read = asyncio.create_task(stream.read(), name="read")  # awaited below
    await call(service.stub.ListInstanceTypes, pb.ListInstanceTypesRequest(known_version=service.catalogue.version))
    silent = not read.done()
    service.load(types=6)
    found = await read
    stream.cancel()

    assert silent
    assert found.instance_types == 6


async def test_watches_end_when_the_service_closes(service: Service) -> None:
    stream = service.stub.Watch(pb.WatchRequest(), timeout=20)
    await stream.read()

    service.api.close()
    end = await stream.read()

    assert end is grpc.aio.EOF
    assert await stream.code() == grpc.StatusCode.OK


async def test_why_a_type_is_not_offered_has_an_answer(service: Service) -> None:
    answer = await service.resolve(a_node_class("us-west-2a", cpuOptions={"nestedVirtualization": "enabled"}))

    assert "m8i.large" not in answer.excluded
    assert answer.excluded["m6i.large"] == (
        "spec.cpuOptions.nestedVirtualization is enabled, its processor does not support it"
    )


def with_reservation(*zones: str) -> dict[str, Any]:
    node_class = a_node_class(*zones)
    node_class["status"]["capacityReservations"] = [
        {"id": "cr-1", "instanceType": "m6i.large", "availabilityZone": "us-west-2a", "ownerID": "123456789012"}
    ]
    return node_class


def reserved_of(answer: Any) -> list[tuple[bool, int]]:
    """Whether reserved offerings are available, and their count."""
    found = [o for t in types_of(answer) for o in t.offerings if o.reservation_id == "cr-1"]
    return [(o.available, o.reservation_count) for o in found]


async def test_free_places_of_a_reservation_are_offered_and_gone_ones_are_not(service: Service) -> None:
    node_class = with_reservation("us-west-2a")
    unknown = await service.resolve(node_class)
    held = Reservation(id="cr-1", instance_type="m6i.large", zone="us-west-2a", free=3)

    service.catalogue.set_account(AccountFacts((held,)))
    offered = await service.resolve(node_class, unknown.info.version)
    service.catalogue.set_account(AccountFacts((structs.replace(held, free=0),)))
    full = await service.resolve(node_class, offered.info.version)

    assert [reserved_of(a) for a in (unknown, offered, full)] == [[(False, 0)], [(True, 3)], [(False, 0)]]
    price = next(o.price for t in types_of(offered) for o in t.offerings if o.reservation_id)
    assert 0 < price < 1e-6


async def test_a_class_with_a_placement_group_is_sold_its_partitions_once_the_group_is_known(service: Service) -> None:
    node_class = a_node_class("us-west-2a", placementGroupSelector={"name": "apart"})
    before = await service.resolve(node_class)

    group = PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=3)
    service.catalogue.set_account(AccountFacts((), (group,)))
    after = await service.resolve(node_class, before.info.version)

    labels = {r.key: list(r.values) for r in after.instance_types[0].requirements}
    assert all(t.cheapest() is None for t in types_of(before))
    assert any(t.cheapest() for t in types_of(after))
    assert labels["karpenter.k8s.aws/placement-group-id"] == ["pg-1"]
    assert sorted(labels["karpenter.k8s.aws/placement-group-partition"]) == ["1", "2", "3"]


async def test_z02_measured_memory_counts_under_its_image_and_kubelet_settings_only(service: Service) -> None:
    node_class = a_node_class("us-west-2a", kubelet={"maxPods": 20})
    node_class["status"]["amis"] = [{"id": "ami-1", "requirements": []}]
    other = {**node_class, "spec": {**node_class["spec"], "kubelet": {"maxPods": 21}}}
    before = await service.resolve(node_class)
    size = 8_000_000_000
    settings = kubelet_hash(node_class["spec"])

    service.catalogue.set_measured({("m6i.large", "ami-1", settings): size, ("r6i.xlarge", "ami-9", settings): size})
    after = await service.resolve(node_class, before.info.version)

    memory = {t.name: t.capacity["memory"] for t in types_of(after)}
    estimate = {t.name: t.capacity["memory"] for t in types_of(before)}
    assert list(after.measured) == ["m6i.large"]
    assert memory == {**estimate, "m6i.large": size}
    assert list((await service.resolve(other)).measured) == []


async def test_a_filter_on_an_unknown_label_finds_nothing(service: Service) -> None:
    answer = await service.list(wish("example.com/team", "In", "a"))

    assert len(answer.instance_types) == 0


async def test_a_filter_that_makes_no_sense_is_refused_by_its_key(service: Service) -> None:
    with pytest.raises(InvalidRequestError, match="a: 'Is' is not an operator; use one of"):
        await service.list(wish("a", "Is"))


async def test_one_type_is_found_by_name_and_another_is_not(service: Service) -> None:
    found = await call(service.stub.GetInstanceType, pb.GetInstanceTypeRequest(name="g5.xlarge"))

    with pytest.raises(RemoteError) as missing:
        await call(service.stub.GetInstanceType, pb.GetInstanceTypeRequest(name="p3.2xlarge"))

    assert instance_type_from_message(found.instance_type).capacity["nvidia.com/gpu"] == 1
    assert (missing.value.code, "'p3.2xlarge'" in str(missing.value)) == (grpc.StatusCode.NOT_FOUND.name, True)


async def test_a_node_class_sees_its_zones_its_sizes_and_its_own_label(service: Service) -> None:
    answer = await service.resolve(a_node_class("us-west-2b", name="web", kubelet={"maxPods": 20}))

    expected = resolve(
        common_facts(),
        an_ec2_node_class({"kubelet": {"maxPods": 20}}, zones={"us-west-2b": "usw2-az2"}),
        common_prices(),
        region="us-west-2",
        zones=ZONES,
    ).instance_types
    assert {t.name: t for t in types_of(answer)} == {t.name: t for t in expected}
    assert dict(answer.node_labels) == {"karpenter.k8s.aws/ec2nodeclass": "web"}


async def test_a_node_class_without_resolved_subnets_has_nothing_to_buy(service: Service) -> None:
    answer = await service.resolve(a_node_class())

    assert len(answer.instance_types) == 8
    assert all(t.cheapest() is None for t in types_of(answer))


async def test_a_node_class_is_not_modified_until_something_that_resolution_reads_changes(service: Service) -> None:
    version = (await service.resolve(a_node_class("us-west-2a"))).info.version

    same = await service.resolve(
        a_node_class("us-west-2a", generation=2, conditions=[{"type": "Ready", "status": "True"}]), version
    )
    other_zone = await service.resolve(a_node_class("us-west-2b"), version)
    other_spec = await service.resolve(a_node_class("us-west-2a", kubelet={"maxPods": 9}), version)

    assert same.not_modified
    assert same.info.version == version
    assert not other_zone.not_modified
    assert not other_spec.not_modified


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "it is not JSON"),
        (b"[]", "it holds no EC2NodeClass"),
        (b'{"kind": "NodePool"}', "it holds no EC2NodeClass"),
        (b'{"spec": {"kubelet": {"maxPods": "many"}}}', "spec.kubelet.maxPods: must be a whole number"),
        (b"[" * 20_000, "it is not JSON"),
    ],
)
async def test_a_node_class_that_cannot_be_read_is_refused_by_its_field(
    service: Service, body: bytes, why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await call(service.stub.Resolve, pb.ResolveRequest(node_class_json=body))


async def test_a_reported_offering_is_unavailable_at_once_and_readers_are_woken(service: Service) -> None:
    version = (await service.list()).info.version

    reported = await service.report(("spot", "m6i.large", "us-west-2a"))
    answer = await service.list(known=version)

    gone = {(o.capacity_type.value, t.name, o.zone) for t in types_of(answer) for o in t.offerings if not o.available}
    assert gone == {("spot", "m6i.large", "us-west-2a")}
    assert reported.version == answer.info.version != version
    assert service.shared.woken == ["offerings-unavailable"]
    assert [(r.reason, r.zone) for r in service.shared.marked] == [("InsufficientInstanceCapacity", "us-west-2a")]


async def test_a_resolved_node_class_loses_a_reported_offering_without_being_resolved_again(service: Service) -> None:
    before = await service.resolve(a_node_class("us-west-2a"))
    await service.report(("on-demand", "g5.xlarge", "us-west-2a"))

    after = await service.resolve(a_node_class("us-west-2a"), before.info.version)

    g5 = next(t for t in types_of(after) if t.name == "g5.xlarge")
    cold = service.metrics.registry.get_sample_value("sawhorse_catalog_resolve_duration_seconds_count")
    assert [(o.capacity_type.value, o.available) for o in g5.offerings] == [("on-demand", False), ("spot", True)]
    assert cold == 1


async def test_a_full_subnet_takes_its_zone_from_the_classes_that_have_no_other_there(service: Service) -> None:
    narrow, elsewhere = a_node_class("us-west-2a", "us-west-2b"), a_node_class("us-west-2a", name="other")
    elsewhere["status"]["subnets"][0]["id"] = "subnet-of-another"
    before = await service.resolve(narrow)

    reported = await service.report(("spot", "*", "us-west-2a"), scope="subnet/subnet-us-west-2a")

    zones = {o.zone for t in types_of(await service.resolve(narrow, before.info.version)) for o in available(t)}
    others = {o.zone for t in types_of(await service.resolve(elsewhere)) for o in available(t)}
    everybody = {o.zone for t in types_of(await service.list()) for o in available(t)}
    assert zones == {"us-west-2b"}
    assert others == {"us-west-2a"}
    assert everybody == set(ZONES)
    assert reported.version != before.info.version


async def test_a_mark_that_does_not_concern_a_class_changes_nothing_for_it(service: Service) -> None:
    here, there = a_node_class("us-west-2a"), a_node_class("us-west-2b", name="there")
    before = {name: await service.resolve(c) for name, c in (("here", here), ("there", there))}
    await service.report(("spot", "*", "us-west-2a"), scope="subnet/subnet-us-west-2a")

    concerned = await service.resolve(here, before["here"].info.version)
    other = await service.resolve(there, before["there"].info.version)
    service.catalogue.set_unavailable(frozenset(), frozenset())
    healed = await service.resolve(here, concerned.info.version)

    assert not concerned.not_modified
    assert not any(available(t) for t in types_of(concerned))
    assert other.not_modified
    assert healed.info.version == before["here"].info.version
    assert any(available(t) for t in types_of(healed))


async def test_a_class_that_this_replica_has_not_resolved_is_never_taken_for_unmodified(service: Service) -> None:
    narrow = a_node_class("us-west-2a")
    known = (await service.resolve(narrow)).info.version
    service.catalogue._entries.clear()  # as another replica, which was told of the mark alone
    service.catalogue.set_unavailable(frozenset(), frozenset({("spot", "*", "us-west-2a", "subnet/subnet-us-west-2a")}))

    answer = await service.resolve(narrow, known)

    assert not answer.not_modified
    assert not any(available(t) for t in types_of(answer))


def available(kind: InstanceType) -> list[Offering]:
    return [o for o in kind.offerings if o.available]


async def test_an_empty_report_changes_nothing(service: Service) -> None:
    version = (await service.list()).info.version

    assert (await service.report()).version == version
    assert service.shared.woken == []


@pytest.mark.parametrize(
    ("offering", "field"),
    [
        (("Spot", "m6i.large", "us-west-2a"), r"offerings\[0\].capacity_type"),
        (("spot", "", "us-west-2a"), r"offerings\[0\].instance_type"),
        (("spot", "m6i.large", "a:b"), r"offerings\[0\].zone"),
        (("spot", "*", "us-west-2a"), r"offerings\[0\].instance_type"),
    ],
)
async def test_a_report_that_makes_no_sense_marks_nothing(
    service: Service, offering: tuple[str, str, str], field: str
) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        await service.report(offering)

    assert service.shared.marked == []


async def test_a_scope_that_is_none_is_refused(service: Service) -> None:
    with pytest.raises(InvalidRequestError, match=r"offerings\[0\].scope: 'somewhere' is no scope"):
        await service.report(("spot", "m6i.large", "us-west-2a"), scope="somewhere")


async def test_without_a_catalogue_every_question_says_to_wait() -> None:
    instruments = Instruments(Metrics())
    empty = Catalogue(settings=ResolveSettings(), instruments=instruments)
    shared = FakeSharedCatalog()
    follower = Follower(shared, empty, report=lambda ready, why: None)
    api = CatalogApi(catalogue=empty, shared=shared, follower=follower, instruments=instruments)

    questions = [
        api.ListInstanceTypes(pb.ListInstanceTypesRequest(), None),
        api.GetInstanceType(pb.GetInstanceTypeRequest(name="m5.large"), None),
        api.Resolve(pb.ResolveRequest(node_class_json=b"{}", known_version="x"), None),
    ]

    for question in questions:
        with pytest.raises(UnavailableError, match="not loaded yet"):
            await question


async def test_calls_for_the_same_cold_node_class_share_the_work(service: Service) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(service.resolve(a_node_class("us-west-2a")))

    assert service.metrics.registry.get_sample_value("sawhorse_catalog_resolve_duration_seconds_count") == 1


async def test_only_so_many_node_classes_stay_resolved() -> None:
    metrics = Metrics()
    catalogue = Catalogue(settings=ResolveSettings(), instruments=Instruments(metrics))
    catalogue.take(make_snapshot(common_facts()[:1], ZONES, common_prices(), region="us-west-2", fetched_at=1.0))

    for index in range(MOST_CLASSES + 1):
        await catalogue.resolve(None, str(index))
    await catalogue.resolve(None, str(MOST_CLASSES))
    await catalogue.resolve(None, "0")

    count = metrics.registry.get_sample_value("sawhorse_catalog_resolve_duration_seconds_count")
    assert count == MOST_CLASSES + 2


async def test_replicas_with_the_same_knowledge_name_the_same_version_and_other_settings_another() -> None:
    snapshot = make_snapshot(common_facts(), ZONES, common_prices(), region="us-west-2", fetched_at=1.0)

    def version(*, overhead: float = 0.075) -> str:
        catalogue = Catalogue(settings=ResolveSettings(overhead), instruments=Instruments(Metrics()))
        catalogue.take(snapshot)
        catalogue.set_unavailable(frozenset({("spot", "a", "b"), ("spot", "c", "d")}))
        return catalogue.version

    assert version() == version()
    assert version() != version(overhead=0.08)
