"""User data of the families that boot otherwise than AL2023: Bottlerocket's settings, scripts of AL2 and Windows."""

import base64
import shlex
import tomllib
from datetime import UTC, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_cloud_aws import mime
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.bottlerocket import image_version, toml_problem
from sawhorse_cloud_aws.toml_text import write_toml
from sawhorse_cloud_aws.user_data import build_user_data, unsupported, user_data_problem
from sawhorse_model.aws import ALIAS_FAMILIES, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.taints import Taint
from sawhorse_sandbox.kubelet.userdata import parse_user_data
from sawhorse_testing.cloud_worlds import an_ec2_node_class

CLUSTER = ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36")
KUBELET = {
    "maxPods": 20,
    "podsPerCore": 5,
    "clusterDNS": ["10.9.9.9"],
    "systemReserved": {"memory": "200Mi", "cpu": "100m"},
    "kubeReserved": {"memory": "300Mi"},
    "evictionHard": {"memory.available": "5%"},
    "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}


def a_class(alias: str = "bottlerocket@latest", **spec: Any) -> EC2NodeClass:
    return parse_ec2_node_class(an_ec2_node_class(spec={"amiSelectorTerms": [{"alias": alias}], **spec}))


def built(node_class: EC2NodeClass, cluster: ClusterFacts = CLUSTER, **more: Any) -> str:
    arguments: dict[str, Any] = {"labels": {"team": "a"}, "taints": (), "max_pods": 29, **more}
    return base64.b64decode(build_user_data(node_class, cluster, **arguments)).decode()


def settings(node_class: EC2NodeClass, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(built(node_class, **more))["settings"]
    return found


@pytest.mark.parametrize("alias", [f"{alias}@latest" for alias in ALIAS_FAMILIES])
def test_every_family_of_an_alias_is_supported(alias: str) -> None:
    assert unsupported(a_class(alias)) == ""


@pytest.mark.parametrize("alias", ["al2@latest", "al2023@latest", "bottlerocket@latest", "windows2022@latest"])
def test_a_kubelet_of_any_family_reads_what_the_plan_counted_with(alias: str) -> None:
    encoded = build_user_data(
        a_class(alias), CLUSTER, labels={"team": "a"}, taints=(Taint("gpu", "NoSchedule", "yes"),), max_pods=58
    )

    told = parse_user_data(encoded)

    assert told.labels == {"team": "a", "karpenter.sh/do-not-sync-taints": "true"}
    assert [(t.key, t.value, t.effect) for t in told.taints] == [
        ("gpu", "yes", "NoSchedule"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    ]
    assert told.max_pods == 58


def test_bottlerocket_is_told_the_cluster() -> None:
    assert settings(a_class()) == {
        "kubernetes": {
            "cluster-name": "demo",
            "api-server": "https://demo.example",
            "cluster-certificate": "Q0E=",
            "max-pods": 29,
            "node-labels": {"team": "a", "karpenter.sh/do-not-sync-taints": "true"},
            "node-taints": {"karpenter.sh/unregistered": [":NoExecute"]},
        }
    }


def test_bottlerockets_users_settings_are_kept_and_ours_win() -> None:
    text = """
[settings.kernel.sysctl]
"vm.max_map_count" = "262144"
[settings.kubernetes]
cluster-name = "mine"
max-pods = 5
log-level = 3
[settings.kubernetes.node-labels]
team = "theirs"
own = "kept"
[settings.kubernetes.node-taints]
mine = ["x:NoSchedule"]
"""

    found = settings(a_class(userData=text.replace("\n", "\r\n")))

    assert found["kernel"] == {"sysctl": {"vm.max_map_count": "262144"}}
    kubernetes = found["kubernetes"]
    assert (kubernetes["cluster-name"], kubernetes["max-pods"], kubernetes["log-level"]) == ("demo", 29, 3)
    assert (kubernetes["node-labels"]["team"], kubernetes["node-labels"]["own"]) == ("a", "kept")
    assert list(kubernetes["node-taints"]) == ["karpenter.sh/unregistered"]


def test_bottlerockets_kubelet_settings_have_its_own_names() -> None:
    kubernetes = settings(a_class(kubelet={k: v for k, v in KUBELET.items() if k != "podsPerCore"}))["kubernetes"]

    assert {k: v for k, v in kubernetes.items() if k not in ("node-labels", "node-taints")} == {
        "cluster-name": "demo",
        "api-server": "https://demo.example",
        "cluster-certificate": "Q0E=",
        "max-pods": 20,
        "cluster-dns-ip": "10.9.9.9",
        "system-reserved": {"cpu": "100m", "memory": "200Mi"},
        "kube-reserved": {"memory": "300Mi"},
        "eviction-hard": {"memory.available": "5%"},
        "eviction-soft": {"memory.available": "10%"},
        "eviction-soft-grace-period": {"memory.available": "1m"},
        "eviction-max-pod-grace-period": 60,
        "image-gc-high-threshold-percent": "85",
        "image-gc-low-threshold-percent": "80",
        "cpu-cfs-quota-enforced": False,
    }


@pytest.mark.parametrize(
    ("spec", "alone"),
    [
        ({"alias": "bottlerocket@latest"}, True),
        ({"alias": "bottlerocket@v1.46.0"}, True),
        ({"alias": "bottlerocket@1.45.9"}, False),
        ({"name": "bottlerocket-aws-k8s-1.36-x86_64-v1.51.1-0123abcd"}, True),
        ({"name": "bottlerocket-aws-k8s-1.36-x86_64-v1.30.0-0123abcd"}, False),
        ({"id": "ami-1"}, False),
    ],
)
def test_bottlerockets_own_disks_are_bound_as_its_version_knows(spec: dict[str, str], alone: bool) -> None:
    node_class = a_class(amiSelectorTerms=[spec], amiFamily="Bottlerocket", instanceStorePolicy="RAID0")

    command = settings(node_class)["bootstrap-commands"]["000-mount-instance-storage"]

    assert (command["mode"], command["essential"]) == ("always", True)
    assert command["commands"][0] == ["apiclient", "ephemeral-storage", "init"]
    assert ("--dirs" not in command["commands"][1]) is alone


def test_bottlerockets_version_is_the_oldest_that_may_boot() -> None:
    amis = [{"id": f"ami-{n}", "name": f"bottlerocket-aws-k8s-1.36-arm64-v1.{n}.0"} for n in (51, 44)]
    node_class = parse_ec2_node_class(
        an_ec2_node_class(
            spec={"amiSelectorTerms": [{"id": "ami-51"}], "amiFamily": "Bottlerocket"}, status={"amis": amis}
        )
    )

    assert image_version(node_class) == (1, 44, 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[settings", "is not TOML"),
        ("a = 1\nb =\n", "line 2"),
        ("settings = 1", "settings is no table"),
        ("[settings]\nkubernetes = []", "kubernetes is no table"),
        ("[settings]\nbootstrap-commands = 1", "bootstrap-commands is no table"),
        ("#!/bin/sh\necho hello", "is not TOML"),
    ],
)
def test_settings_that_bottlerocket_cannot_read_are_refused(text: str, told: str) -> None:
    assert told in toml_problem(text)
    assert user_data_problem(a_class(userData=text)).startswith("spec.userData is not")


_KEYS = st.text(min_size=1, max_size=8)
_LEAVES = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.just(UTC))
    | st.times()
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), _VALUES, max_size=4))
def test_toml_that_is_written_reads_back_as_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(write_toml(document)) == document


