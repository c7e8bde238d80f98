"""User data of Bottlerocket: the user's TOML settings, and over them what makes the node join. Pure."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from sawhorse_cloud_aws.boot import Boot, node_labels
from sawhorse_cloud_aws.toml_text import write_toml
from sawhorse_model.aws import EC2NodeClass

# From this version on `ephemeral-storage bind` knows itself what to bind.
_BINDS_ALONE = (1, 46, 0)
_DIRECTORIES = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
# In an image's name the version follows the Kubernetes version and the architecture.
_IMAGE_VERSION = re.compile(r"-v(\d+)\.(\d+)\.(\d+)")


def bottlerocket_user_data(boot: Boot) -> str:
    """The merged settings. The user's TOML is taken to be good: see `toml_problem`."""
    document = _read(boot.node_class.user_data)
    settings = _submap(document, "settings")
    kubernetes = _submap(settings, "kubernetes")
    kubernetes |= {
        "cluster-name": boot.cluster.name,
        "api-server": boot.cluster.endpoint,
        "cluster-certificate": boot.cluster.ca,
        "max-pods": boot.sent_max_pods,
        "node-taints": _taints(boot),
        **_from_kubelet(boot.node_class.kubelet.raw),
    }
    kubernetes["node-labels"] = {**_submap(kubernetes, "node-labels"), **node_labels(boot.labels)}
    if boot.has_raid0:
        _submap(settings, "bootstrap-commands")["000-mount-instance-storage"] = {
            "commands": [["apiclient", "ephemeral-storage", "init"], _bind(boot.node_class)],
            "mode": "always",
            "essential": True,
        }
    return write_toml(document)


def toml_problem(text: str) -> str:
    """Why user data is no settings of Bottlerocket, with the line; empty when it is."""
    try:
        document = tomllib.loads(_unix(text))
    except tomllib.TOMLDecodeError as error:
        return f"is not TOML: {error}"
    value: Any = document
    for key in ("settings", "kubernetes", "node-labels"):
        value = value.get(key, {})
        if not isinstance(value, dict):
            return f"is not what Bottlerocket reads: {key} is no table"
    commands = (document.get("settings") or {}).get("bootstrap-commands", {})
    return "" if isinstance(commands, dict) else "is not what Bottlerocket reads: bootstrap-commands is no table"


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _read(text: str) -> dict[str, Any]:
    return tomllib.loads(_unix(text))


def _submap(parent: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = parent.setdefault(key, {})
    return found


def _taints(boot: Boot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for taint in boot.registered_taints:
        found.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return found


def _from_kubelet(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of spec.kubelet, under Bottlerocket's names."""
    found: dict[str, Any] = {}
    if dns := raw.get("clusterDNS"):
        found["cluster-dns-ip"] = dns[0]
    for key, name in (
        ("systemReserved", "system-reserved"),
        ("kubeReserved", "kube-reserved"),
        ("evictionHard", "eviction-hard"),
        ("evictionSoft", "eviction-soft"),
        ("evictionSoftGracePeriod", "eviction-soft-grace-period"),
    ):
        if values := raw.get(key):
            found[name] = {k: str(v) for k, v in values.items()}
    if raw.get("evictionMaxPodGracePeriod") is not None:
        found["eviction-max-pod-grace-period"] = raw["evictionMaxPodGracePeriod"]
    for key, name in (
        ("imageGCHighThresholdPercent", "image-gc-high-threshold-percent"),
        ("imageGCLowThresholdPercent", "image-gc-low-threshold-percent"),
    ):
        if raw.get(key) is not None:
            found[name] = str(raw[key])
    if raw.get("cpuCFSQuota") is not None:
        found["cpu-cfs-quota-enforced"] = raw["cpuCFSQuota"]
    return found


def _bind(node_class: EC2NodeClass) -> list[str]:
    version = image_version(node_class)
    command = ["apiclient", "ephemeral-storage", "bind"]
    if version is not None and version >= _BINDS_ALONE:
        return command
    return [*command, "--dirs", *_DIRECTORIES]


def image_version(node_class: EC2NodeClass) -> tuple[int, ...] | None:
    """The oldest version that nodes of the class may boot; None where nothing says so. `latest` is newer than any."""
    _, _, pinned = node_class.alias.partition("@")
    if pinned == "latest":
        return (2**31,)
    if found := _VERSION.fullmatch(pinned):
        return tuple(map(int, found.groups()))
    named = [m for term in node_class.ami_terms if (m := _IMAGE_VERSION.search(term.name))]
    named = named or [m for ami in node_class.amis if (m := _IMAGE_VERSION.search(ami.name))]
    return min((tuple(map(int, m.groups())) for m in named), default=None)
