"""The exact requests of a launch, in files: what EC2 is asked for, for each field of a NodeClass that is supported.

`UPDATE_GOLDEN=1 pytest …` writes the files anew; read the difference before committing it.
"""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator

from sawhorse_catalog.account import PlacementGroup
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.fleet import FleetLauncher
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.templates import LaunchTemplates
from sawhorse_model.aws import PLACEMENT_GROUP_PARTITION, TENANCY, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import ARCH
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_model.taints import Taint
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud_worlds import a_claim, an_ec2_node_class

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36")
SDK = botocore.session.Session()
SDK.get_component("data_loader").search_paths.append(str(files("sawhorse_cloud_aws") / "botocore_data"))
MODEL = SDK.get_service_model("ec2")
CRD = Path(__file__).resolve().parents[3] / "deploy" / "crds" / "karpenter.k8s.aws_ec2nodeclasses.yaml"
CRD_SPEC: dict[str, Any] = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
    "properties"
]["spec"]


class RecordingEc2:
    """Takes CreateLaunchTemplate and CreateFleet, checks them as the SDK does, and launches nothing."""

    def __init__(self) -> None:
        self.templates: list[dict[str, Any]] = []
        self.fleets: list[dict[str, Any]] = []

    async def create_launch_template(self, **request: Any) -> dict[str, Any]:
        _validate("CreateLaunchTemplate", request)
        self.templates.append(request)
        return {}

    async def create_fleet(self, **request: Any) -> dict[str, Any]:
        _validate("CreateFleet", request)
        self.fleets.append(request)
        override = request["LaunchTemplateConfigs"][0]["Overrides"][0]
        count = request["TargetCapacitySpecification"]["TotalTargetCapacity"]
        ids = [f"i-{n}" for n in range(count)]
        return {"Instances": [{"InstanceIds": ids, "LaunchTemplateAndOverrides": {"Overrides": override}}]}


