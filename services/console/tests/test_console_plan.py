"""`sawhorse plan`: the contract's JSON, the table, exit codes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_console.manifests_input import read_manifests
from sawhorse_console.plan_command import run_plan
from sawhorse_console.plan_snapshot import build_snapshot

POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
        }
    },
}
CATALOG = {
    "apiVersion": "sawhorse.dev/v1",
    "kind": "Catalog",
    "currency": "USD",
    "instanceTypes": [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
            "labels": {},
            "offerings": [
                {"zone": zone, "capacityType": "on-demand", "price": price, "available": True}
                for zone in ("us-west-2a", "us-west-2b", "us-west-2c")
            ],
        }
        for name, cpu, memory, price in (("m6i.large", "2", "8Gi", 0.1), ("m6i.4xlarge", "16", "64Gi", 0.8))
    ],
}


def a_template(cpu: str = "500m", **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}


def a_workload(kind: str = "Deployment", name: str = "web", replicas: int = 2, **fields: Any) -> dict[str, Any]:
    version = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    count = {} if kind == "Job" else {"replicas": replicas}
    spec = {**count, "template": a_template(), **fields}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


class Command:
    """Runs the command on objects written to files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = folder / "catalog.json"
        self.catalog.write_text(json.dumps(CATALOG))
        self.out, self.err = "", ""

    def run(self, *objects: Any, output: str = "json", strict: bool = False, text: str | None = None) -> int:
        file = self.folder / "input.yaml"
        file.write_text(yaml.safe_dump_all(objects) if text is None else text)
        return self.files(file, output=output, strict=strict)

    def files(self, *files: Path, output: str = "json", strict: bool = False) -> int:
        stdout, stderr = io.StringIO(), io.StringIO()
        code = run_plan(
            files,
            catalog=self.catalog,
            output=output,
            strict=strict,
            stdout=stdout,
            stderr=stderr,
        )
        self.out, self.err = stdout.getvalue(), stderr.getvalue()
        return code

    @property
    def plan(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.out)
        return result

    def placed(self) -> list[str]:
        nodes = self.plan["newNodes"] + self.plan["existingNodes"]
        return sorted(pod for node in nodes for pod in node["pods"])


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_the_json_has_the_contracts_fields_and_nothing_else(command: Command) -> None:
    code = command.run(POOL, a_workload(), a_workload(name="huge", template=a_template("99")))

    plan = command.plan
    assert code == 1
    assert list(plan) == [
        "apiVersion", "kind", "newNodes", "existingNodes", "unschedulable", "cost", "stats", "warnings",
    ]  # fmt: skip
    assert (plan["apiVersion"], plan["kind"]) == ("sawhorse.dev/v1", "Plan")
    assert list(plan["newNodes"][0]) == [
        "name", "nodePool", "instanceType", "instanceTypes", "zone", "capacityType", "pricePerHour",
        "expectedPricePerHour", "worstPricePerHour", "pods", "requests", "daemonRequests", "allocatable",
    ]  # fmt: skip
    assert list(plan["unschedulable"][0]) == ["pod", "message", "reasons"]
    assert list(plan["unschedulable"][0]["reasons"][0]) == ["nodePool", "code", "message"]
    assert list(plan["cost"]) == ["pricePerHour", "expectedPricePerHour", "lowerBoundPerHour", "gap"]
    assert list(plan["stats"]) == [
        "pods", "classes", "instanceTypes", "firstSeconds", "firstPricePerHour", "solveSeconds",
    ]  # fmt: skip


def test_all_placed_is_exit_0_and_the_node_is_told_whole(command: Command) -> None:
    code = command.run(POOL, a_workload())

    (node,) = command.plan["newNodes"]
    assert code == 0
    assert node["pods"] == ["default/web-0", "default/web-1"]
    assert (node["instanceType"], node["pricePerHour"], node["capacityType"]) == ("m6i.large", 0.1, "on-demand")
    assert node["requests"] == {"cpu": "1", "memory": "256Mi", "pods": "2"}
    assert command.plan["cost"]["pricePerHour"] == 0.1


def test_something_unschedulable_is_exit_1_and_says_why_per_pod(command: Command) -> None:
    code = command.run(POOL, a_workload(name="huge", template=a_template("99")))

    entries = command.plan["unschedulable"]
    assert code == 1
    assert [e["pod"] for e in entries] == ["default/huge-0", "default/huge-1"]
    assert entries[0]["reasons"][0]["code"] == "InsufficientResources"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"])
