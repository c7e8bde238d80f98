"""The fields of a NodeClass that shape a template: processor, interfaces, time-outs."""

from typing import Any

import pytest

from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.launch_fields import (
    CpuRequest,
    connection_tracking,
    cpu_request,
    has_efa,
    interface_plan,
)
from sawhorse_cloud_aws.spec import read_node_class
from sawhorse_cloud_aws.validation import validate
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_model.manifests.fields import ManifestError
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud_worlds import a_claim, an_ec2_node_class

EFA = "vpc.amazonaws.com/efa"
CLUSTER = ClusterFacts("demo", "https://demo", "Q0E=", "10.100.0.0/16", "1.36")


def a_class(**spec: Any) -> EC2NodeClass:
    return parse_ec2_node_class(an_ec2_node_class(spec=spec))


@pytest.mark.parametrize("options", [None, {}])
def test_no_options_are_no_block_at_all(options: Any) -> None:
    assert cpu_request(a_class(cpuOptions=options), an_instance_type()).to_raw() == {}


@pytest.mark.parametrize("word", ["enabled", "disabled"])
def test_either_word_of_nested_virtualization_is_sent_as_it_is(word: str) -> None:
    request = cpu_request(a_class(cpuOptions={"nestedVirtualization": word}), an_instance_type())

    assert request.to_raw() == {"NestedVirtualization": word}


@pytest.mark.parametrize(
    ("options", "cpus", "cores", "threads"),
    [
        ({"coreCount": 4}, "8", 4, 2),  # a type with two threads a core
        ({"coreCount": 4}, "4", 4, 1),  # Graviton
        ({"threadsPerCore": 1}, "4", 4, 1),  # an 8 vCPU type with one thread a core
        ({"coreCount": 2, "threadsPerCore": 1}, "2", 2, 1),
    ],
)
def test_the_count_that_is_left_out_is_the_types_own(options: Any, cpus: str, cores: int, threads: int) -> None:
    request = cpu_request(a_class(cpuOptions=options), an_instance_type(cpu=cpus))

    assert request == CpuRequest("", cores, threads)
    assert request.to_raw() == {"CoreCount": cores, "ThreadsPerCore": threads}


def test_a_claim_that_asks_for_efa_gets_all_efa_interfaces_of_its_type() -> None:
    kind = an_instance_type(extra={EFA: "4"})

    assert interface_plan(a_class(), a_claim(requests={EFA: "1"}), kind).efa == 4
    assert interface_plan(a_class(), a_claim(), kind).efa == 0


def test_interfaces_of_the_spec_go_before_those_of_the_claim() -> None:
    only = [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]
    asking = a_claim(requests={EFA: "1"})

    plan = interface_plan(a_class(networkInterfaces=only), asking, an_instance_type(extra={EFA: "4"}))

    assert (plan.efa, len(plan.requests)) == (0, 1)
    assert not has_efa(asking, a_class(networkInterfaces=only))
    assert has_efa(asking, None)


def test_time_outs_are_read_as_seconds_or_durations() -> None:
    node_class = a_class(
        connectionTracking={"tcpEstablishedTimeout": "1h", "udpStreamTimeout": 60, "udpTimeout": "30s"}
    )

    assert connection_tracking(node_class) == {"TcpEstablishedTimeout": 3600, "UdpStreamTimeout": 60, "UdpTimeout": 30}
    assert connection_tracking(a_class()) == {}


@pytest.mark.parametrize("value", [29, 61, "1.5s", "soon", True, 30.5, [], "61s"])
def test_a_time_out_that_ec2_would_refuse_is_a_condition_that_names_it(value: Any) -> None:
    parsed, misfits = read_node_class(an_ec2_node_class(spec={"connectionTracking": {"udpTimeout": value}}))

    condition = validate(parsed, misfits, [], CLUSTER)

    assert (condition.status, condition.reason) == ("False", "InvalidSpec")
    assert condition.message.startswith("spec.connectionTracking.udpTimeout: ")
    with pytest.raises(ManifestError):
        connection_tracking(parsed)
