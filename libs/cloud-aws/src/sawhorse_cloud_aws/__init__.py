"""The Cloud, CatalogSource and Queue protocols over aioboto3, the only importer of the AWS SDK.

`connect_cloud`, `connect_catalog_source` and `connect_queue` are the entry points.
"""

from sawhorse_cloud_aws.blocks import expiring_blocks
from sawhorse_cloud_aws.catalog_source import connect_catalog_source
from sawhorse_cloud_aws.cloud import AwsSettings, connect_cloud
from sawhorse_cloud_aws.dry_runs import DryRunMode
from sawhorse_cloud_aws.queue import connect_queue

__all__ = [
    "AwsSettings",
    "DryRunMode",
    "connect_catalog_source",
    "connect_cloud",
    "connect_queue",
    "expiring_blocks",
]