def test_replicas_of_every_workload_are_expanded(command: Command, kind: str) -> None:
    command.run(POOL, a_workload(kind, replicas=3))

    assert command.placed() == ["default/web-0", "default/web-1", "default/web-2"]


def test_a_workload_without_replicas_has_one(command: Command) -> None:
    workload = a_workload()
    del workload["spec"]["replicas"]

    command.run(POOL, workload)

    assert command.placed() == ["default/web-0"]


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 4, "suspend": True}, 0),
    ],
)
def test_a_job_counts_the_pods_that_run_at_a_time(command: Command, fields: dict[str, Any], pods: int) -> None:
    command.run(POOL, a_workload("Job", **fields))

    assert len(command.placed()) == pods


TEMPLATES = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}}]


def a_storage_class(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def a_topology(zone: str) -> list[dict[str, Any]]:
    return [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": [zone]}]}]


def test_a_stateful_set_whose_storage_class_is_not_given_is_reported_not_placed_without_it(command: Command) -> None:
    code = command.run(POOL, a_workload("StatefulSet", volumeClaimTemplates=TEMPLATES))

    assert code == 1
    assert {r["code"] for e in command.plan["unschedulable"] for r in e["reasons"]} == {"VolumeClaimUnbound"}


@pytest.mark.parametrize("named", [True, False])
def test_the_claims_that_a_stateful_set_will_make_are_planned_for(command: Command, named: bool) -> None:
    spec = {"accessModes": ["ReadWriteOnce"]} | ({"storageClassName": "gp3"} if named else {})
    templates = [{"metadata": {"name": "data"}, "spec": spec}]
    zone = "us-west-2b"

    code = command.run(
        POOL,
        a_storage_class(allowedTopologies=a_topology(zone)),
        a_workload("StatefulSet", volumeClaimTemplates=templates),
    )

    assert code == 0
    assert {n["zone"] for n in command.plan["newNodes"]} == {zone}


def test_a_pod_is_planned_where_its_given_volume_is(command: Command) -> None:
    zone = "us-west-2b"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv-1"},
        "status": {"phase": "Bound"},
    }
    term = {"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [zone]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-1"},
        "spec": {
            "csi": {"driver": "ebs.csi.aws.com"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
    web = a_workload("Deployment")
    web["spec"]["template"]["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]

    code = command.run(POOL, claim, volume, web)

    assert code == 0
    assert {n["zone"] for n in command.plan["newNodes"]} == {zone}


def a_live_pod(name: str, owner: str, node: str = "", kind: str = "ReplicaSet") -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [reference]},
        "spec": {**a_template()["spec"], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending"},
    }


def a_raw_node(name: str = "n1", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def test_live_pods_count_and_their_owners_only_fill_up(command: Command) -> None:
    replica_set = a_workload("ReplicaSet", name="web-5f", replicas=3)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    replica_set["metadata"]["ownerReferences"] = [owner]
    live = [a_live_pod("web-5f-a", "web-5f", "n1"), a_live_pod("web-5f-b", "web-5f")]

    command.run(POOL, a_raw_node(), a_workload(replicas=4), replica_set, *live)

    assert command.placed() == ["default/web-0", "default/web-1", "default/web-5f-b"]


def test_a_deployment_knows_its_pods_without_its_replica_set(command: Command) -> None:
    command.run(POOL, a_raw_node(), a_workload(replicas=2), a_live_pod("web-5f-a", "web-5f", "n1"))

    assert command.placed() == ["default/web-0"]


def test_a_stateful_sets_missing_pods_get_free_names(command: Command) -> None:
    live = a_live_pod("web-0", "web", "n1", kind="StatefulSet")

    command.run(POOL, a_raw_node(), a_workload("StatefulSet", replicas=3), live)

    assert command.placed() == ["default/web-1", "default/web-2"]


def test_two_workloads_of_one_name_do_not_share_pod_names(command: Command) -> None:
    command.run(POOL, a_workload("Deployment", replicas=2), a_workload("StatefulSet", replicas=1))

    assert command.placed() == ["default/web-0", "default/web-1", "default/web-2"]


def test_pods_go_to_existing_nodes_first(command: Command) -> None:
    command.run(POOL, a_raw_node(), a_workload(replicas=9))

    assert [(n["name"], len(n["pods"])) for n in command.plan["existingNodes"]] == [("n1", 8)]
    assert len(command.plan["newNodes"]) == 1


def test_a_cordoned_or_leaving_node_takes_nothing(command: Command) -> None:
    leaving = a_raw_node("n2")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"

    command.run(POOL, a_raw_node(unschedulable=True), leaving, a_workload())

    assert command.plan["existingNodes"] == []


def test_pods_of_a_leaving_node_want_a_new_place(command: Command) -> None:
    leaving = a_raw_node("n2")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"

    command.run(POOL, leaving, a_live_pod("web-5f-a", "web-5f", "n2"))

    assert command.placed() == ["default/web-5f-a"]


def test_a_claim_in_flight_takes_pods_and_counts_for_limits(command: Command) -> None:
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "default-x", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "nodeClassRef": POOL["spec"]["template"]["spec"]["nodeClassRef"],
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.large"]}],
        },
    }
    limited = {**POOL, "spec": {**POOL["spec"], "limits": {"cpu": "4"}}}

    code = command.run(limited, claim, a_workload(replicas=9))

    assert code == 1
    assert [(n["name"], len(n["pods"])) for n in command.plan["existingNodes"]] == [("default-x", 4)]
    assert [len(n["pods"]) for n in command.plan["newNodes"]] == [4]


def test_daemons_are_added_to_new_nodes(command: Command) -> None:
    command.run(POOL, a_workload("DaemonSet", name="agent"), a_workload())

    assert command.plan["newNodes"][0]["daemonRequests"]["cpu"] == "500m"


def test_gated_and_ended_pods_are_not_planned(command: Command) -> None:
    gated, ended = a_live_pod("gated", "x"), a_live_pod("ended", "x")
    gated["spec"]["schedulingGates"] = [{"name": "wait"}]
    ended["status"]["phase"] = "Succeeded"

    code = command.run(POOL, gated, ended)

    assert (code, command.placed()) == (0, [])
    assert any("scheduling gates" in w for w in command.plan["warnings"])


def test_a_node_class_that_is_not_given_counts_as_ready_with_a_warning(command: Command) -> None:
    command.run(POOL, a_workload())

    assert any("EC2NodeClass default is not among the files" in w for w in command.plan["warnings"])


def test_a_node_class_with_resolved_subnets_has_only_their_zones(command: Command) -> None:
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r"},
        "status": {"subnets": [{"id": "subnet-1", "zone": "us-west-2b", "zoneID": "usw2-az2"}]},
    }

    command.run(POOL, node_class, a_workload())

    assert {n["zone"] for n in command.plan["newNodes"]} == {"us-west-2b"}


def test_without_any_pool_everything_is_reported(command: Command) -> None:
    code = command.run(a_workload())

    assert code == 1
    assert {r["code"] for e in command.plan["unschedulable"] for r in e["reasons"]} == {"NoPool"}


def test_the_table_tells_price_nodes_and_who_has_no_place(command: Command) -> None:
    code = command.run(POOL, a_workload(), a_workload(name="huge", template=a_template("99")), output="table")

    assert code == 1
    assert "m6i.large" in command.out
    assert "1 new node, 0.1000 USD an hour" in command.out
    assert "no place for default/huge-0 and 1 more" in command.out
    assert "(InsufficientResources)" in command.out


def test_a_million_replicas_are_planned_without_a_million_objects(command: Command) -> None:
    class Nothing:
        def resolve(self, node_class: object) -> Any:
            raise AssertionError("no pool asks for types")

    file = command.folder / "many.json"
    file.write_text(json.dumps(a_workload(replicas=1_000_000)))
    snapshot, _ = build_snapshot(read_manifests([file]), Nothing())

    (group,) = snapshot.pods
    assert group.count == 1_000_000
    assert group.names[999_999] == "default/web-999999"
    assert group.names[1:3] == ("default/web-1", "default/web-2")


def test_the_built_in_catalogue_says_what_it_assumes(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [POOL, a_workload()]}))
    stdout = io.StringIO()

    code = run_plan([file], catalog=None, output="json", strict=False, stdout=stdout, stderr=io.StringIO())

    plan = json.loads(stdout.getvalue())
    assert code == 0
    assert plan["stats"]["instanceTypes"] > 700
    assert any("spot is assumed at 40%" in w for w in plan["warnings"])
