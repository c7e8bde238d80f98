"""User data, in every form that the images boot from."""

import base64

import pytest

from sawhorse_model.taints import Taint
from sawhorse_sandbox.kubelet.userdata import KubeletOptions, UserDataError, parse_user_data

NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: demo, apiServerEndpoint: "https://k", certificateAuthority: Q0E=, cidr: 10.100.0.0/16}
  instance: {localStorage: {strategy: RAID0}}
  kubelet:
    config:
      maxPods: 29
      clusterDNS: [10.100.0.10]
      registerWithTaints:
        - {key: karpenter.sh/unregistered, effect: NoExecute}
        - {key: team, value: blue, effect: NoSchedule}
      kubeReserved: {memory: 1Gi}
      evictionHard: {memory.available: 5%}
    flags:
      - --node-labels="karpenter.sh/capacity-type=spot,karpenter.sh/nodepool=default"
"""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def a_mime_message(*parts: tuple[str, str]) -> str:
    body = "".join(f"--//\nContent-Type: {kind}\n\n{text}\n" for kind, text in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n{body}--//--\n'


def test_a_bare_node_config_gives_labels_taints_limits_and_reservations() -> None:
    options = parse_user_data(encoded(NODE_CONFIG))

    assert options == KubeletOptions(
        labels={"karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default"},
        taints=(Taint("karpenter.sh/unregistered", "NoExecute"), Taint("team", "NoSchedule", "blue")),
        max_pods=29,
        cluster_dns=("10.100.0.10",),
        kube_reserved={"memory": "1Gi"},
        eviction_hard={"memory.available": "5%"},
        uses_instance_store=True,
    )


def test_the_node_config_part_of_a_mime_message_counts_and_the_users_script_does_not() -> None:
    script = "#!/bin/sh\necho --max-pods=7\n"
    text = a_mime_message(('text/x-shellscript; charset="us-ascii"', script), ("application/node.eks.aws", NODE_CONFIG))

    assert parse_user_data(encoded(text)) == parse_user_data(encoded(NODE_CONFIG))


def test_of_two_node_configs_the_later_wins_field_by_field_and_flags_add_up() -> None:
    user = (
        "apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {config: {maxPods: 5, podsPerCore: 3}, "
        "flags: ['--node-labels=mine=1']}}\n"
    )
    text = a_mime_message(("application/node.eks.aws", user), ("application/node.eks.aws", NODE_CONFIG))

    options = parse_user_data(encoded(text))

    assert (options.max_pods, options.pods_per_core) == (29, 3)
    assert options.labels["mine"] == "1"
    assert options.labels["karpenter.sh/capacity-type"] == "spot"


def test_bottlerocket_settings_are_understood() -> None:
    text = """[settings.kubernetes]
max-pods = 58
[settings.kubernetes.node-labels]
"karpenter.sh/nodepool" = "default"
[settings.kubernetes.node-taints]
"karpenter.sh/unregistered" = [":NoExecute"]
team = ["blue:NoSchedule", "red:PreferNoSchedule"]
"""

    options = parse_user_data(encoded(text))

    assert options.labels == {"karpenter.sh/nodepool": "default"}
    assert options.max_pods == 58
    assert options.taints == (
        Taint("karpenter.sh/unregistered", "NoExecute"),
        Taint("team", "NoSchedule", "blue"),
        Taint("team", "PreferNoSchedule", "red"),
    )


def test_kubelet_flags_in_a_script_are_understood() -> None:
    text = (
        "#!/bin/bash\n/etc/eks/bootstrap.sh demo --use-max-pods false --kubelet-extra-args "
        '\'--node-labels="a=b,c=d" --register-with-taints="x=y:NoExecute,z:NoSchedule" --max-pods=17\'\n'
    )

    options = parse_user_data(encoded(text))

    assert options == KubeletOptions(
        labels={"a": "b", "c": "d"}, taints=(Taint("x", "NoExecute", "y"), Taint("z", "NoSchedule")), max_pods=17
    )


@pytest.mark.parametrize("nothing", [None, "", encoded("  \n")])
def test_no_user_data_leaves_the_defaults(nothing: str | None) -> None:
    assert parse_user_data(nothing) == KubeletOptions()


@pytest.mark.parametrize(
    "broken",
    [
        "not base64!",
        base64.b64encode(b"\xff\xfe").decode(),
        encoded(a_mime_message(("application/node.eks.aws", "- a list"))),
        encoded("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {config: {maxPods: many}}}"),
        encoded("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {config: {registerWithTaints: [{key: a}]}}}"),
        encoded("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: [1]}"),
    ],
)
def test_user_data_that_no_machine_boots_from_is_refused(broken: str) -> None:
    with pytest.raises(UserDataError):
        parse_user_data(broken)