def _validate(operation: str, request: Mapping[str, Any]) -> None:
    report = ParamValidator().validate(request, MODEL.operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()


@dataclass(frozen=True)
class Case:
    """What is special about a launch; the rest is as the builders have it."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    claim: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[InstanceType, ...] = ()
    claims: int = 1
    cluster: ClusterFacts = CLUSTER
    region: str = "us-west-2"


LARGE = an_instance_type("m5.large", price=0.1, spot_price=0.04, pods="29", zones=("us-west-2a", "us-west-2b"))
XLARGE = an_instance_type("m5.xlarge", price=0.2, spot_price=0.08, pods="58", zones=("us-west-2a",))
ARM = an_instance_type("m6g.large", price=0.09, spot_price=0.03, pods="29", architecture="arm64")
EFA_4 = an_instance_type("p4d.24xlarge", price=21.0, spot_price=8.0, extra={"vpc.amazonaws.com/efa": "4"})
EFA_32 = an_instance_type("p5.48xlarge", price=55.0, spot_price=20.0, extra={"vpc.amazonaws.com/efa": "32"})
IPV6 = ClusterFacts("demo", "https://demo.example", "Q0E=", "fd12:3456::/108", "1.36")
ON_DEMAND = {"capacity_types": ["on-demand"]}
GROUPS = {
    "near": PlacementGroup(id="pg-1", name="near", strategy="cluster"),
    "apart": PlacementGroup(id="pg-2", name="apart", strategy="partition", partitions=7),
}
DEVICES = [
    {
        "deviceName": "/dev/xvda",
        "rootVolume": True,
        "ebs": {
            "volumeSize": "100Gi",
            "volumeType": "io2",
            "iops": 5000,
            "encrypted": True,
            "deleteOnTermination": True,
            "kmsKeyID": "arn:aws:kms:us-west-2:111122223333:key/1",
        },
    },
    {
        "deviceName": "/dev/xvdb",
        "ebs": {
            "snapshotID": "snap-1",
            "volumeType": "gp3",
            "throughput": 250,
            "deleteOnTermination": False,
            "volumeInitializationRate": 200,
        },
    },
]
KUBELET = {
    "maxPods": 20,
    "podsPerCore": 5,
    "clusterDNS": ["10.9.9.9"],
    "systemReserved": {"cpu": "100m"},
    "kubeReserved": {"memory": "300Mi"},
    "evictionHard": {"memory.available": "5%"},
    "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}
SCRIPT = "#!/bin/bash\necho hello\n"


def _family(alias: str, **spec: Any) -> Case:
    return Case(spec={"amiSelectorTerms": [{"alias": alias}], **spec})


def _reserved(kind: str, *ids: str) -> Case:
    """A launch into reservations of a kind, one in each zone."""
    zones = ("us-west-2a", "us-west-2b")
    entries = [
        {"id": r, "instanceType": "m5.large", "availabilityZone": z, "reservationType": kind, "ownerID": "123456789012"}
        for r, z in zip(ids, zones, strict=False)
    ]
    offerings = tuple(
        Offering(z, CapacityType.RESERVED, 1e-8, reservation_id=r, reservation_count=2)
        for r, z in zip(ids, zones, strict=False)
    )
    return Case(
        spec={"capacityReservationSelectorTerms": [{"tags": {"team": "a"}}]},
        status={"capacityReservations": entries},
        claim={"capacity_types": ["reserved", "on-demand"]},
        types=(replace(LARGE, offerings=(*LARGE.offerings, *offerings)),),
    )


CASES: dict[str, Case] = {
    "spot": Case(),
    "on-demand-fleet-of-three": Case(claim=ON_DEMAND, claims=3),
    "templates-by-image-and-pods": Case(types=(LARGE, XLARGE, ARM)),
    "labels-and-taints": Case(
        claim={
            "labels": {"team": "a", ARCH: "amd64"},
            "taints": [Taint("gpu", "NoSchedule", "yes")],
            "startup_taints": [Taint("cilium", "NoExecute")],
        }
    ),
    "dedicated-tenancy": Case(claim={"requirements": [RequirementSpec(TENANCY, Operator.IN, ("dedicated",))]}),
    "block-devices": Case(spec={"blockDeviceMappings": DEVICES}),
    "metadata-options": Case(
        spec={
            "metadataOptions": {
                "httpEndpoint": "disabled",
                "httpProtocolIPv6": "enabled",
                "httpPutResponseHopLimit": 3,
                "httpTokens": "optional",
            }
        }
    ),
    "metadata-options-isolated-region": Case(region="us-iso-east-1"),
    "public-address": Case(spec={"associatePublicIPAddress": True}),
    "no-public-address": Case(spec={"associatePublicIPAddress": False}),
    "detailed-monitoring": Case(spec={"detailedMonitoring": True}),
    "tags": Case(spec={"tags": {"team": "a", "Name": "nodes"}}),
    "context": Case(spec={"context": "reserved-by-ec2"}),
    "instance-store-raid0": Case(spec={"instanceStorePolicy": "RAID0"}),
    "kubelet": Case(spec={"kubelet": KUBELET}, types=(LARGE, XLARGE)),
    "user-data-al2023": Case(spec={"userData": SCRIPT}),
    "family-al2023": _family("al2023@v20250101"),
    "family-custom": Case(
        spec={"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}], "userData": SCRIPT}, types=(LARGE, XLARGE)
    ),
    "family-al2": _family("al2@v20241109"),
    "family-al2-kubelet": _family("al2@v20241109", kubelet=KUBELET, instanceStorePolicy="RAID0", userData=SCRIPT),
    "family-bottlerocket": _family("bottlerocket@latest"),
    "family-bottlerocket-kubelet": _family(
        "bottlerocket@1.45.0",
        kubelet={k: v for k, v in KUBELET.items() if k != "podsPerCore"},
        instanceStorePolicy="RAID0",
        userData="[settings.kubernetes]\nlog-level = 3\nmax-pods = 1\n",
    ),
    "family-windows2019": _family("windows2019@latest"),
    "family-windows2022": _family("windows2022@latest", kubelet=KUBELET, userData="Write-Host hello"),
    "family-windows2025": _family("windows2025@latest"),
    "ipv6-cluster": Case(cluster=IPV6, spec={"ipPrefixCount": 1}),
    "prefix-count": Case(spec={"ipPrefixCount": 2}),
    "connection-tracking": Case(
        spec={"connectionTracking": {"tcpEstablishedTimeout": "350s", "udpStreamTimeout": 180, "udpTimeout": 30}}
    ),
    "network-interfaces": Case(
        spec={
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface"},
            ],
            "ipPrefixCount": 1,
            "associatePublicIPAddress": False,
            "connectionTracking": {"udpTimeout": 30},
        }
    ),
    "efa": Case(types=(EFA_4, EFA_32, LARGE), claim={"requests": {"cpu": "1", "vpc.amazonaws.com/efa": "1"}}),
    "enclaves": Case(
        types=(an_instance_type("m5.xlarge", price=0.2, extra={"eks.amazonaws.com/nitro-sandbox": "1"}),),
        claim={"requests": {"cpu": "1", "eks.amazonaws.com/nitro-sandbox": "1"}, **ON_DEMAND},
    ),
    "placement-group": Case(spec={"placementGroupSelector": {"name": "near"}}),
    "placement-group-partition": Case(
        spec={"placementGroupSelector": {"name": "apart"}},
        claim={"requirements": [RequirementSpec(PLACEMENT_GROUP_PARTITION, Operator.IN, ("3",))]},
        types=(an_instance_type(spot_price=0.04, labels={PLACEMENT_GROUP_PARTITION: "3"}),),
    ),
    "capacity-reservations": _reserved("default", "cr-1", "cr-2"),
    "capacity-block": _reserved("capacity-block", "cr-1"),
    "capacity-reservations-open-elsewhere": Case(
        spec={"capacityReservationSelectorTerms": [{"tags": {"team": "a"}}]}, claim=ON_DEMAND
    ),
    "nested-virtualization-enabled": Case(spec={"cpuOptions": {"nestedVirtualization": "enabled"}}),
    "nested-virtualization-disabled": Case(spec={"cpuOptions": {"nestedVirtualization": "disabled"}}),
    "cpu-options-empty": Case(spec={"cpuOptions": {}}),
    "cpu-options-core-count": Case(
        spec={"cpuOptions": {"coreCount": 4, "nestedVirtualization": "enabled"}},
        types=(
            an_instance_type("c8i.2xlarge", cpu="8", price=0.3, spot_price=0.1),
            an_instance_type("c8g.xlarge", cpu="4", price=0.2, spot_price=0.09, architecture="arm64"),
        ),
    ),
    "cpu-options-threads-per-core": Case(
        spec={"cpuOptions": {"threadsPerCore": 1}},
        types=(
            an_instance_type("m8i.xlarge", cpu="2", price=0.2, spot_price=0.08),
            an_instance_type("m8i.2xlarge", cpu="4", price=0.4, spot_price=0.16),
        ),
    ),
}


async def _requests(case: Case) -> dict[str, Any]:
    ec2 = RecordingEc2()
    launcher = FleetLauncher(
        ec2=ec2,
        templates=LaunchTemplates(ec2=ec2, cluster="demo", monotonic=lambda: 0.0),
        subnets=SubnetPicker(monotonic=lambda: 0.0),
        find=_nothing,
        group_of=_group,
        cluster=case.cluster,
        region=case.region,
    )
    claims = [a_claim(f"default-{n}", **case.claim) for n in range(case.claims)]
    node_class = parse_ec2_node_class(an_ec2_node_class(spec=case.spec, status=case.status))

    result = await launcher.launch("token-1", claims, node_class, case.types or (LARGE,))

    assert len(result.launched) == case.claims
    (fleet,) = ec2.fleets
    return {"CreateLaunchTemplate": _readable(ec2.templates), "CreateFleet": _readable(fleet)}


async def _group(node_class: EC2NodeClass) -> PlacementGroup | None:
    return GROUPS.get(node_class.node_class.spec.get("placementGroupSelector", {}).get("name", ""))


async def _nothing(token: str) -> list[Any]:
    return []


def _readable(value: Any) -> Any:
    """The same for the eye: lists of tags as maps, user data as its lines."""
    if isinstance(value, list):
        return [_readable(v) for v in value]
    if not isinstance(value, dict):
        return value
    shown = {k: _readable(v) for k, v in value.items()}
    if "Tags" in value:
        shown["Tags"] = {tag["Key"]: tag["Value"] for tag in value["Tags"]}
    if "UserData" in value:
        shown["UserData"] = base64.b64decode(value["UserData"]).decode().splitlines()
    return shown


@pytest.mark.parametrize("name", sorted(CASES))
async def test_a_launch_asks_for_exactly_what_its_golden_file_says(name: str) -> None:
    file = GOLDEN / f"{name}.json"

    requests = await _requests(CASES[name])

    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(json.dumps(requests, indent=1, sort_keys=True) + "\n")
    assert requests == json.loads(file.read_text())


@pytest.mark.parametrize(
    ("shape", "field"),
    [("LaunchTemplateCpuOptionsRequest", "NestedVirtualization"), ("CapacityReservation", "Interruptible")],
)
def test_the_sdk_still_needs_our_addition_to_its_model(shape: str, field: str) -> None:
    plain = botocore.session.Session().get_service_model("ec2").shape_for(shape)

    # Fails once the pinned SDK has the field: then it goes from botocore_data, and from this test.
    assert field not in plain.members
    assert field in MODEL.shape_for(shape).members


def _leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields of a schema that hold no other fields."""
    if "items" in schema:
        yield from _leaves(schema["items"], path)
    elif schema.get("properties"):
        for name, inner in schema["properties"].items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path


def _written(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields in a spec, of their parents too."""
    yield path
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _written(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _written(inner, path)


def test_every_field_of_the_crd_has_a_golden_file_of_a_launch_or_of_a_look_up() -> None:
    look_ups = [json.loads(file.read_text())["spec"] for file in (GOLDEN / "lookups").glob("*.json")]
    held = {path for spec in (*(case.spec for case in CASES.values()), *look_ups) for path in _written(spec)}

    missing = [field for field in _leaves(CRD_SPEC) if field not in held]

    assert missing == []


def test_every_image_family_has_a_golden_file_of_a_launch() -> None:
    families = {parse_ec2_node_class(an_ec2_node_class(spec=case.spec)).ami_family for case in CASES.values()}

    assert families == set(CRD_SPEC["properties"]["amiFamily"]["enum"])


def test_every_golden_file_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)
