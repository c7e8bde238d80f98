"""The exact requests with which a NodeClass is looked up, in files: one for each kind of selector term.

`UPDATE_GOLDEN=1 pytest …` writes the files anew; read the difference before committing it. Together with the golden
files of launches they hold every field of the CRD: see `test_aws_golden.py`.
"""

import json
import os
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from sawhorse_cloud_aws.account import PlacementGroups
from sawhorse_cloud_aws.amis import AmiFinder
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.dry_runs import DryRunMode, DryRuns
from sawhorse_cloud_aws.node_class import NodeClassResolver
from sawhorse_cloud_aws.profiles import InstanceProfiles
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.survey import InstanceTypeSurveyor
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_testing.cloud_worlds import an_ec2_node_class

GOLDEN = Path(__file__).parent / "golden" / "lookups"
CLUSTER = ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36")
NOW = datetime(2026, 11, 1, tzinfo=UTC)
# What a service answers where an empty answer would stop the look-up.
ANSWERS: Mapping[str, Any] = {"GetParameter": {"Parameter": {"Value": "ami-1"}}}
MISSING = {"GetInstanceProfile": "NoSuchEntity"}

CASES: Mapping[str, Mapping[str, Any]] = {
    "subnets-by-tags": {"subnetSelectorTerms": [{"tags": {"team": "a", "zone": "*"}}, {"tags": {"Name": "nodes-*"}}]},
    "subnets-by-id": {"subnetSelectorTerms": [{"id": "subnet-2"}, {"id": "subnet-1"}, {"tags": {"team": "a"}}]},
    "security-groups": {
        "securityGroupSelectorTerms": [{"id": "sg-1"}, {"name": "nodes"}, {"name": "more"}, {"tags": {"team": "a"}}]
    },
    "images-by-alias": {"amiSelectorTerms": [{"alias": "al2023@v20250101"}]},
    "images-by-term": {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [
            {"id": "ami-9"},
            {"ssmParameter": "/team/image"},
            {"name": "node-*"},
            {"name": "node-*", "owner": "123456789012"},
            {"tags": {"team": "a"}},
        ],
    },
    "profile-for-a-role": {"role": "team/node-role", "tags": {"team": "a"}},
    "profile-of-the-user": {"role": None, "instanceProfile": "mine"},
    "capacity-reservations": {
        "capacityReservationSelectorTerms": [
            {"id": "cr-1"},
            {"tags": {"team": "a"}, "ownerID": "123456789012"},
            {"instanceMatchCriteria": "open"},
        ]
    },
    "placement-group-by-name": {"placementGroupSelector": {"name": "near"}},
    "placement-group-by-id": {"placementGroupSelector": {"id": "pg-1"}},
}


class Recorder:
    """A client that notes what it is asked for, checks it as the SDK does, and finds nothing."""

    def __init__(self, service: str, asked: list[dict[str, Any]]) -> None:
        self._model = botocore.session.Session().get_service_model(service)
        self._operations = {xform_name(name): name for name in self._model.operation_names}
        self._asked = asked

    def __getattr__(self, method: str) -> Any:
        operation = self._operations[method]

        async def answer(**request: Any) -> Any:
            self._note(operation, request)
            if operation in MISSING:
                raise ClientError({"Error": {"Code": MISSING[operation], "Message": ""}}, operation)
            return ANSWERS.get(operation, {})

        return answer

    def get_paginator(self, method: str) -> Any:
        recorder, operation = self, self._operations[method]

        class Pages:
            def paginate(self, **request: Any) -> AsyncIterator[Any]:
                recorder._note(operation, {k: v for k, v in request.items() if k != "PaginationConfig"})
                return _nothing()

        return Pages()

    def _note(self, operation: str, request: Mapping[str, Any]) -> None:
        shape = self._model.operation_model(operation).input_shape
        report = ParamValidator().validate(dict(request), shape)
        assert not report.has_errors(), report.generate_report()
        self._asked.append({operation: dict(request)})


async def _nothing() -> AsyncIterator[Any]:
    for page in ():
        yield page


async def _no_types() -> list[Any]:
    return []


async def requests_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is asked for a NodeClass with these fields, in order."""
    asked: list[dict[str, Any]] = []
    ec2, ssm, iam = (Recorder(service, asked) for service in ("ec2", "ssm", "iam"))
    resolver = NodeClassResolver(
        ec2=ec2,
        amis=AmiFinder(ec2=ec2, ssm=ssm, minor="1.36", clock=lambda: NOW),
        profiles=InstanceProfiles(iam=iam, cluster="demo", region="us-west-2"),
        subnets=SubnetPicker(monotonic=lambda: 0.0),
        cluster=CLUSTER,
        groups=PlacementGroups(ec2=ec2, monotonic=lambda: 0.0),
        surveyor=InstanceTypeSurveyor(fetch=_no_types, monotonic=lambda: 0.0),
        dry_runs=DryRuns(ec2=ec2, cluster=CLUSTER, region="us-west-2", mode=DryRunMode.OFF, monotonic=lambda: 0.0),
        clock=lambda: NOW,
    )
    fields = {"role": "node-role", **spec}
    await resolver.resolve(parse_ec2_node_class(an_ec2_node_class(spec=fields, uid="uid-1")))
    return asked


@pytest.mark.parametrize("name", sorted(CASES))
async def test_a_look_up_asks_for_exactly_what_its_golden_file_says(name: str) -> None:
    file = GOLDEN / f"{name}.json"

    found = {"spec": CASES[name], "requests": await requests_of(CASES[name])}

    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(file.read_text())


def test_every_golden_file_of_a_look_up_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)
