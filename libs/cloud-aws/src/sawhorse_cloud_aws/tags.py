"""Tags that every machine carries from its first moment, and those that we read back."""

from sawhorse_model.aws import NODECLASS_LABEL, EC2NodeClass
from sawhorse_model.labels import LAUNCH_TOKEN, NODEPOOL
from sawhorse_model.nodeclaim import NodeClaim

TOKEN_TAG = LAUNCH_TOKEN
CLUSTER_TAG = "eks:eks-cluster-name"


def fleet_tags(cluster: str, claim: NodeClaim, node_class: EC2NodeClass) -> dict[str, str]:
    """Tags of instances, volumes, interfaces, fleets and templates; the user's own may not override ours."""
    return class_tags(cluster, node_class, nodepool=claim.nodepool)


def class_tags(cluster: str, node_class: EC2NodeClass, *, nodepool: str) -> dict[str, str]:
    """The same for a pool by name."""
    return {
        **node_class.tags,
        f"kubernetes.io/cluster/{cluster}": "owned",
        CLUSTER_TAG: cluster,
        NODEPOOL: nodepool,
        NODECLASS_LABEL: node_class.name,
    }
