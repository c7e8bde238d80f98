"""Machine images: from the selector terms of an EC2NodeClass to the images that boot its nodes."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import call, chunks, error_code, pages
from sawhorse_model.aws import ACCELERATOR_COUNT, GPU_COUNT, Ami, EC2NodeClass, SelectorTerm
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import ARCH, OS, WINDOWS_BUILD
from sawhorse_model.requirements import Operator, Requirements, RequirementSpec

_ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
_WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}
_SSM_MISSING = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class UnsupportedAliasError(CloudError):
    """The alias names a family that has no images for this Kubernetes version."""

    reason = "UnsupportedAlias"


def _variant(kind: str) -> tuple[RequirementSpec, ...]:
    if kind == "nvidia":
        return (RequirementSpec(GPU_COUNT, Operator.EXISTS),)
    if kind == "neuron":
        return (RequirementSpec(ACCELERATOR_COUNT, Operator.EXISTS),)
    return (
        RequirementSpec(ACCELERATOR_COUNT, Operator.DOES_NOT_EXIST),
        RequirementSpec(GPU_COUNT, Operator.DOES_NOT_EXIST),
    )


def _arch(name: str) -> RequirementSpec:
    return RequirementSpec(ARCH, Operator.IN, (_ARCHES[name],))


def minor_version(text: str) -> str:
    """`1.36` of a Kubernetes version such as `v1.36.3-eks-1` or `1.36+`.

    Raises:
        CloudError: not a version.
    """
    found = _VERSION.match(text.strip())
    if found is None:
        raise CloudError(
            f"{text!r} is not a Kubernetes version such as 1.36",
            reason="ClusterFactsMissing",
            action="Set --kubernetes-version.",
        )
    return f"{int(found[1])}.{int(found[2])}"


def alias_parameters(alias: str, minor: str) -> list[tuple[str, tuple[tuple[RequirementSpec, ...], ...]]]:
    """SSM parameter paths of an alias, each with the requirement sets its image serves.

    Args:
        alias: `family@version`.
        minor: the cluster's version, e.g. `1.36`.
    Raises:
        UnsupportedAliasError: the family has no images for that version.
    """
    family, _, version = alias.partition("@")
    number = int(minor.partition(".")[2])
    recommended = version == "latest"
    root = "/aws/service/eks/optimized-ami"
    if family == "al2023":
        found: list[tuple[str, tuple[tuple[RequirementSpec, ...], ...]]] = []
        for arch, kinds in (("x86_64", ("standard", "nvidia", "neuron")), ("arm64", ("standard", "nvidia"))):
            for kind in kinds:
                name = "recommended" if recommended else f"amazon-eks-node-al2023-{arch}-{kind}-{minor}-{version}"
                path = f"{root}/{minor}/amazon-linux-2023/{arch}/{kind}/{name}/image_id"
                found.append((path, ((_arch(arch), *_variant(kind)),)))
        return found
    if family == "al2":
        if number >= 33:
            raise UnsupportedAliasError(f"alias {alias} has no images for Kubernetes {minor}", action="Use al2023.")
        rows = (
            ("amazon-linux-2", "node", "x86_64", ("standard",)),
            ("amazon-linux-2-arm64", "arm64-node", "arm64", ("standard",)),
            ("amazon-linux-2-gpu", "gpu-node", "x86_64", ("nvidia", "neuron")),
        )
        return [
            (
                f"{root}/{minor}/{folder}/"
                + ("recommended" if recommended else f"amazon-eks-{node}-{minor}-{version}")
                + "/image_id",
                tuple((_arch(arch), *_variant(kind)) for kind in kinds),
            )
            for folder, node, arch, kinds in rows
        ]
    if family == "bottlerocket":
        wanted = version.removeprefix("v")
        plain = f"/aws/service/bottlerocket/aws-k8s-{minor}"
        return [
            (
                f"{plain}/x86_64/{wanted}/image_id",
                ((_arch("x86_64"), *_variant("standard")), (_arch("x86_64"), *_variant("neuron"))),
            ),
            (f"{plain}/arm64/{wanted}/image_id", ((_arch("arm64"), *_variant("standard")),)),
            (f"{plain}-nvidia/x86_64/{wanted}/image_id", ((_arch("x86_64"), *_variant("nvidia")),)),
            (f"{plain}-nvidia/arm64/{wanted}/image_id", ((_arch("arm64"), *_variant("nvidia")),)),
        ]
    year = family.removeprefix("windows")
    if family.startswith("windows") and year in _WINDOWS_BUILDS:
        if year == "2025" and number < 35:
            raise UnsupportedAliasError(f"alias {alias} needs Kubernetes 1.35 or later, the cluster runs {minor}")
        path = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{minor}/image_id"
        build = RequirementSpec(WINDOWS_BUILD, Operator.IN, (_WINDOWS_BUILDS[year],))
        return [(path, ((_arch("x86_64"), RequirementSpec(OS, Operator.IN, ("windows",)), build),))]
    raise UnsupportedAliasError(f"alias {alias}: no such family", action="Use al2023, bottlerocket, al2 or windows….")


class AmiFinder:
    """Looks images up. `ssm` and `ec2` are SDK clients, `minor` the cluster's version, `clock` gives the time."""

    def __init__(self, *, ec2: Any, ssm: Any, minor: str, clock: Callable[[], datetime]) -> None:
        self._ec2 = ec2
        self._ssm = ssm
        self._minor = minor
        self._clock = clock

    async def find(self, node_class: EC2NodeClass) -> tuple[Ami, ...]:
        """The images of a NodeClass: of each requirement set the best, newest first, then by id.

        Raises:
            UnsupportedAliasError: see `alias_parameters`.
            CloudError: a look-up failed.
        """
        candidates: list[tuple[Mapping[str, Any], tuple[RequirementSpec, ...]]] = []
        if node_class.alias:
            served: dict[str, list[tuple[RequirementSpec, ...]]] = {}
            for path, sets in alias_parameters(node_class.alias, self._minor):
                image_id = await self._parameter(path)
                if image_id:
                    served.setdefault(image_id, []).extend(sets)
            for image in await self._describe_ids(sorted(served)):
                candidates.extend((image, requirements) for requirements in served[image["ImageId"]])
        else:
            for image in await self._by_terms(node_class.ami_terms):
                arch = image.get("Architecture", "")
                if arch in _ARCHES:
                    candidates.append((image, (_arch(arch),)))
        return best_images(candidates, self._clock())

    async def _by_terms(self, terms: Sequence[SelectorTerm]) -> list[Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        ids = [t.id for t in terms if t.id]
        for term in terms:
            if term.ssm_parameter:
                image_id = await self._parameter(term.ssm_parameter)
                ids += [image_id] if image_id else []
        for image in await self._describe_ids(sorted(set(ids))):
            found[image["ImageId"]] = image
        for term in terms:
            if term.id or term.ssm_parameter or not (term.name or term.tags):
                continue
            filters = [{"Name": "state", "Values": ["available"]}]
            if term.name:
                filters.append({"Name": "name", "Values": [term.name]})
            filters += tag_filters(term.tags)
            owners = [term.owner] if term.owner else (["self", "amazon"] if term.name else [])
            arguments: dict[str, Any] = {"Filters": filters, "IncludeDeprecated": True}
            if owners:
                arguments["Owners"] = owners
            for image in await pages("DescribeImages", self._ec2, "describe_images", "Images", **arguments):
                found[image["ImageId"]] = image
        return list(found.values())

    async def _describe_ids(self, ids: Sequence[str]) -> list[Mapping[str, Any]]:
        images: list[Mapping[str, Any]] = []
        for part in chunks(ids):
            # By filter, not by ImageIds: one id that is gone must not fail the others.
            filters = [{"Name": "image-id", "Values": part}, {"Name": "state", "Values": ["available"]}]
            images += await pages(
                "DescribeImages", self._ec2, "describe_images", "Images", Filters=filters, IncludeDeprecated=True
            )
        return images

    async def _parameter(self, path: str) -> str:
        try:
            answer = await call("GetParameter", self._ssm.get_parameter, Name=path)
        except CloudError as error:
            if error_code(error) in _SSM_MISSING:
                return ""
            raise
        value = str(answer["Parameter"]["Value"])
        return value if value.startswith("ami-") else ""


def best_images(
    candidates: Sequence[tuple[Mapping[str, Any], tuple[RequirementSpec, ...]]], now: datetime
) -> tuple[Ami, ...]:
    """Of images with equal requirements keep the best: not deprecated, then newest, then greater name.

    Order: newest first, then by id. An image is deprecated from its DeprecationTime on; public ones carry one that
    lies years ahead.
    """
    best: dict[tuple[RequirementSpec, ...], Mapping[str, Any]] = {}
    for image, requirements in candidates:
        present = best.get(requirements)
        if present is None or _rank(image, now) > _rank(present, now):
            best[requirements] = image
    ordered = sorted(best.items(), key=lambda item: item[1]["ImageId"])
    ordered.sort(key=lambda item: item[1].get("CreationDate", ""), reverse=True)
    return tuple(
        Ami(image["ImageId"], image.get("Name", ""), is_deprecated(image, now), requirements)
        for requirements, image in ordered
    )


def is_deprecated(image: Mapping[str, Any], now: datetime) -> bool:
    """Whether the image's owner advises against it by now."""
    text = str(image.get("DeprecationTime") or "")
    if not text:
        return False
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return False
    return (when if when.tzinfo else when.replace(tzinfo=UTC)) <= now


def _rank(image: Mapping[str, Any], now: datetime) -> tuple[bool, str, str]:
    return (not is_deprecated(image, now), image.get("CreationDate", ""), image.get("Name", ""))


def match_ami(amis: Sequence[Ami], instance_type: InstanceType) -> Ami | None:
    """The first image in status order that boots the type; None when there is none."""
    for ami in amis:
        if instance_type.requirements.is_compatible(Requirements.from_specs(ami.requirements)):
            return ami
    return None


def tag_filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """EC2 filters for selector tags; `*` means that the key is there."""
    return [
        {"Name": "tag-key", "Values": [key]} if value == "*" else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]
