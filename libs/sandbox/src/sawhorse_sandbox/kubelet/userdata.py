"""What an instance's user data tells its kubelet: labels, taints, pod limit, reservations. Pure: text in, data out.

Understood are the forms that EKS images boot from: MIME multipart with NodeConfig parts (AL2023), a bare NodeConfig,
TOML (Bottlerocket), and scripts that hand flags to the kubelet (AL2, Windows, Custom). Of several NodeConfig parts the
later one wins, field by field, as the image's own boot program has it.
"""

import base64
import binascii
import email
import email.policy
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from sawhorse_model.taints import Taint

_NODE_CONFIG_TYPE = "application/node.eks.aws"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FLAG = re.compile(r"--(node-labels|register-with-taints|max-pods)[=\s]+[\"']?([^\s\"']+)")


class UserDataError(ValueError):
    """The machine could not boot into a node with this user data."""


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """What the kubelet is told. Quantities stay text, as the user typed them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    cluster_dns: tuple[str, ...] = ()
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    uses_instance_store: bool = False  # pods' ephemeral storage lies on the RAID0 of the local disks
    reserves_by_max_pods: bool = False  # Bottlerocket; other images reserve for the pods that interfaces allow


def parse_user_data(encoded: str | None) -> KubeletOptions:
    """Return the kubelet's options; None and an empty text give the defaults (an image that has them built in).

    Args:
        encoded: base64, as EC2 holds it.
    Raises:
        UserDataError: not base64 of text, or a part that is broken.
    """
    try:
        text = base64.b64decode("".join((encoded or "").split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as err:
        raise UserDataError(f"user data is not base64 of UTF-8 text: {err}") from err
    start = text.lstrip()
    if not start:
        return KubeletOptions()
    if start.startswith(("MIME-Version:", "Content-Type:")):
        return _from_mime(start)
    if (document := _as_mapping(start)) is not None and "node.eks.aws" in str(document.get("apiVersion", "")):
        return _from_node_config(document)
    if (settings := _as_bottlerocket(start)) is not None:
        return _from_bottlerocket(settings)
    return _from_flags(start)


def _from_mime(text: str) -> KubeletOptions:
    message = email.message_from_string(text, policy=email.policy.default)
    merged: dict[str, Any] = {}
    scripts: list[str] = []
    for part in message.walk():
        if part.is_multipart():
            continue
        payload = part.get_payload(decode=True)
        content = payload.decode(errors="replace") if isinstance(payload, bytes) else ""
        if part.get_content_type() == _NODE_CONFIG_TYPE:
            document = _as_mapping(content)
            if document is None:
                raise UserDataError(f"the {_NODE_CONFIG_TYPE} part is not a YAML mapping")
            merged = _merge(merged, document)
        else:
            scripts.append(content)
    return _from_node_config(merged) if merged else _from_flags("\n".join(scripts))


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _merge(below, value)
        elif key == "flags" and isinstance(below, list) and isinstance(value, list):
            merged[key] = below + value  # flags add up; the kubelet itself lets the last of a name win
        else:
            merged[key] = value
    return merged


def _from_node_config(document: Mapping[str, Any]) -> KubeletOptions:
    spec = _mapping(document, "spec")
    kubelet = _mapping(spec, "kubelet")
    config = _mapping(kubelet, "config")
    flags = kubelet.get("flags") or []
    if not isinstance(flags, list):
        raise UserDataError("spec.kubelet.flags is not a list")
    flagged = _from_flags("\n".join(str(flag) for flag in flags))
    storage = _mapping(_mapping(spec, "instance"), "localStorage")
    return KubeletOptions(
        labels=flagged.labels,
        taints=tuple(_taint(each) for each in config.get("registerWithTaints") or ()) or flagged.taints,
        max_pods=_integer(config, "maxPods") if "maxPods" in config else flagged.max_pods,
        pods_per_core=_integer(config, "podsPerCore"),
        cluster_dns=tuple(str(address) for address in config.get("clusterDNS") or ()),
        kube_reserved=_texts(config, "kubeReserved"),
        system_reserved=_texts(config, "systemReserved"),
        eviction_hard=_texts(config, "evictionHard"),
        uses_instance_store=storage.get("strategy") == "RAID0",
    )


def _from_bottlerocket(settings: Mapping[str, Any]) -> KubeletOptions:
    taints: list[Taint] = []
    for key, values in _mapping(settings, "node-taints").items():
        for each in values if isinstance(values, list) else [values]:
            value, _, effect = str(each).rpartition(":")
            taints.append(_taint({"key": key, "value": value, "effect": effect}))
    return KubeletOptions(
        labels=_texts(settings, "node-labels"),
        taints=tuple(taints),
        max_pods=_integer(settings, "max-pods"),
        kube_reserved=_texts(settings, "kube-reserved"),
        system_reserved=_texts(settings, "system-reserved"),
        eviction_hard=_texts(settings, "eviction-hard"),
        reserves_by_max_pods=True,
    )


def _from_flags(text: str) -> KubeletOptions:
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    max_pods: int | None = None
    for name, value in _FLAG.findall(text):
        match name:
            case "node-labels":
                for pair in filter(None, value.split(",")):
                    key, _, label = pair.partition("=")
                    labels[key] = label
            case "register-with-taints":
                for each in filter(None, value.split(",")):
                    left, _, effect = each.rpartition(":")
                    key, _, worth = left.partition("=")
                    taints.append(_taint({"key": key, "value": worth, "effect": effect}))
            case _:
                max_pods = _integer({name: value}, name)
    return KubeletOptions(labels=labels, taints=tuple(taints), max_pods=max_pods)


def _taint(raw: object) -> Taint:
    if not isinstance(raw, dict) or not raw.get("key") or raw.get("effect") not in _EFFECTS:
        raise UserDataError(f"{raw!r} is not a taint with key and effect")
    return Taint(key=str(raw["key"]), effect=str(raw["effect"]), value=str(raw.get("value") or ""))


def _as_mapping(text: str) -> dict[str, Any] | None:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return document if isinstance(document, dict) else None


def _as_bottlerocket(text: str) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    settings = document.get("settings")
    kubernetes = settings.get("kubernetes") if isinstance(settings, dict) else None
    return kubernetes if isinstance(kubernetes, dict) else None


def _mapping(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key) or {}
    if not isinstance(value, dict):
        raise UserDataError(f"{key} is not a mapping")
    return value


def _texts(parent: Mapping[str, Any], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in _mapping(parent, key).items()}


def _integer(parent: Mapping[str, Any], key: str) -> int | None:
    value = parent.get(key)
    if value is None:
        return None
    try:
        return int(str(value))
    except ValueError as err:
        raise UserDataError(f"{key} is not a whole number: {value!r}") from err
