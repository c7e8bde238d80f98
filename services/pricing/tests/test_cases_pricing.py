"""Cases of the catalogue as the service serves it."""

import json
from typing import Any

import pytest
from msgspec import structs

from sawhorse_catalog.aws import ResolveSettings
from sawhorse_cloud_aws.catalog_source import price_from_product
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.grpc_api import class_key
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.serving import Catalogue
from sawhorse_runtime.metrics import Metrics
from sawhorse_testing.catalog import an_ec2_node_class, common_facts
from sawhorse_testing.catalog_source import FakeCatalogSource

CHINA = "cn-northwest-1"
LISTED = json.dumps(
    {
        "product": {"attributes": {"instanceType": "m6i.large"}},
        "terms": {
            "OnDemand": {
                "t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"CNY": "0.7210000000"}}}},
            }
        },
    }
)


async def test_p05_in_china_offerings_cost_what_the_list_says_in_yuan_and_the_answer_names_the_currency() -> None:
    price = price_from_product(LISTED)
    assert price is not None
    m6i = next(f for f in common_facts() if f.name == "m6i.large")
    source = FakeCatalogSource(
        facts=[structs.replace(m6i, zones=(f"{CHINA}a",))],
        zones={f"{CHINA}a": "cnnw1-az1"},
        on_demand=dict([price]),
        spot=[],
    )
    instruments = Instruments(Metrics())
    fetcher = Fetcher(source, region=CHINA, ask_prices=True, instruments=instruments)
    catalogue = Catalogue(settings=ResolveSettings(), instruments=instruments)
    catalogue.take(await fetcher.fetch(None, 100.0))

    resolved = await catalogue.resolve(None, "")

    (kind,) = resolved.types
    assert catalogue.info().currency == "CNY"
    assert not catalogue.info().static_prices
    assert {o.price for o in kind.offerings if o.capacity_type == "on-demand" and o.available} == {0.721}
    assert resolved.excluded == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        {"cpuOptions": {"coreCount": 2}},
        {"amiFamily": "Bottlerocket"},
        {"kubelet": {"maxPods": 9}},
        {"instanceStorePolicy": "RAID0"},
        {"connectionTracking": {"udpTimeout": 30}},
        {"placementGroupSelector": {"name": "close"}},
        {"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]},
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}]},
    ],
)
def test_two_classes_share_an_answer_only_when_all_that_resolution_reads_is_equal(spec: dict[str, Any]) -> None:
    plain, other = an_ec2_node_class(), an_ec2_node_class(spec)

    assert class_key(plain) == class_key(an_ec2_node_class())
    assert class_key(plain) != class_key(other)
