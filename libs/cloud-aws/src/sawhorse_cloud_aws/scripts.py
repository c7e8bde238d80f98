"""User data of images that boot by a script with the kubelet's flags: AL2 and Windows. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from sawhorse_cloud_aws import mime
from sawhorse_cloud_aws.boot import Boot, node_labels

_POWERSHELL_TAGS = re.compile(r"^\s*<powershell>\s*|\s*</powershell>\s*$", re.IGNORECASE)


def al2_user_data(boot: Boot) -> str:
    """MIME parts: the user's, then a script that calls the bootstrap program of the image."""
    cluster = boot.cluster
    words = [
        "/etc/eks/bootstrap.sh",
        _quoted(cluster.name),
        "--apiserver-endpoint",
        _quoted(cluster.endpoint),
        "--b64-cluster-ca",
        _quoted(cluster.ca),
    ]
    if ":" in boot.cluster_dns:
        words += ["--ip-family", "ipv6"]
    if boot.cluster_dns:
        words += ["--dns-cluster-ip", _quoted(boot.cluster_dns)]
    words += ["--use-max-pods", "false", "--kubelet-extra-args", _quoted(kubelet_flags(boot))]
    if boot.has_raid0:
        words += ["--local-disks", "raid0"]
    script = f"#!/bin/bash -xe\n{' '.join(words)}\n"
    return mime.join([*mime.split(boot.node_class.user_data), mime.part(mime.SHELL, script)])


def windows_user_data(boot: Boot) -> str:
    """One PowerShell block: the user's lines, then the bootstrap script of the image."""
    cluster = boot.cluster
    typed = _POWERSHELL_TAGS.sub("", boot.node_class.user_data.replace("\r\n", "\n")).strip("\n")
    call = (
        f"& $EKSBootstrapScriptFile -EKSClusterName {_doubled(cluster.name)}"
        f" -APIServerEndpoint {_doubled(cluster.endpoint)} -Base64ClusterCA {_doubled(cluster.ca)}"
        f" -KubeletExtraArgs {_doubled(kubelet_flags(boot))} -DNSClusterIP {_doubled(boot.cluster_dns)}"
    )
    lines = [
        "<powershell>",
        *([typed] if typed else []),
        r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"',
        call,
        "</powershell>",
    ]
    return "\n".join(lines) + "\n"


def kubelet_flags(boot: Boot) -> str:
    """The kubelet's flags, in one order, values with signs of their own in double quotes."""
    raw = boot.node_class.kubelet.raw
    registered = boot.registered_taints
    labels = ",".join(f"{k}={v}" for k, v in node_labels(boot.labels).items())
    taints = ",".join(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in registered)
    flags = [f'--node-labels="{labels}"', f'--register-with-taints="{taints}"', f"--max-pods={boot.sent_max_pods}"]
    if raw.get("podsPerCore") is not None:
        flags.append(f"--pods-per-core={raw['podsPerCore']}")
    for key, flag, sign in (
        ("systemReserved", "system-reserved", "="),
        ("kubeReserved", "kube-reserved", "="),
        ("evictionHard", "eviction-hard", "<"),
        ("evictionSoft", "eviction-soft", "<"),
        ("evictionSoftGracePeriod", "eviction-soft-grace-period", "="),
    ):
        if values := raw.get(key):
            flags.append(f'--{flag}="{_pairs(values, sign)}"')
    for key, flag in (
        ("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period"),
        ("imageGCHighThresholdPercent", "image-gc-high-threshold"),
        ("imageGCLowThresholdPercent", "image-gc-low-threshold"),
    ):
        if raw.get(key) is not None:
            flags.append(f"--{flag}={raw[key]}")
    if raw.get("cpuCFSQuota") is not None:
        flags.append(f"--cpu-cfs-quota={'true' if raw['cpuCFSQuota'] else 'false'}")
    return " ".join(flags)


def _pairs(values: Mapping[str, Any], sign: str) -> str:
    return ",".join(f"{key}{sign}{values[key]}" for key in sorted(values))


def _quoted(text: str) -> str:
    """For a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _doubled(text: str) -> str:
    """For PowerShell."""
    return "'" + text.replace("'", "''") + "'"
