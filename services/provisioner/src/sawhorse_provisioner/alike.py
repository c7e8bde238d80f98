"""One object for equal bound pods: planning reads what they ask for, not who they are.

Twenty thousand pods become some hundreds of objects on their way to the planning worker; without it, writing and
reading them took longer than the plan.
"""

from collections.abc import Iterable

from sawhorse_model.pod import Pod
from sawhorse_provisioner.pods import class_key

Key = tuple[object, ...]


class Alike:
    """Remembers from snapshot to snapshot which pods are equal. One per process; `begin` before each snapshot."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Pod, Pod]] = {}  # uid → the pod as it was, and the one that stands for it
        self._before: dict[str, tuple[Pod, Pod]] = {}
        self._standing: dict[Key, Pod] = {}

    def begin(self) -> None:
        """A new snapshot: pods that the last one did not have are forgotten."""
        self._before, self._seen = self._seen, {}
        self._standing = {_key(rep): rep for rep in {id(rep): rep for _, rep in self._before.values()}.values()}

    def of(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """The same pods, equal ones as one object. Name, uid and times are those of any of them."""
        return tuple(self._one(pod) for pod in pods)

    def _one(self, pod: Pod) -> Pod:
        uid = pod.meta.uid or pod.meta.key
        known = self._before.get(uid)
        if known is None or known[0] is not pod:
            known = (pod, self._standing.setdefault(_key(pod), pod))
        self._seen[uid] = known
        return known[1]


def _key(pod: Pod) -> Key:
    return (
        class_key(pod),
        tuple((o.kind, o.api_version, o.uid) for o in pod.meta.owners),
        pod.meta.is_deleting,
        pod.phase,
        pod.ready,
    )
