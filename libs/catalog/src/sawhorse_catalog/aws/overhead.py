"""What the kubelet, the system and the eviction threshold keep back; what pods get is capacity less these."""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from sawhorse_catalog.aws.families import GIB
from sawhorse_model.aws import Kubelet
from sawhorse_model.quantity import QuantityError, milli, parse_quantity, whole
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources

MIB = 2**20
_EVICTION_MEMORY = 100 * MIB
_EVICTION_STORAGE_PERCENT = "10%"
_EVICTION_SIGNALS = {MEMORY: "memory.available", EPHEMERAL_STORAGE: "nodefs.available"}
# Shares of each further part of the cpu, in millionths: 6 % of the first core, 1 % of the second, …
_CPU_BRACKETS = ((0, 1000, 60_000), (1000, 2000, 10_000), (2000, 4000, 5_000), (4000, 2**62, 2_500))


def kube_reserved(cpu_millis: int, pods: int, kubelet: Kubelet) -> dict[str, int]:
    """What the kubelet and the container runtime keep; entries of `kubeReserved` replace ours one by one.

    An entry that is no quantity (an expression, while those are off) leaves the default.
    """
    cpu = _kube_cpu(cpu_millis)
    defaults = {CPU: cpu, MEMORY: (11 * pods + 255) * MIB, EPHEMERAL_STORAGE: GIB}
    return {**defaults, **_amounts(kubelet.kube_reserved)}


@lru_cache(maxsize=1024)
def _kube_cpu(cpu_millis: int) -> int:
    return sum(max(min(cpu_millis, high) - low, 0) * share // 1_000_000 for low, high, share in _CPU_BRACKETS)


def system_reserved(kubelet: Kubelet) -> dict[str, int]:
    """What `systemReserved` keeps; nothing unless it is set."""
    return _amounts(kubelet.system_reserved)


def eviction_reserved(estimated_memory: int, storage: int, kubelet: Kubelet) -> dict[str, int]:
    """Below what the kubelet evicts. Percentages are of the estimated memory and of the storage."""
    hard = kubelet.eviction_hard
    return {
        MEMORY: _threshold(hard.get(_EVICTION_SIGNALS[MEMORY]), estimated_memory, _EVICTION_MEMORY),
        EPHEMERAL_STORAGE: _threshold(
            hard.get(_EVICTION_SIGNALS[EPHEMERAL_STORAGE]),
            storage,
            _threshold(_EVICTION_STORAGE_PERCENT, storage, 0),
        ),
    }


def allocatable(
    capacity: Resources, *, estimated_memory: int, reserve_pods: int, kubelet: Kubelet | None = None
) -> dict[str, int]:
    """Capacity less all reserves, for the resources that the capacity has.

    May be negative: such a type never fits a pod. Huge pages (which an overlay may add) come out of memory, which
    they do not push below zero.
    """
    settings = kubelet or Kubelet()
    reserves = (
        kube_reserved(capacity.get(CPU, 0), reserve_pods, settings),
        system_reserved(settings),
        eviction_reserved(estimated_memory, capacity.get(EPHEMERAL_STORAGE, 0), settings),
    )
    left = dict(capacity)
    for reserve in reserves:
        for name, amount in reserve.items():
            if name in left:
                left[name] -= amount
    huge = sum(amount for name, amount in capacity.items() if name.startswith("hugepages-"))
    if huge and MEMORY in left:
        left[MEMORY] = max(left[MEMORY] - huge, 0)
    return left


def _amounts(raw: Mapping[str, str]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, text in raw.items():
        try:
            amounts[name] = milli(text) if name == CPU else whole(text)
        except QuantityError:
            continue
    return amounts


@lru_cache(maxsize=4096)
def _threshold(text: str | None, total: int, default: int) -> int:
    if text is None:
        return default
    try:
        if not text.endswith("%"):
            return whole(text)
        share = _percent(text[:-1])
    except QuantityError:
        return default
    # The kubelet reads 100 % as "this threshold is off".
    return 0 if share >= 100 else -(-total * share.numerator // (share.denominator * 100))


@lru_cache(maxsize=256)
def _percent(text: str) -> Fraction:
    return parse_quantity(text)
