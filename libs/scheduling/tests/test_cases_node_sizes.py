"""Cases about node sizes, to the plan that follows from them: how many nodes, and what a pod that fits none is told."""

from collections.abc import Mapping, Sequence
from typing import Any

from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import WELL_KNOWN
from sawhorse_model.resources import PODS, parse_resources
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import PodGroup, Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import a_group, a_pool
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type
from sawhorse_testing.checker import check_plan

MIB = 2**20
OPTIONS = SolveOptions(
    well_known=WELL_KNOWN | aws.WELL_KNOWN,
    exotic=frozenset({aws.NVIDIA_GPU}),
    exotic_labels=aws.EXOTIC_LABELS,
    hints=aws.HINTS,
)


def resolved(
    facts: Sequence[InstanceFacts],
    spec: Mapping[str, Any] | None = None,
    measured: Mapping[str, int] | None = None,
    **settings: Any,
) -> tuple[InstanceType, ...]:
    """These types under a NodeClass with this spec, each at one dollar an hour."""
    return resolve(
        facts,
        an_ec2_node_class({"amiFamily": "AL2023", **(spec or {})}),
        PriceBook(on_demand={f.name: 1.0 for f in facts}),
        region="us-east-1",
        zones={},
        settings=ResolveSettings(**settings),
        measured_memory=measured or {},
    ).instance_types


def plan_of(group: PodGroup, types: Sequence[InstanceType]) -> Plan:
    """The plan for these pods on a pool of these types, after the independent checker has looked at it."""
    snapshot = Snapshot(options=OPTIONS, pods=(group,), pools=(a_pool(types),))
    plan = solve(snapshot)
    assert check_plan(snapshot, plan) == []
    return plan


def told(plan: Plan) -> str:
    """All reasons, one a line."""
    return "\n".join(f"{r.code}: {r.message}" for entry in plan.unschedulable for r in entry.reasons)


def test_z01_four_pods_need_two_nodes_by_estimate_and_one_once_the_type_was_measured() -> None:
    big = an_ec2_type("r5.24xlarge", memory_mib=1048576, vcpus=128)
    pods = a_group(count=4, cpu="31", memory="240954Mi")
    # What the system sees, so that 1007423 Mi are left for pods.
    kept = resolved([big])[0]
    seen = 1007423 * MIB + kept.capacity["memory"] - kept.allocatable["memory"]

    estimated = plan_of(pods, resolved([big]))
    measured = plan_of(pods, resolved([big], measured={big.name: seen}))

    assert len(estimated.new_nodes) == 2
    assert [len(n.pods) for n in measured.new_nodes] == [4]
    assert measured.new_nodes[0].allocatable["memory"] == 1007423 * MIB


def test_z04_a_pod_that_fits_beside_the_hard_threshold_fits_whatever_the_soft_one_is() -> None:
    hard = {"evictionHard": {"memory.available": "500Mi"}}
    soft = {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}
    m5 = an_ec2_type("m5.large")
    # 7577 Mi less 574 Mi of the kubelet's and 500 Mi.
    exactly, more = a_group(memory="6503Mi"), a_group(memory="6504Mi")

    assert len(plan_of(exactly, resolved([m5], {"kubelet": {**hard, **soft}})).new_nodes) == 1
    assert plan_of(more, resolved([m5], {"kubelet": {**hard, **soft}})).new_nodes == ()


def test_z05_sixty_small_pods_are_on_one_node_with_prefix_delegation_and_on_three_without() -> None:
    m5 = an_ec2_type("m5.large")  # 3 interfaces of 10 addresses
    pods = a_group(count=60, cpu="20m", memory="32Mi")

    with_prefixes = plan_of(pods, resolved([m5], prefix_delegation=True))
    without = plan_of(pods, resolved([m5]))

    assert [len(n.pods) for n in with_prefixes.new_nodes] == [60]
    assert with_prefixes.new_nodes[0].allocatable[PODS] == 110
    assert sorted(len(n.pods) for n in without.new_nodes) == [2, 29, 29]


DISK_100 = {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}]}
DISK_20 = {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}]}


def test_z07_a_pod_as_large_as_the_volume_launches_nothing_and_is_told_what_the_volume_gives() -> None:
    pods = a_group(more=parse_resources({"ephemeral-storage": "100Gi"}))

    plan = plan_of(pods, resolved([an_ec2_type("m5.large")], DISK_100))

    assert plan.new_nodes == ()
    assert "ephemeral-storage 100Gi is asked, 89Gi is there of 100Gi; raise volumeSize in the NodeClass's" in told(plan)


def test_z08_only_types_with_local_disks_serve_a_pod_under_raid0_and_without_it_the_policy_is_named() -> None:
    pods = a_group(more=parse_resources({"ephemeral-storage": "500Gi"}))
    disks, plain = an_ec2_type("m5d.24xlarge"), an_ec2_type("m5.24xlarge")

    raid = plan_of(pods, resolved([disks, plain], {**DISK_20, "instanceStorePolicy": "RAID0"}))
    without = plan_of(pods, resolved([disks, plain], DISK_20))

    assert [n.instance_types for n in raid.new_nodes] == [("m5d.24xlarge",)]
    assert without.new_nodes == ()
    assert "let local disks count with instanceStorePolicy: RAID0" in told(without)


def test_g05_a_pool_of_both_types_plans_the_one_with_the_feature_and_a_pool_without_any_is_explained() -> None:
    enabled = {"cpuOptions": {"nestedVirtualization": "enabled"}}
    m6i, m8i = an_ec2_type("m6i.large"), an_ec2_type("m8i.large")

    both = plan_of(a_group(cpu="1"), resolved([m6i, m8i], enabled))
    none = plan_of(a_group(cpu="1"), resolved([m6i], enabled))

    assert [n.instance_types for n in both.new_nodes] == [("m8i.large",)]
    assert none.new_nodes == ()
    assert "NoOffering: m6i.large has no available offering" in told(none)
