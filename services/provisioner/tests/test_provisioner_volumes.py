"""What a snapshot holds of volumes: the claims that its pods use, and what those need."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sawhorse_model.cluster import CSINode
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import Pod
from sawhorse_provisioner.cluster_state import Changed, ClusterState
from sawhorse_provisioner.main import AWS_WORDS
from sawhorse_provisioner.snapshots import used_volumes
from sawhorse_runtime.clock import SystemClock
from sawhorse_testing.builders import a_claim, a_pod, a_storage_class, a_volume


class Objects:
    """A mirror of given objects by kind and key."""

    synced = True
    version = 1

    def __init__(self, *things: Any) -> None:
        self.kinds: dict[str, dict[str, Any]] = {}
        for thing in things:
            self.kinds.setdefault(type(thing).__name__, {})[thing.meta.key] = thing

    def all(self, kind: str) -> Mapping[str, Any]:
        return self.kinds.get(kind, {})

    def get(self, kind: str, key: str) -> Any:
        return self.all(kind).get(key)

    def pods_on(self, node_name: str) -> Sequence[Pod]:
        return ()

    def subscribe(self, callback: Changed) -> None:
        self.callback = callback

    def note_own(self, kind: str, obj: Any) -> None:
        self.kinds.setdefault(kind, {})[obj.meta.key] = obj


def state_of(*things: Any) -> ClusterState:
    return ClusterState(Objects(*things), words=AWS_WORDS, clock=SystemClock(), nomination=timedelta(seconds=20))


def test_a_snapshot_holds_the_claims_that_its_pods_use_and_no_others() -> None:
    state = state_of(
        a_claim("data", volume="pv-1"),
        a_claim("web-0-scratch"),
        a_claim("other", volume="pv-2"),
        a_volume("pv-1"),
        a_volume("pv-2"),
        a_storage_class("gp3"),
        a_storage_class("slow"),
        CSINode(ObjectMeta("n"), {"ebs.csi.aws.com": 25}),
        CSINode(ObjectMeta("m"), {}),
    )

    found = used_volumes(state, [a_pod("db", claims=("data",)), a_pod("web-0", ephemeral_claims=("scratch",))])

    assert set(found.claims) == {"default/data", "default/web-0-scratch"}
    assert set(found.volumes) == {"pv-1"}
    assert set(found.classes) == {"gp3"}
    assert found.limits == {"n": {"ebs.csi.aws.com": 25}}


def test_without_claims_a_snapshot_holds_nothing_of_volumes() -> None:
    state = state_of(a_claim("data"), a_storage_class(), CSINode(ObjectMeta("n"), {"ebs.csi.aws.com": 25}))

    found = used_volumes(state, [a_pod("web")])

    assert found == replace(found, claims={}, volumes={}, classes={}, limits={})
