"""The cluster's default spread: how its configuration is read and which selector a pod gets."""

from dataclasses import replace

import pytest

from sawhorse_model.cluster import Service, Workload
from sawhorse_model.labels import ZONE
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.pod import SCHEDULE_ANYWAY, Pod, TopologySpread
from sawhorse_scheduling.defaults import deduced_selector, parse_default_spread, with_default_spread
from sawhorse_scheduling.snapshot import PodGroup, Snapshot, SolveOptions
from sawhorse_testing.builders import a_group, a_pod, a_selector, a_spread


def config(constraints: str) -> str:
    return f'{{"podTopologySpread": {{"defaultConstraints": {constraints}}}}}'


def test_an_empty_setting_is_no_default() -> None:
    assert parse_default_spread("") == ()


def test_a_constraint_is_read_with_its_policies() -> None:
    found = parse_default_spread(
        config(f'[{{"maxSkew": 2, "topologyKey": "{ZONE}", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}}]')
    )

    assert found == (TopologySpread(2, ZONE, SCHEDULE_ANYWAY, min_domains=3),)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "no JSON"),
        ('{"other": 1}', "other"),
        (config("1"), "defaultConstraints"),
        (config('[{"maxSkew": 0, "topologyKey": "z"}]'), "maxSkew"),
        (config('[{"maxSkew": 1}]'), "topologyKey"),
        (config('[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "Never"}]'), "whenUnsatisfiable"),
        (config('[{"maxSkew": 1, "topologyKey": "z", "labelSelector": {}}]'), "labelSelector"),
        (config('[{"maxSkew": 1, "topologyKey": "z", "matchLabelKeys": []}]'), "matchLabelKeys"),
        (config('[{"maxSkew": 1, "topologyKey": "z", "nodeTaintsPolicy": "x"}]'), "nodeTaintsPolicy"),
        (config('[{"maxSkew": 1, "topologyKey": "z", "minDomains": 0}]'), "minDomains"),
        (config('[{"maxSkew": 1, "topologyKey": "z"}, {"maxSkew": 2, "topologyKey": "z"}]'), "twice"),
    ],
)
def test_a_wrong_setting_names_the_field(text: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        parse_default_spread(text)


def owned(kind: str, **labels: str) -> Pod:
    pod = a_pod("p", labels=labels)
    owner = OwnerReference("apps/v1", kind, "owner", "u", controller=True)
    return replace(pod, meta=replace(pod.meta, owners=(owner,)))


def selector_of(pod: Pod, *things: Service | Workload) -> dict[str, tuple[str, ...]] | None:
    snapshot = Snapshot(services=tuple(t for t in things if isinstance(t, Service)))
    owners = {(t.kind, t.meta.key): t for t in things if isinstance(t, Workload)}
    found = deduced_selector(pod, snapshot, owners)
    return None if found is None else {e.key: e.values for e in found.expressions}


def test_services_that_select_the_pod_make_its_selector_together() -> None:
    services = [
        Service(ObjectMeta("a", "default"), {"app": "web"}),
        Service(ObjectMeta("b", "default"), {"tier": "front"}),
        Service(ObjectMeta("c", "default"), {"app": "db"}),
        Service(ObjectMeta("d", "other"), {"team": "x"}),
        Service(ObjectMeta("e", "default"), None),
    ]

    found = selector_of(a_pod("p", labels={"app": "web", "tier": "front", "team": "x"}), *services)

    assert found == {"app": ("web",), "tier": ("front",)}


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_the_owners_selector_counts(kind: str) -> None:
    workload = Workload(ObjectMeta("owner", "default"), kind, 3, a_selector(app="web"))

    assert selector_of(owned(kind, app="web"), workload) == {"app": ("web",)}


def test_an_owner_of_another_kind_adds_nothing() -> None:
    assert selector_of(owned("Job", app="web")) is None


def test_pods_with_a_spread_of_their_own_and_pods_nobody_selects_are_left_alone() -> None:
    own: PodGroup = a_group("own", spread=(a_spread(),))
    alone = a_group("alone")
    snapshot = Snapshot(pods=(own, alone), options=SolveOptions(default_spread=(TopologySpread(1, ZONE),)))

    assert with_default_spread(snapshot).pods == (own, alone)
