"""A fence before the writes of a term: they are made only while its Lease is held.

A process that was stopped for a while wakes up in the middle of what it did and does not know yet that another leads.
The Lease's own time, judged by the clock and not by whether a task got its turn, says so at each write.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from sawhorse_kube.errors import KubeError, Retry

KUBE_WRITES = frozenset({"create", "patch", "delete", "evict"})  # an Event too many harms nobody
CLOUD_WRITES = frozenset({"launch", "terminate", "tag", "release_node_class", "collect_templates"})

T = TypeVar("T")


class NotLeadingError(KubeError):
    """Another may lead by now: the write was not made. By its Lease, so Kubernetes refused it in a way."""

    reason = "NotLeading"
    retry = Retry.BACKOFF


class _Fenced:
    def __init__(self, part: Any, writes: frozenset[str], holds: Callable[[], bool]) -> None:
        self._part = part
        self._writes = writes
        self._holds = holds

    def __getattr__(self, name: str) -> Any:
        # Reached at every call, as nobody keeps a method.
        if name in self._writes and not self._holds():
            raise NotLeadingError(f"{name}: the leader's Lease is not held any more")
        return getattr(self._part, name)


def fenced(part: T, writes: frozenset[str], holds: Callable[[], bool]) -> T:
    """`part` with its methods named in `writes` refused while `holds()` is False.

    Raises:
        NotLeadingError: from those methods.
    """
    return cast(T, _Fenced(part, writes, holds))
