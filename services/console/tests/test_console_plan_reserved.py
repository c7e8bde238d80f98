"""`sawhorse plan` with capacity reservations: the catalogue's counts, the NodeClass's list, claims on their way."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_console.plan_command import run_plan

REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"nodeClassRef": REF}}},
}
RESOURCES = {"requests": {"cpu": "3", "memory": "1Gi"}}


def a_deployment(replicas: int) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "x", "resources": RESOURCES}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }


def a_class(*held: str, **spec: Any) -> dict[str, Any]:
    entries = [{"id": key, "instanceType": "m6i.xlarge", "availabilityZone": "us-west-2a"} for key in held]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r", **spec},
        "status": {"capacityReservations": entries} if held else {},
    }


def a_catalog(**counts: int) -> dict[str, Any]:
    offerings: list[dict[str, Any]] = [{"zone": "us-west-2a", "capacityType": "on-demand", "price": 0.192}]
    offerings += [
        {
            "zone": "us-west-2a",
            "capacityType": "reserved",
            "price": 0.0,
            "reservationId": key.replace("_", "-"),
            "reservationCount": count,
        }
        for key, count in counts.items()
    ]
    kind = {
        "name": "m6i.xlarge",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "58"},
        "offerings": offerings,
    }
    return {"apiVersion": "sawhorse.dev/v1", "kind": "Catalog", "instanceTypes": [kind]}


def plan(folder: Path, catalog: dict[str, Any] | None, *objects: dict[str, Any]) -> dict[str, Any]:
    file, prices, out = folder / "in.yaml", folder / "catalog.json", io.StringIO()
    file.write_text(yaml.safe_dump_all(json.loads(json.dumps(objects))))
    prices.write_text(json.dumps(catalog))
    path = prices if catalog is not None else None
    run_plan([file], catalog=path, output="json", strict=False, stdout=out, stderr=io.StringIO())
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def used(plan: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(node.get("reservationId", node["capacityType"]) for node in plan["newNodes"]))


def test_reservations_of_the_catalogue_are_used_to_the_instance_and_the_rest_is_bought(tmp_path: Path) -> None:
    found = plan(tmp_path, a_catalog(cr_1=2, cr_2=1), POOL, a_deployment(5))

    assert used(found) == {"cr-1": 2, "cr-2": 1, "on-demand": 2}
    assert {node["capacityType"] for node in found["newNodes"]} == {"reserved", "on-demand"}
    assert found["cost"]["pricePerHour"] == pytest.approx(0.384)


def test_of_the_catalogues_reservations_those_that_the_node_class_has_count(tmp_path: Path) -> None:
    found = plan(tmp_path, a_catalog(cr_1=2, cr_2=2), POOL, a_class("cr-2"), a_deployment(3))

    assert used(found) == {"cr-2": 2, "on-demand": 1}


def test_a_claim_without_a_machine_has_its_instance_already(tmp_path: Path) -> None:
    wants = [
        {"key": "karpenter.k8s.aws/capacity-reservation-id", "operator": "In", "values": ["cr-1"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]},
    ]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "default-x", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"nodeClassRef": REF, "requirements": wants},
    }

    found = plan(tmp_path, a_catalog(cr_1=2), POOL, claim, a_deployment(3))

    assert [len(node["pods"]) for node in found["existingNodes"]] == [1]
    assert used(found) == {"cr-1": 1, "on-demand": 1}


def test_a_status_alone_does_not_tell_what_is_free_and_that_is_said(tmp_path: Path) -> None:
    found = plan(tmp_path, None, POOL, a_class("cr-1"), a_deployment(1))

    assert [node["capacityType"] for node in found["newNodes"]] != ["reserved"]
    assert any("files do not tell how many instances of cr-1 are free" in warning for warning in found["warnings"])


def test_a_node_class_that_selects_no_reservation_is_doubted(tmp_path: Path) -> None:
    silent = plan(tmp_path, a_catalog(cr_1=1), POOL, a_class(), a_deployment(1))
    asking = plan(
        tmp_path, a_catalog(cr_1=1), POOL, a_class(capacityReservationSelectorTerms=[{"id": "cr-1"}]), a_deployment(1)
    )

    assert used(silent) == used(asking) == {"cr-1": 1}
    assert any("it has no capacityReservationSelectorTerms" in warning for warning in silent["warnings"])
    assert not any("capacityReservationSelectorTerms" in warning for warning in asking["warnings"])


def test_a_reservation_without_a_count_is_not_counted_on(tmp_path: Path) -> None:
    catalog = a_catalog(cr_1=0)

    found = plan(tmp_path, catalog, POOL, a_deployment(1))

    assert used(found) == {"on-demand": 1}
