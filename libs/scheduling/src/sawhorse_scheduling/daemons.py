"""DaemonSets: what each node will carry besides the pods that are planned."""

from collections.abc import Sequence

import numpy as np

from sawhorse_model.cluster import DaemonSet
from sawhorse_model.instances import InstanceType
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Requirements
from sawhorse_model.taints import Taint, Toleration, untolerated
from sawhorse_scheduling.arrays import Axis, BoolArray, IntArray
from sawhorse_scheduling.classes import required_terms

# The DaemonSet controller adds these to its pods, so a template does not name them.
AUTOMATIC = tuple(
    Toleration(f"node.kubernetes.io/{word}", "Exists")
    for word in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)


def tolerates(daemon: DaemonSet, taints: Sequence[Taint]) -> bool:
    """Whether the daemon's pods may run beside these taints (PreferNoSchedule never keeps them off).

    Those that use resource claims (DRA) are passed over, as nothing is planned for such pods.
    """
    return (
        not daemon.template.spec.resource_claims
        and untolerated(taints, (*daemon.template.spec.tolerations, *AUTOMATIC)) is None
    )


def runs_on_types(
    daemon: DaemonSet,
    taints: Sequence[Taint],
    template: Requirements,
    types: Sequence[InstanceType],
    well_known: frozenset[str],
) -> BoolArray:
    """(T,) on which new nodes of a pool the daemon will run.

    `template` describes the pool's nodes, labels that are added after launch included. Any one of the daemon's
    required terms may match; a key that an instance type does not know does not keep the daemon off it.
    """
    result = np.zeros(len(types), dtype=np.bool_)
    if not tolerates(daemon, taints):
        return result
    for wants in required_terms(daemon.template.spec):
        if not template.is_compatible(wants, well_known):
            continue
        both = template.intersection(wants)
        for index, kind in enumerate(types):
            result[index] = result[index] or kind.requirements.intersects(both)
    return result


def on_types(
    daemons: Sequence[DaemonSet],
    taints: Sequence[Taint],
    template: Requirements,
    types: Sequence[InstanceType],
    well_known: frozenset[str],
    axis: Axis,
) -> tuple[IntArray, BoolArray]:
    """What daemons take on each type: (T, R) requests, and (D, T) which daemon runs where."""
    runs = np.zeros((len(daemons), len(types)), dtype=np.bool_)
    taken = np.zeros((len(types), len(axis.names)), dtype=np.int64)
    for index, daemon in enumerate(daemons):
        runs[index] = runs_on_types(daemon, taints, template, types, well_known)
        taken += runs[index][:, None] * axis.vector(daemon.template.spec.requests)[None, :]
    return taken, runs


def clash(mine: Sequence[HostPort], theirs: Sequence[HostPort]) -> tuple[HostPort, HostPort] | None:
    """Two host ports that cannot be on one node: same number and protocol, and addresses that overlap."""
    for one in mine:
        for other in theirs:
            if one.port != other.port or one.protocol != other.protocol:
                continue
            if one.ip == other.ip or _is_any(one.ip) or _is_any(other.ip):
                return one, other
    return None


def _is_any(address: str) -> bool:
    return address in ("", "0.0.0.0", "::")
