"""What a cluster holds before anybody uses it: namespaces and the system's priority classes."""

from __future__ import annotations

from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import NAMESPACES, PRIORITY_CLASSES
from sawhorse_sandbox.apiserver.targets import Target, Write

_SERVER = Write("kube-apiserver")
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def bootstrap(api: Api) -> None:
    for name in _NAMESPACES:
        api.create(Target(NAMESPACES), {"metadata": {"name": name}}, _SERVER)
    for name, value in _PRIORITIES.items():
        api.create(Target(PRIORITY_CLASSES), {"metadata": {"name": name}, "value": value}, _SERVER)
