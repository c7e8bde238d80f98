"""The CRDs that ship with the product, read from package data: the schema of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class CustomKind:
    """A kind and the version of it that is served. `schema` is its openAPIV3Schema.

    `replicas` are the steps to the number that the scale subresource sets; none without that subresource.
    """

    group: str
    version: str
    kind: str
    schema: Mapping[str, Any]
    replicas: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Group and version as an object says them."""
        return f"{self.group}/{self.version}"


@cache
def custom_kinds() -> Mapping[str, CustomKind]:
    """The kinds by name."""
    found: dict[str, CustomKind] = {}
    for entry in sorted(files("sawhorse_model").joinpath("crds").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            spec = yaml.load(entry.read_text("utf-8"), Loader=_Loader)["spec"]
            version = next(v for v in spec["versions"] if v["storage"])
            scale = version.get("subresources", {}).get("scale", {})
            found[spec["names"]["kind"]] = CustomKind(
                group=spec["group"],
                version=version["name"],
                kind=spec["names"]["kind"],
                schema=version["schema"]["openAPIV3Schema"],
                replicas=tuple(filter(None, scale.get("specReplicasPath", "").split("."))),
            )
    return found
