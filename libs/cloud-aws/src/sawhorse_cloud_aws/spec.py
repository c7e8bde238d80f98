"""Reading an EC2NodeClass that may have fields which cannot be read: the rest of it stays usable. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_model.manifests.fields import ManifestError
from sawhorse_model.nodeclass import NodeClass

KUBELET_EXPRESSIONS = "KubeletExpressionsDisabled"
KUBELET = "InvalidKubeletConfiguration"
INVALID = "InvalidSpec"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field of the spec that cannot be read: a stable word and one line that names it."""

    reason: str
    message: str


def read_node_class(node_class: NodeClass) -> tuple[EC2NodeClass, tuple[Misfit, ...]]:
    """Read an EC2NodeClass. A field that makes no sense is left out, with all of its top-level field, and reported.

    Unreadable parts of the status are left out silently: we write it, and the next look-up writes it anew.
    """
    spec: dict[str, Any] = dict(node_class.spec)
    status: dict[str, Any] = dict(node_class.status)
    misfits: list[Misfit] = []
    while True:
        try:
            parsed = parse_ec2_node_class(replace(node_class, spec=spec, status=status))
        except ManifestError as error:
            part, _, rest = error.field.partition(".")
            top = rest.replace("[", ".").partition(".")[0]
            if part == "status" and top in status:
                del status[top]
                continue
            misfits.append(_misfit(top, error, spec))
            if top in spec:
                del spec[top]
            elif spec:
                spec.clear()
            else:
                status.clear()
            continue
        return replace(parsed, node_class=replace(node_class, status=status)), tuple(misfits)


def _misfit(top: str, error: ManifestError, spec: Mapping[str, Any]) -> Misfit:
    if top != "kubelet":
        return Misfit(INVALID, str(error))
    kubelet = spec.get("kubelet")
    field = error.field.rpartition(".")[2]
    if field == "maxPods" and isinstance(kubelet, Mapping) and isinstance(kubelet.get(field), str):
        return Misfit(KUBELET_EXPRESSIONS, f"{error.field}: expressions are not supported yet; give a whole number")
    return Misfit(KUBELET, str(error))
