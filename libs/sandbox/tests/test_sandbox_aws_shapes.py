"""Shapes the sandbox must share with AWS: published images, messages, and errors of each protocol."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sawhorse_sandbox.aws.faults import Call, call_of, error_body, throttling
from sawhorse_sandbox.aws.images import published_images
from sawhorse_sandbox.aws.messages import KINDS, interruption

NOW = datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC)
SIGNATURE = "AWS4-HMAC-SHA256 Credential=KEY/20261129/us-west-2/{}/aws4_request, SignedHeaders=host, Signature=0"


def a_message(kind: str = "spot") -> dict[str, Any]:
    return interruption(
        kind, "i-1", account="111122223333", region="eu-west-1", zone="eu-west-1b", state="stopping", now=NOW
    )


def a_request(service: str, body: str = "", **headers: str) -> Call:
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_AUTHORIZATION": SIGNATURE.format(service), **headers}
    return call_of(environ, body.encode())


def test_every_image_has_its_own_id_and_every_parameter_points_to_one_image() -> None:
    images = list(published_images())
    parameters = [name for image in images for name in image.parameters]

    assert len({image.id for image in images}) == len(images)
    assert len(set(parameters)) == len(parameters)


@pytest.mark.parametrize(
    "parameter",
    [
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id",
        "/aws/service/eks/optimized-ami/1.30/amazon-linux-2023/arm64/nvidia/"
        "amazon-eks-node-al2023-arm64-nvidia-1.30-v20261020/image_id",
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.36/arm64/latest/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/x86_64/1.50.0/image_id",
        "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id",
    ],
)
def test_the_paths_that_node_classes_use_are_published(parameter: str) -> None:
    published = {name for image in published_images() for name in image.parameters}

    assert parameter in published


def test_windows_2025_is_not_published_before_kubernetes_1_35() -> None:
    names = [image.name for image in published_images() if "Windows_Server-2025" in image.name]

    assert sorted(name.split("-")[-2] for name in names) == ["1.35", "1.36"]


def test_the_recommended_image_is_the_newest_of_its_variant() -> None:
    images = [image for image in published_images() if "al2023-arm64-standard-1.36" in image.name]

    recommended = [image for image in images if any("/recommended/" in name for name in image.parameters)]

    assert [image.created for image in recommended] == [max(image.created for image in images)]


def test_a_spot_warning_looks_as_eventbridge_sends_it() -> None:
    message = a_message("spot")

    assert message.pop("id")
    assert message == {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "111122223333",
        "time": "2026-11-29T10:15:30Z",
        "region": "eu-west-1",
        "resources": ["arn:aws:ec2:eu-west-1b:instance/i-1"],
        "detail": {"instance-id": "i-1", "instance-action": "terminate"},
    }


def test_a_state_change_names_the_state_and_the_account() -> None:
    message = a_message("state-change")

    assert message["detail"] == {"instance-id": "i-1", "state": "stopping"}
    assert message["resources"] == ["arn:aws:ec2:eu-west-1:111122223333:instance/i-1"]


def test_a_health_event_lists_its_instances() -> None:
    message = a_message("scheduled-change")

    assert message["source"] == "aws.health"
    assert message["detail"]["affectedEntities"] == [{"entityValue": "i-1"}]
    assert message["detail"]["startTime"] == "Sun, 13 Dec 2026 10:15:30 GMT"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_the_detail_type_of_its_rule(kind: str) -> None:
    assert a_message(kind)["detail-type"] == KINDS[kind]


def test_an_unknown_kind_of_message_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown kind 'flood'"):
        a_message("flood")


def test_the_action_of_a_call_is_read_from_form_header_or_path() -> None:
    form = a_request("ec2", "Action=CreateFleet&Type=instant", CONTENT_TYPE="application/x-www-form-urlencoded")
    header = a_request("sqs", "{}", HTTP_X_AMZ_TARGET="AmazonSQS.ReceiveMessage")
    path = a_request("eks", PATH_INFO="/clusters/demo", REQUEST_METHOD="GET")

    assert form == Call("ec2", "us-west-2", "CreateFleet", json=False)
    assert header == Call("sqs", "us-west-2", "ReceiveMessage", json=True)
    assert path == Call("eks", "us-west-2", "GET /clusters/demo", json=True)


def test_each_service_is_throttled_in_its_own_words() -> None:
    words = {service: throttling(Call(service, "", "A", json=True)) for service in ("ec2", "sqs", "iam", "ssm")}

    assert words == {
        "ec2": ("RequestLimitExceeded", 503),
        "sqs": ("RequestThrottled", 403),
        "iam": ("Throttling", 400),
        "ssm": ("ThrottlingException", 400),
    }


def test_an_error_of_a_json_service_is_json_and_the_others_are_escaped_xml() -> None:
    told, content_type = error_body(Call("ssm", "", "GetParameter", json=True), "Broken", "a < b")
    xml, _ = error_body(Call("ec2", "", "CreateFleet", json=False), "Broken", "a < b")

    assert (json.loads(told)["__type"], content_type) == ("Broken", "application/x-amz-json-1.1")
    assert "<Message>a &lt; b</Message>" in xml
