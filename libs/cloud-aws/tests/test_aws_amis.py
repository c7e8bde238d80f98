"""Images: from an alias or from what EC2 describes to the image that boots a type."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.amis import (
    UnsupportedAliasError,
    alias_parameters,
    best_images,
    is_deprecated,
    match_ami,
    minor_version,
    tag_filters,
)
from sawhorse_model.aws import ACCELERATOR_COUNT, GPU_COUNT, Ami
from sawhorse_model.labels import ARCH
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_testing.catalog import an_instance_type, common_fixture

NOW = datetime(2026, 11, 29, tzinfo=UTC)
AMD = (RequirementSpec(ARCH, Operator.IN, ("amd64",)),)
ARM = (RequirementSpec(ARCH, Operator.IN, ("arm64",)),)


def an_image(image_id: str = "ami-1", created: str = "2026-01-01T00:00:00.000Z", **more: str) -> dict[str, Any]:
    return {"ImageId": image_id, "Name": image_id, "CreationDate": created, **more}


def paths(alias: str, minor: str = "1.36") -> list[str]:
    return [path for path, _ in alias_parameters(alias, minor)]


def test_al2023_latest_asks_for_the_recommended_image_of_each_variant() -> None:
    root = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023"

    assert paths("al2023@latest") == [
        f"{root}/x86_64/standard/recommended/image_id",
        f"{root}/x86_64/nvidia/recommended/image_id",
        f"{root}/x86_64/neuron/recommended/image_id",
        f"{root}/arm64/standard/recommended/image_id",
        f"{root}/arm64/nvidia/recommended/image_id",
    ]


def test_a_pinned_al2023_names_its_release() -> None:
    name = "amazon-eks-node-al2023-arm64-standard-1.36-v20261118"

    assert paths("al2023@v20261118")[3].endswith(f"/arm64/standard/{name}/image_id")


def test_variants_are_told_apart_by_accelerators() -> None:
    sets = {
        path.split("/")[-3]: requirements for path, (requirements,) in alias_parameters("al2023@latest", "1.36")[:3]
    }

    assert RequirementSpec(GPU_COUNT, Operator.DOES_NOT_EXIST) in sets["standard"]
    assert RequirementSpec(ACCELERATOR_COUNT, Operator.DOES_NOT_EXIST) in sets["standard"]
    assert sets["nvidia"][-1] == RequirementSpec(GPU_COUNT, Operator.EXISTS)
    assert sets["neuron"][-1] == RequirementSpec(ACCELERATOR_COUNT, Operator.EXISTS)


def test_bottlerocket_knows_its_version_with_and_without_v() -> None:
    assert paths("bottlerocket@v1.51.1") == paths("bottlerocket@1.51.1")
    assert paths("bottlerocket@1.51.1")[0] == "/aws/service/bottlerocket/aws-k8s-1.36/x86_64/1.51.1/image_id"
    assert paths("bottlerocket@latest")[2] == "/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/latest/image_id"


def test_bottlerockets_plain_image_serves_neuron_too() -> None:
    _, sets = alias_parameters("bottlerocket@latest", "1.36")[0]

    assert [s[-1].operator for s in sets] == [Operator.DOES_NOT_EXIST, Operator.EXISTS]


def test_al2s_gpu_image_serves_nvidia_and_neuron() -> None:
    path, sets = alias_parameters("al2@v20241109", "1.32")[2]

    assert path.endswith("/1.32/amazon-linux-2-gpu/amazon-eks-gpu-node-1.32-v20241109/image_id")
    assert {s[-1].key for s in sets} == {GPU_COUNT, ACCELERATOR_COUNT}


def test_windows_has_one_image_whatever_the_version() -> None:
    (path,) = paths("windows2022@latest")

    assert path == "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.36/image_id"


@pytest.mark.parametrize(
    ("alias", "minor"),
    [("al2@latest", "1.33"), ("windows2025@latest", "1.34"), ("ubuntu@latest", "1.36"), ("windows2016@latest", "1.36")],
)
def test_an_alias_without_images_for_the_cluster_is_unsupported(alias: str, minor: str) -> None:
    with pytest.raises(UnsupportedAliasError) as caught:
        alias_parameters(alias, minor)

    assert caught.value.reason == "UnsupportedAlias"
    assert alias in str(caught.value)


@pytest.mark.parametrize("text", ["1.36", "v1.36.3", "1.36+", "1.36.3-eks-abc", " 1.36 "])
def test_a_version_is_read_down_to_its_minor(text: str) -> None:
    assert minor_version(text) == "1.36"


@pytest.mark.parametrize("text", ["", "latest", "1"])
def test_what_is_no_version_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(CloudError) as caught:
        minor_version(text)

    assert caught.value.action == "Set --kubernetes-version."


def test_of_equal_requirements_the_newest_image_is_kept() -> None:
    old, new = an_image("ami-old", "2025-01-01T00:00:00Z"), an_image("ami-new", "2026-01-01T00:00:00Z")

    assert [a.id for a in best_images([(new, AMD), (old, AMD)], NOW)] == ["ami-new"]
    assert [a.id for a in best_images([(old, AMD), (new, AMD)], NOW)] == ["ami-new"]


def test_an_image_that_is_not_deprecated_beats_a_newer_one_that_is() -> None:
    newer = an_image("ami-newer", "2026-06-01T00:00:00Z", DeprecationTime="2026-07-01T00:00:00.000Z")
    older = an_image("ami-older", "2025-01-01T00:00:00Z")

    (kept,) = best_images([(newer, AMD), (older, AMD)], NOW)

    assert (kept.id, kept.deprecated) == ("ami-older", False)


def test_equal_images_are_decided_by_the_greater_name() -> None:
    found = best_images([(an_image("ami-a"), AMD), (an_image("ami-b"), AMD)], NOW)

    assert [a.id for a in found] == ["ami-b"]


def test_images_are_ordered_newest_first_then_by_id() -> None:
    found = best_images(
        [(an_image("ami-2"), AMD), (an_image("ami-1"), ARM), (an_image("ami-3", "2026-02-01T00:00:00Z"), ())], NOW
    )

    assert [a.id for a in found] == ["ami-3", "ami-1", "ami-2"]


@pytest.mark.parametrize(
    ("when", "deprecated"),
    [("", False), ("2028-01-01T00:00:00.000Z", False), ("2026-11-29T00:00:00.000Z", True), ("soon", False)],
)
def test_an_image_is_deprecated_only_from_its_time_on(when: str, deprecated: bool) -> None:
    assert is_deprecated(an_image(DeprecationTime=when), NOW) is deprecated


def test_a_type_takes_the_first_image_that_boots_it() -> None:
    amis = [Ami("ami-arm", requirements=ARM), Ami("ami-amd-1", requirements=AMD), Ami("ami-amd-2", requirements=AMD)]

    found = match_ami(amis, an_instance_type("m5.large"))

    assert found is not None
    assert found.id == "ami-amd-1"
    assert match_ami(amis[:1], an_instance_type("m5.large")) is None


def test_gpu_types_take_the_image_with_drivers_and_plain_ones_do_not() -> None:
    amis = [
        Ami(path.split("/")[-3], requirements=requirements)
        for path, sets in alias_parameters("al2023@latest", "1.36")
        for requirements in sets
    ]
    types = {t.name: t for t in common_fixture()}

    gpu, plain = match_ami(amis, types["g5.xlarge"]), match_ami(amis, types["m6i.large"])

    assert gpu is not None
    assert plain is not None
    assert (gpu.id, plain.id) == ("nvidia", "standard")


def test_a_star_asks_for_the_key_alone() -> None:
    assert tag_filters({"b": "*", "a": "x"}) == [
        {"Name": "tag:a", "Values": ["x"]},
        {"Name": "tag-key", "Values": ["b"]},
    ]
