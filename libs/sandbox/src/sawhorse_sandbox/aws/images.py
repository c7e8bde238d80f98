"""The machine images that EKS, Bottlerocket and Windows publish, and the SSM parameters that point to them.

`published_images` is pure: names, dates and ids follow from the lists below and are the same in every process.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

MINORS = tuple(f"1.{minor}" for minor in range(30, 37))
AL2023_VERSIONS = ("v20260915", "v20261020", "v20261118")  # oldest first; the last is recommended
AL2023_VARIANTS = (
    ("x86_64", "standard"),
    ("x86_64", "nvidia"),
    ("x86_64", "neuron"),
    ("arm64", "standard"),
    ("arm64", "nvidia"),
)
BOTTLEROCKET_VERSIONS = (("1.49.0", "20260910"), ("1.50.0", "20261014"), ("1.51.1", "20261112"))
WINDOWS_VERSION = "2026.11.12"
WINDOWS_YEARS = ("2019", "2022", "2025")
FIRST_MINOR_OF_WINDOWS_2025 = 35
EKS_ACCOUNT = "602401143452"
BOTTLEROCKET_ACCOUNT = "092701018921"
WINDOWS_ACCOUNT = "801119661308"


@dataclass(frozen=True, slots=True)
class Image:
    """A published image and the SSM parameters whose value is its id."""

    name: str
    architecture: str  # as EC2 spells it: x86_64, arm64
    created: datetime
    owner: str
    parameters: tuple[str, ...]
    root_device: str = "/dev/xvda"
    windows: bool = False

    @property
    def id(self) -> str:
        """Return the image id; it follows from the name."""
        return "ami-" + hashlib.sha256(self.name.encode()).hexdigest()[:17]


def published_images() -> Iterator[Image]:
    """Yield all images, for every Kubernetes minor in `MINORS`."""
    for minor in MINORS:
        yield from _al2023(minor)
        yield from _bottlerocket(minor)
        yield from _windows(minor)


def publish(ec2: EC2Backend, account: str, region: str) -> None:
    """Register the images in moto's EC2 and their parameters in moto's SSM."""
    parameter: Any = Parameter  # mypy takes it for abstract: moto leaves methods for templates out
    parameters = ssm_backends[account][region]._parameters
    for image in published_images():
        ec2.amis[image.id] = Ami(
            ec2,
            image.id,
            name=image.name,
            description=f"Published image {image.name}",
            owner_id=image.owner,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            hypervisor="xen",
            architecture=image.architecture,
            creation_date=image.created,
            root_device_type="ebs",
            root_device_name=image.root_device,
            platform="windows" if image.windows else None,
            region_name=f"{region}a",
        )
        for name in image.parameters:
            parameters[name] = [
                parameter(
                    account_id=account,
                    name=name,
                    value=image.id,
                    parameter_type="String",
                    description=None,
                    allowed_pattern=None,
                    keyid=None,
                    last_modified_date=image.created,
                    version=1,
                    data_type="text",
                )
            ]


def _al2023(minor: str) -> Iterator[Image]:
    for architecture, variant in AL2023_VARIANTS:
        base = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/{architecture}/{variant}"
        for version in AL2023_VERSIONS:
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{minor}-{version}"
            latest = (f"{base}/recommended/image_id",) if version == AL2023_VERSIONS[-1] else ()
            yield Image(
                name=name,
                architecture=architecture,
                created=_day(version.removeprefix("v")),
                owner=EKS_ACCOUNT,
                parameters=(*latest, f"{base}/{name}/image_id"),
            )


def _bottlerocket(minor: str) -> Iterator[Image]:
    for flavour in ("", "-nvidia"):
        for architecture in ("x86_64", "arm64"):
            base = f"/aws/service/bottlerocket/aws-k8s-{minor}{flavour}/{architecture}"
            for version, day in BOTTLEROCKET_VERSIONS:
                latest = (f"{base}/latest/image_id",) if version == BOTTLEROCKET_VERSIONS[-1][0] else ()
                yield Image(
                    name=f"bottlerocket-aws-k8s-{minor}{flavour}-{architecture}-v{version}",
                    architecture=architecture,
                    created=_day(day),
                    owner=BOTTLEROCKET_ACCOUNT,
                    parameters=(*latest, f"{base}/{version}/image_id"),
                )


def _windows(minor: str) -> Iterator[Image]:
    for year in WINDOWS_YEARS:
        if year == "2025" and int(minor.split(".")[1]) < FIRST_MINOR_OF_WINDOWS_2025:
            continue
        family = f"Windows_Server-{year}-English-Core-EKS_Optimized-{minor}"
        yield Image(
            name=f"{family}-{WINDOWS_VERSION}",
            architecture="x86_64",
            created=_day(WINDOWS_VERSION.replace(".", "")),
            owner=WINDOWS_ACCOUNT,
            parameters=(f"/aws/service/ami-windows-latest/{family}/image_id",),
            root_device="/dev/sda1",
            windows=True,
        )


def _day(text: str) -> datetime:
    return datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC)
