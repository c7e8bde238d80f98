"""DaemonSets as they really run: what admission adds to their pods counts, not only what the template says. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from sawhorse_model.cluster import DaemonSet
from sawhorse_model.pod import Pod


def as_they_run(daemons: Iterable[DaemonSet], pods: Iterable[Pod]) -> tuple[DaemonSet, ...]:
    """Each DaemonSet with the spec of its newest active pod; without one it stays as its template is.

    The required node affinity stays the template's: the DaemonSet controller ties each pod to its node there.
    """
    newest: dict[str, Pod] = {}
    for pod in pods:
        owner = pod.meta.controller() if pod.is_daemon and pod.is_active else None
        if owner is not None and (owner.uid not in newest or _age(newest[owner.uid]) < _age(pod)):
            newest[owner.uid] = pod
    return tuple(_with(daemon, newest.get(daemon.meta.uid)) for daemon in daemons)


def _with(daemon: DaemonSet, pod: Pod | None) -> DaemonSet:
    if pod is None:
        return daemon
    spec = replace(pod.spec, required_terms=daemon.template.spec.required_terms)
    return replace(daemon, template=replace(daemon.template, spec=spec))


def _age(pod: Pod) -> tuple[float, str]:
    return (pod.meta.created.timestamp() if pod.meta.created else 0.0, pod.meta.key)
