"""Why a type is not offered under a NodeClass: each check, its reason, and what stays untouched."""

from typing import Any

import pytest

from sawhorse_catalog.aws import Resolution, resolve
from sawhorse_catalog.aws.compatibility import CHECKS, Check
from sawhorse_catalog.aws.node_class import class_view
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

PRICES = PriceBook(on_demand={"m5.large": 0.096, "m8i.xlarge": 0.2, "c8i.2xlarge": 0.4}, spot_share=0.4)


def under(spec: dict[str, Any], *facts: InstanceFacts, placement_strategy: str = "") -> Resolution:
    return resolve(
        facts,
        an_ec2_node_class(spec),
        PRICES,
        region="us-east-1",
        zones={},
        placement_strategy=placement_strategy,
    )


def reason(spec: dict[str, Any], facts: InstanceFacts, placement_strategy: str = "") -> str:
    return under(spec, facts, placement_strategy=placement_strategy).excluded.get(facts.name, "")


def interface(card: int, device: int, kind: str = "interface") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def test_an_incompatible_type_stays_with_its_size_and_only_its_offerings_go() -> None:
    usual = under({}, an_ec2_type("m5.large")).instance_types[0]

    ruled_out = under({"cpuOptions": {"nestedVirtualization": "enabled"}}, an_ec2_type("m5.large"))

    (found,) = ruled_out.instance_types
    assert usual.cheapest() is not None
    assert found.cheapest() is None
    assert (found.allocatable, found.requirements) == (usual.allocatable, usual.requirements)
    assert "nestedVirtualization" in ruled_out.excluded["m5.large"]


@pytest.mark.parametrize("options", [None, {}, {"nestedVirtualization": "disabled"}])
def test_only_enabled_nested_virtualization_filters(options: dict[str, str] | None) -> None:
    spec = {} if options is None else {"cpuOptions": options}

    assert reason(spec, an_ec2_type("m5.large")) == ""


def test_nested_virtualization_keeps_the_types_whose_processor_has_it() -> None:
    enabled = {"cpuOptions": {"nestedVirtualization": "enabled"}}

    assert reason(enabled, an_ec2_type("m8i.xlarge")) == ""
    assert reason(enabled, an_ec2_type("m8i.xlarge", processor_features=())) != ""


def test_core_counts_are_checked_against_what_each_type_takes() -> None:
    four = {"cpuOptions": {"coreCount": 4}}

    assert "takes 1, 2" in reason(four, an_ec2_type("m8i.xlarge"))
    assert reason(four, an_ec2_type("c8i.2xlarge")) == ""
    assert "threadsPerCore is 2" in reason({"cpuOptions": {"threadsPerCore": 2}}, an_ec2_type("m6g.large"))
    assert "no choice" in reason({"cpuOptions": {"coreCount": 2}}, an_ec2_type("m5.metal"))


def test_al2023_does_not_run_on_first_generation_graviton() -> None:
    bottlerocket = {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}

    assert "a1" in reason({}, an_ec2_type("a1.large"))
    assert reason(bottlerocket, an_ec2_type("a1.large")) == ""


def test_machines_that_no_kubernetes_image_boots_on_are_excluded() -> None:
    assert "arm64_mac" in reason({}, an_ec2_type("mac2.metal"))
    assert "paravirtual" in reason({}, an_ec2_type("m5.large", virtualization=("paravirtual",)))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([interface(0, 0), interface(1, 0)], "network card 1 is asked, it has 1"),
        ([interface(0, 3)], "device 3 of network card 0"),
        ([interface(0, 0), interface(0, 1, "efa-only")], "1 efa-only interfaces are asked, it takes 0"),
        ([interface(0, 0), interface(0, 2)], ""),
    ],
)
def test_each_interface_needs_its_card_and_its_slot(asked: list[dict[str, Any]], why: str) -> None:
    found = reason({"networkInterfaces": asked}, an_ec2_type("m5.large"))

    assert (why in found) if why else found == ""


def test_interfaces_need_ena_and_room_for_the_prefixes() -> None:
    asked = {"networkInterfaces": [interface(0, 0)]}
    no_ena = an_ec2_type("m5.large").network

    assert "no ENA" in reason(asked, an_ec2_type("t2.large"))
    assert reason({**asked, "ipPrefixCount": 9}, an_ec2_type("m5.large", network=no_ena)) == ""
    assert "ipPrefixCount 10" in reason({**asked, "ipPrefixCount": 10}, an_ec2_type("m5.large"))


def test_a_prefix_count_without_interfaces_rules_nothing_out() -> None:
    assert reason({"ipPrefixCount": 100}, an_ec2_type("m5.large")) == ""


def test_connection_tracking_needs_the_nitro_hypervisor() -> None:
    tracking = {"connectionTracking": {"udpTimeout": "30s"}}

    assert reason(tracking, an_ec2_type("m5.large")) == ""
    assert "it has xen" in reason(tracking, an_ec2_type("t2.large"))
    assert "it has none" in reason(tracking, an_ec2_type("m5.metal"))


def test_the_strategy_of_the_placement_group_must_be_supported() -> None:
    assert reason({}, an_ec2_type("m5.large"), "cluster") == ""
    assert "strategy is cluster" in reason({}, an_ec2_type("m5.large", placement_strategies=("spread",)), "cluster")


# Check → a NodeClass's fields, a type that they rule out, and the strategy of its placement group.
EXAMPLES: dict[str, tuple[dict[str, Any], InstanceFacts, str]] = {
    "check_listed": ({}, an_ec2_type("m5.large", retired=True), ""),
    "check_machine": ({}, an_ec2_type("mac2.metal"), ""),
    "check_network_interfaces": ({"networkInterfaces": [interface(7, 0)]}, an_ec2_type("m5.large"), ""),
    "check_family": ({}, an_ec2_type("a1.large"), ""),
    "check_nested_virtualization": (
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        an_ec2_type("m8i.xlarge", processor_features=()),
        "",
    ),
    "check_cores": ({"cpuOptions": {"coreCount": 4}}, an_ec2_type("m8i.xlarge"), ""),
    "check_placement_group": ({}, an_ec2_type("m5.large", placement_strategies=()), "cluster"),
    "check_connection_tracking": ({"connectionTracking": {"udpTimeout": "30s"}}, an_ec2_type("t2.large"), ""),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_check_rules_its_example_out_alone_and_its_reason_is_the_one_that_is_told(check: Check) -> None:
    spec, facts, strategy = EXAMPLES[check.__name__]
    view = class_view(an_ec2_node_class(spec), placement_strategy=strategy)

    told = {each.__name__: found for each in CHECKS if (found := each(facts, view))}

    assert set(told) == {check.__name__}
    assert reason(spec, facts, strategy) == told[check.__name__]
