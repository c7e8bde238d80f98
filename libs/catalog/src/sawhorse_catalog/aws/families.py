"""What an AMI family decides about a node's size. The family is resolved already: see `EC2NodeClass.ami_family`."""

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the family table.

    `default_ephemeral` is the size in bytes of the family's own device for container storage, None where the image
    decides. `windows_build` is empty on Linux.
    """

    name: str
    reserve_by_eni_limit: bool = True  # the kubelet's memory reserve counts ENI-limited pods, not maxPods
    pods_per_core: bool = True
    eni_limited_pods: bool = True
    arbitrary_kubelet_fields: bool = False
    ephemeral_device: str = ""
    default_ephemeral: int | None = None
    windows_build: str = ""

    @property
    def is_windows(self) -> bool:
        """Whether nodes of this family run Windows."""
        return bool(self.windows_build)


def _windows(year: str, build: str) -> Family:
    return Family(
        f"Windows{year}",
        reserve_by_eni_limit=False,
        eni_limited_pods=False,
        ephemeral_device="/dev/sda1",
        default_ephemeral=50 * GIB,
        windows_build=build,
    )


CUSTOM = Family("Custom")

FAMILIES: Mapping[str, Family] = {
    f.name: f
    for f in (
        Family("AL2", ephemeral_device="/dev/xvda", default_ephemeral=20 * GIB),
        Family("AL2023", arbitrary_kubelet_fields=True, ephemeral_device="/dev/xvda", default_ephemeral=20 * GIB),
        Family(
            "Bottlerocket",
            reserve_by_eni_limit=False,
            pods_per_core=False,
            ephemeral_device="/dev/xvdb",
            default_ephemeral=20 * GIB,
        ),
        _windows("2019", "10.0.17763"),
        _windows("2022", "10.0.20348"),
        _windows("2025", "10.0.26100"),
        CUSTOM,
    )
}


def family(name: str) -> Family:
    """The row of a family; an unknown word counts as Custom, whose image decides everything itself."""
    return FAMILIES.get(name, CUSTOM)
