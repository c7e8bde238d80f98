"""Which instance types a NodeClass can use at all, and why not: the answer to "why is this type not offered".

A type that fails keeps its labels and size; only its offerings become unavailable. Each check returns a reason in
plain words, or an empty text when it passes. The first that fails counts.
"""

from collections.abc import Callable
from functools import lru_cache

from sawhorse_catalog.aws.node_class import ClassView, InterfaceRequest
from sawhorse_catalog.facts import InstanceFacts, NetworkCard

NESTED_VIRTUALIZATION = "nested-virtualization"
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}

Check = Callable[[InstanceFacts, ClassView], str]


def architecture(facts: InstanceFacts) -> str:
    """The node's `kubernetes.io/arch`: the first architecture that Kubernetes knows, or empty."""
    return _first_known(facts.architectures)


@lru_cache(maxsize=64)
def _first_known(names: tuple[str, ...]) -> str:
    # Asked several times for each type; of lists of architectures there are a handful.
    return next((ARCHITECTURES[name] for name in names if name in ARCHITECTURES), "")


def incompatibility(facts: InstanceFacts, view: ClassView) -> str:
    """Why the NodeClass cannot use the type; empty when it can."""
    for check in CHECKS:
        reason = check(facts, view)
        if reason:
            return reason
    return ""


def check_listed(facts: InstanceFacts, view: ClassView) -> str:
    """A type that EC2 has withdrawn serves the nodes that still run; nothing is launched on it."""
    return "EC2 no longer lists it" if facts.retired else ""


def check_machine(facts: InstanceFacts, view: ClassView) -> str:
    """Kubernetes images exist for hvm machines of two architectures only."""
    if not architecture(facts):
        return f"no Kubernetes image boots on {', '.join(facts.architectures) or 'its architecture'}"
    if facts.virtualization and "hvm" not in facts.virtualization:
        return f"virtualization is {', '.join(facts.virtualization)}; images need hvm"
    return ""


def check_network_interfaces(facts: InstanceFacts, view: ClassView) -> str:
    """Every interface of `spec.networkInterfaces` must have its card, its slot and its addresses."""
    if not view.interfaces:
        return ""
    network = facts.network
    if not network.cards:
        return "nothing is known about its network cards, which spec.networkInterfaces needs"
    if network.ena == "unsupported":
        return "it has no ENA networking, which spec.networkInterfaces needs"
    cards = {card.index: card for card in network.cards}
    for wanted in view.interfaces:
        reason = _misfit(wanted, cards, len(network.cards))
        if reason:
            return reason
    if view.prefix_count + 1 > network.ipv4_per_interface:
        return (
            f"spec.ipPrefixCount {view.prefix_count} and the interface's own address exceed its "
            f"{network.ipv4_per_interface} IPv4 addresses per interface"
        )
    if view.efa_only > network.efa_max_interfaces:
        return f"{view.efa_only} efa-only interfaces are asked, it takes {network.efa_max_interfaces}"
    return ""


def _misfit(wanted: InterfaceRequest, cards: dict[int, NetworkCard], count: int) -> str:
    card = cards.get(wanted.card)
    if wanted.card >= count or card is None:
        return f"network card {wanted.card} is asked, it has {count}"
    if wanted.device >= card.max_interfaces:
        return f"device {wanted.device} of network card {wanted.card} is asked, that card takes {card.max_interfaces}"
    return ""


def check_family(facts: InstanceFacts, view: ClassView) -> str:
    """AL2023 has no image for first-generation Graviton."""
    if view.family.name == "AL2023" and facts.name.startswith("a1."):
        return "AL2023 does not run on a1"
    return ""


def check_nested_virtualization(facts: InstanceFacts, view: ClassView) -> str:
    """Only `enabled` filters; `disabled` is sent to every type."""
    if view.nested_virtualization and NESTED_VIRTUALIZATION not in facts.processor_features:
        return "spec.cpuOptions.nestedVirtualization is enabled, its processor does not support it"
    return ""


def check_cores(facts: InstanceFacts, view: ClassView) -> str:
    """Cores and threads must be among those that EC2 accepts for the type."""
    if view.core_count is not None and view.core_count not in facts.valid_cores:
        return f"spec.cpuOptions.coreCount is {view.core_count}, it takes {_listed(facts.valid_cores)}"
    threads = view.threads_per_core
    if threads is not None and threads not in facts.valid_threads_per_core:
        return f"spec.cpuOptions.threadsPerCore is {threads}, it takes {_listed(facts.valid_threads_per_core)}"
    return ""


def check_placement_group(facts: InstanceFacts, view: ClassView) -> str:
    """The group's strategy must be one that the type supports."""
    if view.placement_missing:
        return "the placement group of spec.placementGroupSelector is not known"
    strategy = view.placement_strategy
    if strategy and strategy not in facts.placement_strategies:
        return f"the placement group's strategy is {strategy}, it supports {_listed(facts.placement_strategies)}"
    return ""


def check_connection_tracking(facts: InstanceFacts, view: ClassView) -> str:
    """Time-outs of connection tracking are a feature of the Nitro hypervisor; bare metal has none."""
    if view.connection_tracking and facts.hypervisor != "nitro":
        return f"spec.connectionTracking needs the nitro hypervisor, it has {facts.hypervisor or 'none'}"
    return ""


def _listed(values: tuple[int, ...] | tuple[str, ...]) -> str:
    return ", ".join(str(v) for v in values) or "no choice"


CHECKS: tuple[Check, ...] = (
    check_listed,
    check_machine,
    check_network_interfaces,
    check_family,
    check_nested_virtualization,
    check_cores,
    check_placement_group,
    check_connection_tracking,
)
