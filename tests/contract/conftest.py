"""What the tests of the CRDs share: the smallest valid object of a kind, to change one thing about it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

ADocument = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def a_document() -> ADocument:
    """Makes the smallest valid object of a kind with fields changed; `a.0.b` is a path, None takes a field away."""

    def make(kind: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        claim: dict[str, Any] = {"nodeClassRef": reference, "requirements": []}
        node_class = {
            "role": "node",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-0a"}],
            "securityGroupSelectorTerms": [{"id": "sg-0a"}],
        }
        group = "karpenter.k8s.aws" if kind == "EC2NodeClass" else "karpenter.sh"
        specs = {"NodePool": {"template": {"spec": claim}}, "NodeClaim": claim, "EC2NodeClass": node_class}
        document = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "x"}, "spec": specs[kind]}
        for path, value in changes.items():
            _set(document, path, value)
        return document

    return make


def _set(document: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for step in parents:
        document = document[int(step)] if isinstance(document, list) else document.setdefault(step, {})
    if value is None:
        del document[last]
    else:
        document[last] = value
