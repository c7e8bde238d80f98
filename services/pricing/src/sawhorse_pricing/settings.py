"""How the pricing service can be told to run."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_runtime.settings import (
    REQUIRED,
    CommonSettings,
    address,
    at_least,
    boolean,
    duration,
    integer,
    number,
    option,
    optional,
    text,
    url,
)


@dataclass(frozen=True, kw_only=True)
class Settings(CommonSettings):
    """Built once in main(), passed down. Names that Karpenter has are Karpenter's."""

    grpc_address: str = option(
        address, "127.0.0.1:7401", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
    aws_region: str = option(text, REQUIRED, "AWS region whose types and prices are served.")
    aws_endpoint_url: str = option(optional(url), "", "Base URL of the AWS API; empty means AWS itself.")
    aws_pricing_endpoint_url: str = option(
        optional(url), "", "Base URL of the Pricing API; empty means the one of --aws-endpoint-url, or AWS itself."
    )
    aws_pricing_region: str = option(
        text,
        "",
        "Region whose Pricing API is asked, and no other; empty asks the nearest, and others where that is forbidden.",
    )
    isolated_vpc: bool = option(
        boolean,
        "false",
        "Never call the Pricing API, which has no VPC endpoint: on-demand prices are the shipped list.",
    )
    vm_memory_overhead_percent: float = option(
        at_least(number, "0"), "0.075", "Share of memory that machine and kernel keep, as a fraction."
    )
    reserved_enis: int = option(
        at_least(integer, "0"), "0", "Network interfaces of every node that pods never get; lowers the pods per node."
    )
    prefix_delegation: bool = option(
        boolean,
        "false",
        "The network plugin gives out prefixes (ENABLE_PREFIX_DELEGATION of the VPC CNI): nodes take up to 110 pods, "
        "250 above 30 vCPUs, in plans and in their kubelets alike.",
    )
    catalog_refresh_interval: timedelta = option(
        at_least(duration, "1s"), "12h", "How often types, zones and prices are fetched."
    )
    spot_refresh_interval: timedelta = option(
        at_least(duration, "1s"), "30m", "How often spot prices are fetched in between."
    )
    account_refresh_interval: timedelta = option(
        at_least(duration, "1s"), "1m", "How often capacity reservations and placement groups are looked up."
    )
    catalog_max_age: timedelta = option(
        at_least(duration, "1s"), "26h", "A catalogue older than this is warned about; it is served all the same."
    )
    catalog_fetch_timeout: timedelta = option(
        at_least(duration, "1s"), "5m", "How long one fetch of the whole catalogue may take."
    )

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        if self.vm_memory_overhead_percent >= 1:
            yield (
                f"--vm-memory-overhead-percent: {self.vm_memory_overhead_percent:g} would leave no memory; "
                "write a fraction such as 0.075"
            )
        if self.catalog_max_age <= self.catalog_refresh_interval:
            yield (
                f"--catalog-max-age: {self.catalog_max_age} is not above --catalog-refresh-interval "
                f"{self.catalog_refresh_interval}, so every catalogue would be too old; raise it"
            )
