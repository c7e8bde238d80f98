"""Capacity blocks that are about to end, as a NodeClass's status says. Pure."""

from datetime import datetime, timedelta

from sawhorse_catalog.aws.node_class import reservations_of
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_model.manifests import ManifestError, parse_time
from sawhorse_model.nodeclass import NodeClass

# EC2 begins to end the machines of a block this long before the block.
ENDS_EARLY = timedelta(minutes=30)


def expiring_blocks(node_class: NodeClass) -> dict[str, datetime | None]:
    """Reservation id → when EC2 begins to end its machines, None where that is not known; of expiring blocks only.

    A NodeClass that cannot be read has none: its own conditions say what is wrong with it.
    """
    try:
        reservations = reservations_of(parse_ec2_node_class(node_class))
    except ManifestError:
        return {}
    return {r.id: _ends(r.end) for r in reservations if r.expiring}


def _ends(end: str) -> datetime | None:
    try:
        return parse_time(end, "endTime") - ENDS_EARLY
    except ManifestError:
        return None