def test_what_toml_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        write_toml({"a": None})
    assert write_toml({"t": time(7, 30)}) == "t = 07:30:00\n"


def bootstrap_words(text: str) -> list[str]:
    """The words of AL2's last script, as the shell sees them."""
    script = mime.split(text)[-1].body.strip().splitlines()
    assert script[0] == "#!/bin/bash -xe"
    return shlex.split(script[1])


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_al2_calls_its_bootstrap_program_after_the_users_parts() -> None:
    text = built(a_class("al2@latest", userData="#!/bin/sh\necho hello\n"))

    words = bootstrap_words(text)
    assert "echo hello" in mime.split(text)[0].body
    assert words[:2] == ["/etc/eks/bootstrap.sh", "demo"]
    assert option(words, "--apiserver-endpoint") == "https://demo.example"
    assert option(words, "--b64-cluster-ca") == "Q0E="
    assert option(words, "--dns-cluster-ip") == "10.100.0.10"
    assert option(words, "--use-max-pods") == "false"
    assert not {"--ip-family", "--local-disks"} & set(words)


def test_al2_is_told_of_ipv6_and_of_its_own_disks() -> None:
    cluster = ClusterFacts("demo", "https://demo", "Q0E=", "fd12:3456::/108", "1.32")

    words = bootstrap_words(built(a_class("al2@latest", instanceStorePolicy="RAID0"), cluster))

    assert (option(words, "--ip-family"), option(words, "--local-disks")) == ("ipv6", "raid0")
    assert option(words, "--dns-cluster-ip") == "fd12:3456::a"


def test_the_kubelets_flags_are_all_there_and_in_one_order() -> None:
    words = bootstrap_words(built(a_class("al2@latest", kubelet=KUBELET), taints=(Taint("b", "NoSchedule", "x"),)))

    assert option(words, "--kubelet-extra-args").split(" ") == [
        '--node-labels="karpenter.sh/do-not-sync-taints=true,team=a"',
        '--register-with-taints="b=x:NoSchedule,karpenter.sh/unregistered:NoExecute"',
        "--max-pods=20",
        "--pods-per-core=5",
        '--system-reserved="cpu=100m,memory=200Mi"',
        '--kube-reserved="memory=300Mi"',
        '--eviction-hard="memory.available<5%"',
        '--eviction-soft="memory.available<10%"',
        '--eviction-soft-grace-period="memory.available=1m"',
        "--eviction-max-pod-grace-period=60",
        "--image-gc-high-threshold=85",
        "--image-gc-low-threshold=80",
        "--cpu-cfs-quota=false",
    ]


def test_a_quote_in_a_value_stays_inside_its_word() -> None:
    cluster = ClusterFacts("it's", "https://demo", "Q0E=", "10.100.0.0/16", "1.32")

    assert bootstrap_words(built(a_class("al2@latest"), cluster))[1] == "it's"
    assert "-EKSClusterName 'it''s' " in built(a_class("windows2022@latest"), cluster)


@pytest.mark.parametrize(
    "typed",
    ["Write-Host hello", "Write-Host hello\r\n", "<powershell>\nWrite-Host hello\n</powershell>\n"],
)
def test_windows_runs_the_users_lines_and_then_its_bootstrap_script(typed: str) -> None:
    lines = built(a_class("windows2022@latest", userData=typed)).splitlines()

    assert (lines[0], lines[1], lines[-1]) == ("<powershell>", "Write-Host hello", "</powershell>")
    assert lines[2].endswith(r'"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"')
    assert lines[3].startswith("& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint ")
    assert "-Base64ClusterCA 'Q0E=' -KubeletExtraArgs '--node-labels=" in lines[3]
    assert lines[3].endswith("-DNSClusterIP '10.100.0.10'")
    assert len(lines) == 5
