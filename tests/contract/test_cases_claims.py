"""Every NodeClaim that comes of a plan is one that an API server takes: the CRD's own rules judge it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sawhorse_console.validate.crds import custom_kinds
from sawhorse_console.validate.judge import judge
from sawhorse_model import aws
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, WELL_KNOWN, ZONE
from sawhorse_model.manifests import nodeclaim_to_raw
from sawhorse_model.taints import Taint
from sawhorse_provisioner.claims import claim_from_plan, claim_name
from sawhorse_provisioner.main import AWS_WORDS
from sawhorse_scheduling.snapshot import PodGroup, Pool, Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import (
    a_group,
    a_pool,
    a_spread,
    a_term,
    a_wish,
    an_expression,
    keep_apart,
    keep_near,
)
from sawhorse_testing.catalog import common_fixture
from sawhorse_testing.checker import check_plan

OPTIONS = SolveOptions(well_known=WELL_KNOWN | aws.WELL_KNOWN, exotic=frozenset({aws.NVIDIA_GPU}))
CPU, FAMILY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-family"


def hard(*expressions: Any) -> PodGroup:
    return a_group(count=3, required_terms=(a_term(*expressions),))


PODS: dict[str, Sequence[PodGroup]] = {
    "plain": [a_group(count=5)],
    "numbers": [hard(an_expression(CPU, "Gt", "1"), an_expression(CPU, "Lt", "17"), an_expression(CPU, "NotIn", "4"))],
    "at least": [hard(an_expression(CPU, "Gte", "2"), an_expression(CPU, "Lte", "4"))],
    "exclusions": [hard(an_expression(FAMILY, "NotIn", "m6i"), an_expression("team", "NotIn", "b"))],
    "own labels": [hard(an_expression("team", "In", "a", "b"), an_expression("tier", "Exists"))],
    "absent labels": [hard(an_expression("karpenter.sh/provisioner-name", "DoesNotExist"))],
    "retired labels": [a_group(preferred_terms=(a_wish(1, an_expression("karpenter.sh/provisioner-name", "Exists")),))],
    "old names": [a_group(node_selector={"failure-domain.beta.kubernetes.io/zone": "us-west-2a"})],
    "zones": [a_group(count=6, spread=(a_spread(),))],
    "hosts": [a_group(count=3, spread=(a_spread(HOSTNAME),))],
    "apart": [a_group(count=3, anti_affinity=(keep_apart(),))],
    "near": [a_group(count=3, affinity=(keep_near(),))],
    "capacity types": [a_group(node_selector={CAPACITY_TYPE: "spot"})],
    "pool label": [a_group(node_selector={NODEPOOL: "default"})],
    "one type": [a_group(node_selector={INSTANCE_TYPE: "m6i.xlarge"})],
    "accelerator": [a_group(more={aws.NVIDIA_GPU: 1})],
    "fractions": [a_group(cpu="1m", memory="1")],
    "large numbers": [a_group(cpu="15", memory="50Gi")],
}
MIN_VALUES = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=2)
POOLS: dict[str, Pool] = {
    "plain": a_pool(
        common_fixture(),
        labels={"tier": "front"},
        requirements=[an_expression("team", "In", "a", "b")],
        taints=(Taint("example.com/soft", "PreferNoSchedule", "x"),),
    ),
    "ranges and minValues": a_pool(
        common_fixture(),
        labels={"tier": ""},
        requirements=[MIN_VALUES, an_expression("team", "NotIn", "c"), an_expression("shard", "Gt", "3")],
    ),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("pods", PODS.values(), ids=PODS)
def test_a_claim_that_comes_of_a_plan_is_taken_by_an_api_server(pods: Sequence[PodGroup], pool: Pool) -> None:
    snapshot = Snapshot(pods=tuple(pods), pools=(pool,), options=OPTIONS)
    plan = solve(snapshot)
    assert check_plan(snapshot, plan) == []
    claims = [
        claim_from_plan(node, pool.nodepool, {}, AWS_WORDS, name=claim_name(node.nodepool)) for node in plan.new_nodes
    ]

    verdicts = [judge(custom_kinds()["NodeClaim"], nodeclaim_to_raw(claim)) for claim in claims]

    assert [finding for verdict in verdicts for finding in verdict.errors] == []
    assert [field for verdict in verdicts for field in verdict.unknown_fields] == []
    placed = sum(len(node.pods) for node in plan.new_nodes)
    assert placed + sum(len(left.pods) for left in plan.unschedulable) == sum(group.count for group in pods)
    assert placed or {reason.code for left in plan.unschedulable for reason in left.reasons} <= {"MinValuesNotMet"}
    assert {node.zone for node in plan.new_nodes} <= {"us-west-2a", "us-west-2b", "us-west-2c"}
    assert ZONE in OPTIONS.well_known
