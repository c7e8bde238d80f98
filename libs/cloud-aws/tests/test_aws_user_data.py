"""User data: what a node reads at its first boot."""

import base64
import email
from collections.abc import Mapping
from email.message import Message
from typing import Any

import pytest
import yaml

from sawhorse_cloud_aws.boot import ClusterFacts, node_labels
from sawhorse_cloud_aws.mime import mime_problem
from sawhorse_cloud_aws.user_data import (
    build_user_data,
    user_data_bytes,
    user_data_problem,
)
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_model.taints import Taint
from sawhorse_sandbox.kubelet.userdata import parse_user_data
from sawhorse_testing.cloud_worlds import an_ec2_node_class

CLUSTER = ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36")
SCRIPT = "#!/bin/bash\necho hello\n"


def a_class(**spec: Any) -> EC2NodeClass:
    return parse_ec2_node_class(an_ec2_node_class(spec=spec))


def built(node_class: EC2NodeClass, cluster: ClusterFacts = CLUSTER, **more: Any) -> str:
    arguments: dict[str, Any] = {"labels": {}, "taints": (), "max_pods": 29, **more}
    return base64.b64decode(build_user_data(node_class, cluster, **arguments)).decode()


def parts(text: str) -> list[Message]:
    return [p for p in email.message_from_bytes(text.encode()).walk() if not p.is_multipart()]


