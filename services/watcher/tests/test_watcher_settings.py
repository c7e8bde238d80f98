"""What the watcher can be told, and what it refuses."""

from datetime import timedelta

import pytest

from sawhorse_kube.kinds import EC2_NODECLASS
from sawhorse_runtime.errors import SettingsError
from sawhorse_watcher.main import DESCRIPTION, PROG
from sawhorse_watcher.settings import Settings


def loaded(*argv: str) -> Settings:
    return Settings.load(["--cluster-name", "c", *argv], {}, prog=PROG, description=DESCRIPTION)


def test_the_aws_node_class_is_mirrored_unless_told_otherwise() -> None:
    settings = loaded()

    assert settings.node_class_kinds == (EC2_NODECLASS,)
    assert settings.grpc_address == "127.0.0.1:7404"
    assert settings.leader_election_lease_duration == timedelta(seconds=15)


def test_several_node_class_kinds_are_a_comma_list() -> None:
    both = "karpenter.k8s.aws/v1/EC2NodeClass/ec2nodeclasses,karpenter.k8s.gcp/v1alpha1/GCENodeClass/gcenodeclasses"

    names = [(kind.name, kind.path()) for kind in loaded("--node-class-kinds", both).node_class_kinds]

    assert names == [
        ("EC2NodeClass", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"),
        ("GCENodeClass", "/apis/karpenter.k8s.gcp/v1alpha1/gcenodeclasses"),
    ]


def test_a_node_class_kind_in_another_shape_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match="'EC2NodeClass' is not group/version/Kind/plural"):
        loaded("--node-class-kinds", "EC2NodeClass")
