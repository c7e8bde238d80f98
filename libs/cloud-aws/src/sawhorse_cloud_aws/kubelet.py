"""Checks of `spec.kubelet`: what the kubelet would refuse at its start, told before a machine is paid for. Pure.

Names of fields that no kubelet knows are not checked: that list belongs to the kubelet's version, and the image has it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sawhorse_cloud_aws.spec import KUBELET, KUBELET_EXPRESSIONS, Misfit
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.manifests.fields import ManifestError, parse_duration
from sawhorse_model.quantity import QuantityError, parse_quantity

UNSUPPORTED = "UnsupportedKubeletConfiguration"

_MANAGED = frozenset(
    {
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    }
)
_SIGNALS = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
_RESERVED = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_COUNTS = ("maxPods", "podsPerCore", "evictionMaxPodGracePeriod")
_PERCENTS = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent")
# Families whose images take the whole configuration as it is, or whose user data is the user's own.
_OPEN_FAMILIES = ("AL2023", "Custom")


def kubelet_problems(node_class: EC2NodeClass) -> tuple[Misfit, ...]:
    """Everything that is wrong with `spec.kubelet`, all of the first kind that has any."""
    raw = node_class.kubelet.raw
    for reason, check in ((KUBELET, _invalid), (KUBELET_EXPRESSIONS, _expressions)):
        if found := tuple(Misfit(reason, f"spec.kubelet.{problem}") for problem in check(raw)):
            return found
    return tuple(Misfit(UNSUPPORTED, f"spec.kubelet.{problem}") for problem in _unsupported(node_class))


def _invalid(raw: Mapping[str, Any]) -> Iterator[str]:
    if "registerWithTaints" in raw:
        yield "registerWithTaints: taints come from the NodePool; remove it"
    for key in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        yield from _thresholds(raw, key)
    yield from _grace_periods(raw)
    yield from _reserved(raw)
    for key in _COUNTS:
        if not _is_whole(raw.get(key, 0), low=0):
            yield f"{key}: {raw[key]!r} is not a whole number from 0"
    for key in _PERCENTS:
        if not _is_whole(raw.get(key, 0), low=0, high=100):
            yield f"{key}: {raw[key]!r} is not a whole number from 0 to 100"
    high, low = (raw.get(key) for key in _PERCENTS)
    if isinstance(high, int) and isinstance(low, int) and high <= low:
        yield f"imageGCHighThresholdPercent: {high} must be greater than imageGCLowThresholdPercent {low}"
    if not isinstance(raw.get("cpuCFSQuota", True), bool):
        yield f"cpuCFSQuota: {raw['cpuCFSQuota']!r} is neither true nor false"


def _map(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _thresholds(raw: Mapping[str, Any], key: str) -> Iterator[str]:
    yield from _unknown(key, _map(raw, key), _SIGNALS)
    for signal, value in _map(raw, key).items():
        if not _is_threshold(str(value)):
            yield f"{key}[{signal}]: {value!r} is neither a percentage from 0% to 100% nor a quantity"


def _grace_periods(raw: Mapping[str, Any]) -> Iterator[str]:
    key = "evictionSoftGracePeriod"
    periods, soft = _map(raw, key), _map(raw, "evictionSoft")
    yield from _unknown(key, periods, _SIGNALS)
    for signal, value in periods.items():
        try:
            parse_duration(str(value), signal)
        except ManifestError:
            yield f"{key}[{signal}]: {value!r} is not a duration such as 1m30s"
    for signal in sorted(soft.keys() - periods.keys()):
        yield f"evictionSoft[{signal}]: has no {key}"
    for signal in sorted(periods.keys() - soft.keys()):
        yield f"{key}[{signal}]: has no evictionSoft"


def _reserved(raw: Mapping[str, Any]) -> Iterator[str]:
    for key in ("systemReserved", "kubeReserved"):
        yield from _unknown(key, _map(raw, key), _RESERVED)
        for name, value in _map(raw, key).items():
            if str(value).startswith("-"):
                yield f"{key}[{name}]: {value!r} is negative"


def _expressions(raw: Mapping[str, Any]) -> Iterator[str]:
    for key in ("systemReserved", "kubeReserved"):
        for name, value in _map(raw, key).items():
            if not _is_quantity(str(value)):
                yield f"{key}[{name}]: expressions are not supported yet; give a quantity instead of {value!r}"


def _unsupported(node_class: EC2NodeClass) -> Iterator[str]:
    family, raw = node_class.ami_family, node_class.kubelet.raw
    if family in _OPEN_FAMILIES:
        return
    for key in sorted(raw.keys() - _MANAGED):
        yield f"{key}: images of family {family} do not take it; remove it"
    if family == "Bottlerocket" and raw.get("podsPerCore") is not None:
        yield "podsPerCore: Bottlerocket does not take it; set maxPods"
    if len(node_class.kubelet.cluster_dns) > 1:
        yield f"clusterDNS: images of family {family} take one address"


def _unknown(key: str, values: Mapping[str, Any], known: Iterable[str]) -> Iterator[str]:
    for name in sorted(values.keys() - set(known)):
        yield f"{key}[{name}]: is none of {', '.join(sorted(known))}"


def _is_whole(value: Any, *, low: int, high: int = 2**31 - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_quantity(text: str) -> bool:
    try:
        return parse_quantity(text) >= 0
    except QuantityError:
        return False


def _is_threshold(text: str) -> bool:
    if not text.endswith("%"):
        return _is_quantity(text)
    try:
        return 0 <= float(text[:-1]) <= 100
    except ValueError:
        return False
