"""Facts about EC2 instance types, from the table that the catalogue ships. Reads the table once per process."""

import functools
from importlib.resources import files

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """One kind of GPU of a type; a shared one has count 0."""

    manufacturer: str
    count: int = 0


class Neuron(msgspec.Struct, frozen=True, rename="camel"):
    """One kind of Trainium or Inferentia device of a type."""

    count: int = 0
    cores_per_device: int = 0


class Card(msgspec.Struct, frozen=True, rename="camel"):
    """A network card."""

    index: int
    max_interfaces: int


class Network(
    msgspec.Struct, frozen=True, rename={"ipv4_per_interface": "ipv4PerInterface", "default_card": "defaultCard"}
):
    """How many addresses a machine can have."""

    ipv4_per_interface: int = 0
    default_card: int = 0
    cards: tuple[Card, ...] = ()


class InstanceStorage(msgspec.Struct, frozen=True, rename={"total_gb": "totalGB"}):
    """Local disks, all together."""

    total_gb: int  # decimal gigabytes


class TypeFacts(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB", "instance_storage": "instanceStorage"}):
    """What the fake kubelet needs to know of a type."""

    name: str
    architectures: tuple[str, ...]  # EC2's words: x86_64, arm64
    vcpus: int
    memory_mib: int
    network: Network = Network()
    gpus: tuple[Gpu, ...] = ()
    neuron: tuple[Neuron, ...] = ()
    instance_storage: InstanceStorage | None = None

    def eni_limit(self) -> int:
        """Return how many pods can have an address of the default network card's interfaces; 0 when unknown."""
        interfaces = next((c.max_interfaces for c in self.network.cards if c.index == self.network.default_card), 0)
        return interfaces * (self.network.ipv4_per_interface - 1) + 2 if interfaces else 0


class UnknownTypeError(LookupError):
    """EC2 has no such instance type in the shipped table."""


@functools.cache
def _table() -> dict[str, TypeFacts]:
    text = (files("sawhorse_catalog") / "data" / "ec2-instance-types.jsonl").read_bytes()
    decoder = msgspec.json.Decoder(TypeFacts)
    return {facts.name: facts for facts in decoder.decode_lines(text)}


def get_type_facts(name: str) -> TypeFacts:
    """Return the facts of a type.

    Raises:
        UnknownTypeError: not in the table.
    """
    try:
        return _table()[name]
    except KeyError as err:
        raise UnknownTypeError(f"instance type {name!r} is not in the shipped table") from err
