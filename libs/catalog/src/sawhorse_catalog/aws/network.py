"""Network figures that DescribeInstanceTypes does not give: baseline bandwidth and branch interfaces, from a table."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sawhorse_catalog.aws.node_class import ClassView
from sawhorse_catalog.facts import InstanceFacts

HOST_NETWORK_PODS = 2  # the network plugin and kube-proxy, which need no address of their own


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """Baseline bandwidth in Mbit/s (None where AWS says only "up to"), and interfaces for pods with their own group."""

    bandwidth_mbps: int | None
    branch_interfaces: int
    trunking: bool


@cache
def network_table() -> Mapping[str, NetworkFacts]:
    """Type name → figures. Read once from the package's data."""
    text = files("sawhorse_catalog").joinpath("data/ec2-network-facts.csv").read_text(encoding="utf-8")
    return {
        row["instance_type"]: NetworkFacts(
            bandwidth_mbps=int(row["bandwidth_mbps"]) if row["bandwidth_mbps"] else None,
            branch_interfaces=int(row["branch_interfaces"] or 0),
            trunking=row["trunking_compatible"] == "true",
        )
        for row in csv.DictReader(text.splitlines())
    }


def eni_limit(facts: InstanceFacts, view: ClassView, reserved_enis: int) -> int:
    """Pods that the addresses of the default network card can serve, plus the two on the host's own network.

    0 when no interface is left to use.
    """
    network = facts.network
    card = next((c.max_interfaces for c in network.cards if c.index == network.default_card), network.max_interfaces)
    usable = card - reserved_enis - view.efa_only_on_first_card
    if usable <= 0 or network.ipv4_per_interface <= 0:
        return 0
    return usable * (network.ipv4_per_interface - 1) + HOST_NETWORK_PODS