def body(part: Message) -> str:
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def node_config(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(body(parts(text)[-1]))
    return found


def test_our_node_config_names_the_cluster_and_joins_it() -> None:
    config = node_config(built(a_class()))

    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert config["spec"]["cluster"] == {
        "name": "demo",
        "apiServerEndpoint": "https://demo.example",
        "certificateAuthority": "Q0E=",
        "cidr": "10.100.0.0/16",
    }


def test_the_kubelet_gets_max_pods_dns_and_the_unregistered_taint() -> None:
    kubelet = node_config(built(a_class(), taints=[Taint("b", "NoSchedule", "x"), Taint("a", "NoExecute")]))["spec"][
        "kubelet"
    ]["config"]

    assert kubelet == {
        "maxPods": 29,
        "clusterDNS": ["10.100.0.10"],
        "registerWithTaints": [
            {"key": "a", "effect": "NoExecute"},
            {"key": "b", "value": "x", "effect": "NoSchedule"},
            {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        ],
    }


def test_the_order_of_labels_and_taints_does_not_change_a_byte() -> None:
    one, two = Taint("a", "NoSchedule"), Taint("b", "NoSchedule")

    first = built(a_class(), labels={"x": "1", "y": "2"}, taints=(one, two))
    second = built(a_class(), labels={"y": "2", "x": "1"}, taints=(two, one))

    assert first == second


def test_the_users_kubelet_settings_are_passed_on_and_their_max_pods_stays_as_typed() -> None:
    node_class = a_class(kubelet={"maxPods": 42, "podsPerCore": 4, "clusterDNS": ["10.9.9.9"], "logging": {"v": 1}})

    kubelet = node_config(built(node_class, max_pods=8))["spec"]["kubelet"]["config"]

    assert (kubelet["maxPods"], kubelet["podsPerCore"]) == (42, 4)
    assert (kubelet["clusterDNS"], kubelet["logging"]) == (["10.9.9.9"], {"v": 1})


def test_labels_that_node_admission_refuses_are_left_for_registration() -> None:
    labels = {
        "team": "a",
        "karpenter.sh/nodepool": "default",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.k8s.io/x": "1",
        "node-restriction.kubernetes.io/y": "2",
        "example.com/kubernetes.io": "kept",
    }

    assert node_labels(labels) == {
        "example.com/kubernetes.io": "kept",
        "karpenter.sh/do-not-sync-taints": "true",
        "karpenter.sh/nodepool": "default",
        "team": "a",
    }


def test_local_disks_are_joined_only_when_asked_for() -> None:
    assert "instance" not in node_config(built(a_class()))["spec"]
    assert node_config(built(a_class(instanceStorePolicy="RAID0")))["spec"]["instance"] == {
        "localStorage": {"strategy": "RAID0"}
    }


def test_an_ipv6_cluster_has_its_dns_at_the_tenth_address() -> None:
    cluster = ClusterFacts("demo", "https://demo", "Q0E=", "fd12:3456::/108", "1.36")

    assert cluster.is_ipv6
    assert node_config(built(a_class(), cluster))["spec"]["kubelet"]["config"]["clusterDNS"] == ["fd12:3456::a"]


def test_a_script_comes_before_ours_as_a_shell_part() -> None:
    first, second = parts(built(a_class(userData=SCRIPT)))

    assert first.get_content_type() == "text/x-shellscript"
    assert body(first).strip() == SCRIPT.strip()
    assert second.get_content_type() == "application/node.eks.aws"


def test_a_yaml_map_is_a_node_config_of_the_users() -> None:
    text = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      logging: {}\n"

    first, _ = parts(built(a_class(userData=text)))

    assert first.get_content_type() == "application/node.eks.aws"
    assert yaml.safe_load(body(first))["spec"]["kubelet"]["config"] == {"logging": {}}


@pytest.mark.parametrize("text", ["echo hello", "date: 2024-13-45", "a: [", "# only a comment"])
def test_text_that_is_no_yaml_map_is_a_script(text: str) -> None:
    assert parts(built(a_class(userData=text)))[0].get_content_type() == "text/x-shellscript"


MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo "grüße"

--BOUNDARY
Content-Type: text/cloud-config
Merge-Type: list(append)

#cloud-config
packages: [jq]
--BOUNDARY--
"""


@pytest.mark.parametrize("text", [MIME, MIME.replace("\n", "\r\n"), "\n\n" + MIME])
def test_l02_a_mime_document_is_split_into_its_parts_whatever_its_line_ends(text: str) -> None:
    result = built(a_class(userData=text))

    first, second, third = parts(result)
    assert "\r" not in result
    assert 'echo "grüße"' in result
    assert body(first).startswith("#!/bin/bash\necho ")
    assert (second.get_content_type(), second["Merge-Type"]) == ("text/cloud-config", "list(append)")
    assert third.get_content_type() == "application/node.eks.aws"


def test_a_document_with_a_single_part_is_one_part() -> None:
    first, _ = parts(built(a_class(userData="Content-Type: text/x-shellscript\n\n#!/bin/sh\ntrue\n")))

    assert body(first) == "#!/bin/sh\ntrue\n"


def test_an_encoded_part_is_decoded_and_a_compressed_one_stays_encoded() -> None:
    script, packed = base64.b64encode(SCRIPT.encode()).decode(), base64.b64encode(b"\x1f\x8b\xff\xfe").decode()
    text = (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
        f"--B\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n{script}\n"
        f"--B\nContent-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n{packed}\n--B--\n"
    )

    first, second, _ = parts(built(a_class(userData=text)))

    assert (first["Content-Transfer-Encoding"], body(first).strip()) == (None, SCRIPT.strip())
    assert second.get_payload(decode=True) == b"\x1f\x8b\xff\xfe"


def test_a_script_that_holds_our_boundary_does_not_end_its_part() -> None:
    first, second = parts(built(a_class(userData="#!/bin/sh\ncat <<X\n--//\nX\n")))

    assert "--//" in body(first)
    assert second.get_content_type() == "application/node.eks.aws"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--BOUNDARY\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n", "line 1: '--BOUNDARY' is a boundary"),
        ("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n--X\n", "line 2: the multipart Content-Type names no"),
        (MIME.replace("--BOUNDARY", "--OTHER"), "line 2: no line --BOUNDARY follows"),
    ],
)
def test_l02_a_broken_mime_document_is_refused_with_the_line_named(text: str, told: str) -> None:
    assert told in mime_problem(text)
    assert user_data_problem(a_class(userData=text)).startswith("spec.userData line ")


@pytest.mark.parametrize("text", ["", SCRIPT, MIME, MIME.replace("\n", "\r\n"), "-- comment\nselect 1"])
def test_good_user_data_has_no_problem(text: str) -> None:
    assert mime_problem(text) == ""


def test_custom_user_data_is_passed_on_as_it_is() -> None:
    node_class = a_class(amiFamily="Custom", userData="\r\nanything\r\n")

    assert built(node_class, labels={"a": "b"}) == "\r\nanything\r\n"
    assert user_data_problem(a_class(amiFamily="Custom", userData="--X\nContent-Type: y\n")) == ""


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "abcd"])
def test_the_size_is_that_before_base64(text: str) -> None:
    assert user_data_bytes(base64.b64encode(text.encode()).decode()) == len(text)


def test_a_kubelet_reads_from_it_what_the_plan_counted_with() -> None:
    encoded = build_user_data(
        a_class(userData=SCRIPT, kubelet={"kubeReserved": {"cpu": "100m"}}),
        CLUSTER,
        labels={"team": "a"},
        taints=(Taint("gpu", "NoSchedule", "yes"),),
        max_pods=58,
    )

    told = parse_user_data(encoded)

    assert told.labels == {"team": "a", "karpenter.sh/do-not-sync-taints": "true"}
    assert [t.key for t in told.taints] == ["gpu", "karpenter.sh/unregistered"]
    assert (told.max_pods, told.cluster_dns, told.kube_reserved) == (58, ("10.100.0.10",), {"cpu": "100m"})
